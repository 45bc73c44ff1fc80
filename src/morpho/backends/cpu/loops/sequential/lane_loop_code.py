"""The function of a `LaneLoop`: vectors of elements, and the loop of a `RegisterLoop` for each."""

from __future__ import annotations

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import BITS, Emitter, Value
from morpho.backends.cpu.codegen.kernel_abi import SIGNATURE
from morpho.backends.cpu.loops.sequential.lane_loop import LaneLoop
from morpho.backends.cpu.loops.sequential.register_loop_code import RegisterLoopCode
from morpho.base.machine import Isa

# Instructions up to which so many vectors run side by side: a turn waits for the one before, but registers are few.
SIDE_BY_SIDE = ((24, 4), (64, 2))


def generate(kernel: LaneLoop, isa: Isa, name: str) -> str:
    """The LLVM module of a `LaneLoop`."""
    return LaneLoopCode(kernel, isa).text(name)


class LaneLoopCode(RegisterLoopCode):
    """One such function being written."""

    mask: Value | None = None  # of the last elements, where the machine has masks

    def __init__(self, kernel: LaneLoop, isa: Isa) -> None:
        super().__init__(kernel.loop, isa)
        self.isa, self.beside = isa, kernel.beside
        widest = max(instruction.dtype.itemsize for instruction in kernel.loop.instructions)
        vectors = next((v for most, v in SIDE_BY_SIDE if len(kernel.loop.instructions) <= most), 1)
        self.lanes = isa.lanes(widest) * vectors if isa.vector_bits else 1
        self.e = Emitter(self.lanes, isa.native_half, architecture=isa.architecture)

    def text(self, name: str) -> str:
        e, kernel, lanes = self.e, self.kernel, self.lanes
        self.starts = [e.load_pointer("%buffers", number) for number in range(len(kernel.operands))]
        numbers = kernel.record.load(e)
        self.numbers = (numbers["turns"], kernel.record.loaded("strides", numbers))
        first, last = e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)
        whole = first + ((last - first) & -lanes)
        with e.loop(first, whole, lanes) as loop:
            self.elements(loop.index)
        if lanes > 1 and self.isa.masks:
            with e.when(e.icmp("slt", whole, last)):
                self.mask = e.first_lanes(last - whole)
                self.elements(whole)
        elif lanes > 1:
            e.lanes = 1
            with e.loop(whole, last) as loop:
                self.elements(loop.index)
        e.line("ret i32 0")
        wide = '"prefer-vector-width"="512"' if self.isa.vector_bits >= 512 else ""
        return (f"define i32 @{name}({SIGNATURE}) nounwind {wide} {{\nentry:\n{e.text()}\n}}\n"
                + "\n".join(sorted(e.declarations)) + "\n")

    def elements(self, start: Value) -> None:
        """All turns of the elements from `start` on."""
        operands = zip(self.starts, self.kernel.operands, self.beside, strict=True)
        self.bases = [self.e.offset(base, scalars.memory_type(operand.dtype), start) if beside else base
                      for base, operand, beside in operands]
        self.all_turns(*self.numbers)

    def load(self, operand: int, offset: int) -> Value:
        e, dtype = self.e, self.kernel.operands[operand].dtype
        memory, place = scalars.memory_type(dtype), self.pointers[operand]
        if not self.beside[operand]:
            return e.splat(scalars.from_memory(e, e.load(place, memory, 1), dtype))
        if self.mask is None:
            return scalars.from_memory(e, e.load(place, memory), dtype)
        return scalars.from_memory(e, e.from_bits(e.load_some(place, f"i{BITS[memory]}", self.mask), memory), dtype)

    def store(self, value: Value, operand: int, offset: int) -> None:
        e = self.e
        stored = scalars.to_memory(e, value, self.kernel.operands[operand].dtype)
        if self.mask is None:
            e.store(stored, self.pointers[operand])
        else:
            e.store_some(e.bits(stored), self.pointers[operand], self.mask)
