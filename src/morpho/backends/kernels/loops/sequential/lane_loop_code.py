"""The function of a `LaneLoop`: vectors of elements, and the loop of a `RegisterLoop` for each."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops.sequential.lane_loop import LaneLoop
from morpho.backends.kernels.loops.sequential.register_loop import Carry
from morpho.backends.kernels.loops.sequential.register_loop_code import LEAST_TURNS, ROOM, STRETCH, RegisterLoopCode
from morpho.base.dtypes import int64
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
        self.isa, self.apart, self.picks = isa, kernel.apart, kernel.picks
        self.uniform = frozenset() if kernel.picks else kernel.uniform
        widest = max(instruction.dtype.itemsize for instruction in kernel.loop.instructions)
        vectors = next((v for most, v in SIDE_BY_SIDE if len(kernel.loop.instructions) <= most), 1)
        self.vectors = vectors
        self.lanes = isa.lanes(widest) * vectors if isa.vector_bits else 1
        self.e = Emitter(self.lanes, isa.native_half, architecture=isa.architecture)

    def text(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.starts = [e.load_pointer("%buffers", number) for number in range(len(kernel.operands))]
        numbers = kernel.record.load(e)
        self.numbers = (numbers["turns"], kernel.record.loaded("strides", numbers))
        first, last = e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)
        if self.picks:
            self.turn_by_turn(first, last)
        else:
            self.over_elements(first, last, self.elements)
        e.line("ret i32 0")
        wide = '"prefer-vector-width"="512"' if self.isa.vector_bits >= 512 else ""
        text = defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", ROOM, e.text())
        return text + "\n".join(sorted(e.declarations)) + "\n"

    def over_elements(self, first: Value, last: Value, write: Callable[[Value], None]) -> None:
        """Vectors of elements, then the rest of them."""
        e, lanes = self.e, self.lanes
        whole = first + ((last - first) & -lanes)
        with e.loop(first, whole, lanes) as loop:
            write(loop.index)
        if lanes > 1 and self.isa.masks:
            with e.when(e.icmp("slt", whole, last)):
                left = last - whole
                for few in e.both(e.icmp("sle", left, lanes // self.vectors)) if self.vectors > 1 else (False,):
                    e.lanes = lanes // self.vectors if few else lanes  # one vector where that is enough
                    self.mask = e.first_lanes(left)
                    write(whole)
        elif lanes > 1:
            e.lanes = 1
            with e.loop(whole, last) as loop:
                write(loop.index)
        e.lanes, self.mask = lanes, None

    def one(self, number: int) -> Value:
        e, (name, dtype, *_) = self.e, self.kernel.instructions[number]
        if name == "lane":
            return scalars.cast(e, e.splat(self.start) + e.lane_numbers(), int64, dtype)
        if number not in self.uniform:
            return super().one(number)
        lanes, e.lanes = e.lanes, 1
        found = super().one(number)
        e.lanes = lanes
        return found

    def read(self, number: int) -> Value:
        """Value that all elements share, in every lane; constants in the wanted form."""
        name, dtype, _, attributes = self.kernel.instructions[number]
        if name == "constant":
            return self.e.constant(attributes[0], scalars.register_type(dtype))
        return self.e.splat(self.values[number])

    def first(self, carry: Carry) -> Value:
        """Initial value of a carry; one number if it is the same for all."""
        if carry.value not in self.uniform:
            return super().first(carry)
        dtype = self.kernel.operands[carry.operand].dtype
        memory = scalars.memory_type(dtype)
        return scalars.from_memory(self.e, self.e.load(self.pointers[carry.operand], memory, 1), dtype)

    def next(self, carry: Carry) -> Value:
        """And into the next."""
        following = self.values[carry.following]
        return following if carry.value in self.uniform else self.e.splat(following)

    def place(self, starts: list[str], start: Value) -> list[str]:
        """Where operands of which every lane sees its own element begin for those from `start` on."""
        self.start = start
        operands = zip(starts, self.kernel.operands, self.apart, strict=True)
        return [self.e.offset(base, scalars.memory_type(operand.dtype), start * apart) if apart else base
                for base, operand, apart in operands]

    def elements(self, start: Value) -> None:
        """All turns of the elements from `start` on."""
        self.bases = self.place(self.starts, start)
        self.all_turns(*self.numbers)

    # -- a turn of all elements after the other ------------------------------------------------------------------------
    def turn_by_turn(self, first: Value, last: Value) -> None:
        """Every turn goes over all elements, once it has read those that all lanes see."""
        e, kernel, (turns, strides) = self.e, self.kernel, self.numbers
        poll_every = max(LEAST_TURNS, STRETCH // max(1, len(kernel.instructions)))  # elements, not turns
        e.store(last - last, "%stretch")
        with e.loop(0, turns) as loop:
            spent = e.load("%stretch", "i64", 1) + (last - first)
            e.store(spent, "%stretch")
            with e.when(e.icmp("sgt", spent, poll_every)):
                e.store(last - last, "%stretch")
                e.poll()
            self.counter = turns - 1 - loop.index if kernel.backwards else loop.index
            moved = [e.offset(base, scalars.memory_type(operand.dtype), loop.index * stride) if operand.moves else base
                     for base, operand, stride in zip(self.starts, kernel.operands, strides, strict=True)]
            self.picked = {number: self.pick(*kernel.instructions[number].attributes) for number in self.picks}
            self.over_elements(first, last, lambda start: self.one_turn(self.place(moved, start)))

    def pick(self, operand: int, factor: int, constant: int) -> Value:
        e, dtype = self.e, self.kernel.operands[operand].dtype
        memory = scalars.memory_type(dtype)
        place = e.offset(self.starts[operand], memory, self.counter * factor + constant)
        return scalars.from_memory(e, e.load(place, memory, 1), dtype)

    def one_turn(self, pointers: list[str]) -> None:
        """One turn of some elements, from memory to memory."""
        kernel = self.kernel
        self.pointers = pointers
        self.values = {number: self.e.splat(value) for number, value in self.picked.items()}
        self.values |= {carry.value: self.load(carry.operand, carry.offset) for carry in kernel.carries}
        self.write(range(len(kernel.instructions)))
        for store in kernel.stores:
            self.store(self.values[store.value], store.operand, store.offset)
        for carry in kernel.carries:
            self.store(self.values[carry.following], carry.operand, carry.offset)

    def load(self, operand: int, offset: int) -> Value:
        e, dtype = self.e, self.kernel.operands[operand].dtype
        memory, place = scalars.memory_type(dtype), self.pointers[operand]
        if not self.apart[operand]:
            return e.splat(scalars.from_memory(e, e.load(place, memory, 1), dtype))
        if self.apart[operand] > 1 and e.lanes > 1:
            return scalars.from_memory(e, self.load_apart(place, memory, self.apart[operand]), dtype)
        if self.mask is None:
            return scalars.from_memory(e, e.load(place, memory), dtype)
        return scalars.from_memory(e, e.from_bits(e.load_some(place, f"i{BITS[memory]}", self.mask), memory), dtype)

    def load_apart(self, place: str, memory: str, apart: int) -> Value:
        """Elements that do not lie side by side, one after the other: gathers are slow on many machines."""
        e = self.e
        if self.mask is not None:
            return e.gather_some(place, memory, e.lane_numbers() * apart, self.mask)
        return e.vector_of([e.load(e.offset(place, memory, lane * apart), memory, 1) for lane in range(e.lanes)])

    def store(self, value: Value, operand: int, offset: int) -> None:
        e = self.e
        stored = scalars.to_memory(e, e.splat(value), self.kernel.operands[operand].dtype)
        if self.mask is None:
            e.store(stored, self.pointers[operand])
        else:
            e.store_some(e.bits(stored), self.pointers[operand], self.mask)
