"""Copies that turn rows into columns, by square tiles that are transposed in registers.

Element by element such a copy reads or writes a line of the cache for each. Tiles at the ends lie over those before
them: what both write is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen.emit import Emitter
from morpho.backends.cpu.codegen.kernel_abi import SIGNATURE, Record
from morpho.backends.cpu.codegen.register_transpose import transposed
from morpho.backends.cpu.loops.loop_spec import LoopCall
from morpho.base.machine import Isa
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class TransposeKernel(Kernel):
    """target[r, c] = source[r, c], where rows of the target and columns of the source lie side by side.

    Called over blocks of `side` rows; elements of `bits` are only moved.
    """

    bits: int
    side: int

    @property
    def record(self) -> Record:
        """Rows and columns; the stride of the source from column to column, of the target from row to row."""
        return Record("rows columns source target")


def as_transpose(call: LoopCall, vector_bits: int) -> tuple[TransposeKernel, tuple[int, ...]] | None:
    """The kernel of a copy, and its numbers, where it is one of these."""
    kernel, numbers = call.kernel, call.values
    plain = (kernel.outer_rank, kernel.inner_rank, len(kernel.instructions)) == (1, 1, 1) and kernel.is_plain
    if not plain or [access.kind for access in kernel.accesses] != ["load", "store"] or kernel.accesses[0].guards:
        return None
    if not all(isinstance(number, int) for number in numbers) or kernel.accesses[0].pattern != "strided":
        return None
    rows, columns, first, source, target, last = (int(number) for number in numbers[:6])
    bits = 8 * kernel.accesses[0].dtype.itemsize
    side = 8 if 8 * bits <= vector_bits else 4
    if bits < 32 or side * bits > vector_bits or min(rows, columns) < side or (first, last) != (1, 1):
        return None
    made = TransposeKernel(bits, side)
    return made, made.record.values(rows=rows, columns=columns, source=source, target=target)  # type: ignore[return-value]


def generate(kernel: TransposeKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `TransposeKernel`."""
    side, element = kernel.side, f"i{kernel.bits}"
    e = Emitter(side, isa.native_half)
    source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
    v = kernel.record.load(e)
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as blocks:
        row = e.intrinsic("smin", blocks.index * side, v["rows"] - side)
        with e.loop(0, v["columns"], side) as loop:
            column = e.intrinsic("smin", loop.index, v["columns"] - side)
            lines = [e.load(e.offset(source, element, (column + n) * v["source"] + row), element) for n in range(side)]
            for n, line in enumerate(transposed(e, lines)):
                e.store(line, e.offset(target, element, (row + n) * v["target"] + column))
    e.line("ret i32 0")
    wide = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
    return (f"define i32 @{name}({SIGNATURE}) nounwind {wide} {{\nentry:\n{e.text()}\n}}\n"
            + "\n".join(sorted(e.declarations)) + "\n")
