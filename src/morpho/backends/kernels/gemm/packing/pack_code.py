"""The function of a `PackKernel`, and what others that are called over panels share with it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.gemm.microkernel import places_of_batch, transpose
from morpho.backends.kernels.gemm.packing.pack import PACK, PackKernel
from morpho.base.machine import Isa


def generate(kernel: PackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `PackKernel`."""
    return PackCode(kernel, isa).module(name)


class PanelCode(ABC):
    """The generator's state while it writes one kernel that is called over panels of columns; see `PACK`."""

    source: str  # B[batch, 0, column]
    target: str  # what belongs to this batch
    record = PACK  # the kernel's numbers

    def __init__(self, width: int, memory: str, isa: Isa) -> None:
        self.width, self.memory = width, memory
        self.e = Emitter(1, isa.native_half)

    def module(self, name: str) -> str:
        e = self.e
        source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        self.v = v = self.record.load(e)
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as panels:
            batch = e.instruction("udiv", panels.index, v["panels"])
            number = panels.index - batch * v["panels"]
            column = number * self.width
            place = places_of_batch(e, batch, v)("b")
            self.source = e.offset(source, self.memory, place + column * v["b_n"])
            self.target = e.offset(target, self.memory, batch * v["target_batch"])
            self.panel(number, v["n"] - column)
        e.line("ret i32 0")
        return defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n"

    @abstractmethod
    def panel(self, number: Value, left: Value) -> None:
        """Write one panel; `left` columns are not in those before it: dynamic sizes may have fewer panels, so that
        there may be none."""


class PackCode(PanelCode):
    def __init__(self, kernel: PackKernel, isa: Isa) -> None:
        super().__init__(kernel.width, scalars.memory_type(kernel.dtype), isa)
        self.kernel = kernel
        self.vectors = isa.vector_bits > 0 and kernel.width % 4 == 0

    def panel(self, number: Value, left: Value) -> None:
        e = self.e
        self.target = e.offset(self.target, self.memory, number * self.width * self.v["k"])
        whole, part, after = e.fresh("whole"), e.fresh("part"), e.fresh("after")
        e.branch_if(e.icmp("sge", left, self.width), whole, part)
        e.label(whole)
        self.whole_panel()
        e.branch(after)
        e.label(part)
        with e.when(e.icmp("sgt", left, 0)):
            self.part_panel(left)
        e.branch(after)
        e.label(after)

    def place(self, k: Value, column: Value | int) -> str:
        """The address of an element of the source."""
        v = self.v
        along = column if self.kernel.right == "columns" else v["b_n"] * column
        down = k if self.kernel.right == "rows" else k * v["b_k"]
        return self.e.offset(self.source, self.memory, down + along)

    def whole_panel(self) -> None:
        e, v, width = self.e, self.v, self.kernel.width
        done = e.constant(0, "i64", 1)
        if self.kernel.right == "rows" and self.vectors:
            done = v["k"] & -4
            with e.loop(0, done, 4) as loop:
                lines = [e.load(self.place(loop.index, c), self.memory, 4) for c in range(width)]
                target = e.offset(self.target, self.memory, loop.index * width)
                for start in range(0, width, 4):
                    for number, column in enumerate(transpose(e, lines[start:start + 4])):
                        e.store(column, e.offset(target, self.memory, number * width + start))
        with e.loop(done, v["k"]) as loop:
            target = e.offset(self.target, self.memory, loop.index * width)
            if self.kernel.right == "columns" and self.vectors:
                e.store(e.load(self.place(loop.index, 0), self.memory, width), target)
            else:
                for c in range(width):
                    e.store(e.load(self.place(loop.index, c), self.memory, 1), e.offset(target, self.memory, c))

    def part_panel(self, left: Value) -> None:
        """The last columns, then zeros."""
        e, width = self.e, self.kernel.width
        zero = e.constant(0, self.memory, 1)
        with e.loop(0, self.v["k"]) as loop:
            target = e.offset(self.target, self.memory, loop.index * width)
            with e.loop(0, left) as columns:
                e.store(e.load(self.place(loop.index, columns.index), self.memory, 1),
                        e.offset(target, self.memory, columns.index))
            with e.loop(left, width) as columns:
                e.store(zero, e.offset(target, self.memory, columns.index))
