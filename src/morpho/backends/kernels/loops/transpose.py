"""Copies that turn rows into columns, by square tiles that are transposed in registers.

Element by element such a copy reads or writes a line of the cache for each. Tiles at the ends lie over those before
them: what both write is the same. A few numbers that stay side by side, as the last axis of three of which the first
two are exchanged, are one element.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Emitter, defined
from morpho.backends.code.kernel_abi import SIGNATURE, Record
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.loops.loop_spec import LoopCall, LoopKernel
from morpho.base.machine import Isa
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class TransposeKernel(Kernel):
    """target[r, c] = source[r, c], where rows of the target and columns of the source lie side by side.

    Called over blocks of `side` rows; elements, which are a `run` of numbers of `bits`, are only moved.
    """

    bits: int
    side: int
    run: int = 1

    @property
    def record(self) -> Record:
        """Rows and columns; the stride of the source from column to column, of the target from row to row."""
        return Record("rows columns source target")


def as_transpose(call: LoopCall, vector_bits: int) -> tuple[TransposeKernel, tuple[int, ...]] | None:
    """The kernel of a copy, and its numbers, where it is one of these."""
    kernel, numbers = call.kernel, call.values
    if len(kernel.instructions) != 1 or not kernel.is_plain or kernel.inner_rank != 1 or not all(
            isinstance(number, int) for number in numbers):
        return None
    if [access.kind for access in kernel.accesses] != ["load", "store"] or kernel.accesses[0].guards:
        return None
    found = _rows_and_columns(kernel, [int(number) for number in numbers])
    if found is None:
        return None
    (rows, columns, run), (first, source), (target, last) = found
    bits = 8 * kernel.accesses[0].dtype.itemsize
    if bits * run > vector_bits // 4:
        return None
    wanted = 16 if vector_bits >= 512 or bits < 32 else 8  # a whole line of the cache
    most = min(wanted, vector_bits // (bits * run), rows, columns)
    side = next((n for n in (16, 8) if n <= most), 4)
    if side * bits * run < 64 or min(rows, columns) < side or (first, last) != (run, run):
        return None
    if source % run or target % run:
        return None
    made = TransposeKernel(bits, side, run)
    values = made.record.values(rows=rows, columns=columns, source=source // run, target=target // run)
    return made, values  # type: ignore[return-value]


def _rows_and_columns(kernel: LoopKernel, numbers: list[int]) -> tuple[tuple[int, ...], ...] | None:
    """Rows, columns and the numbers of an element; the strides of source and target from row to row and from column to
    column."""
    patterns = [access.pattern for access in kernel.accesses]
    if kernel.outer_rank == 1 and patterns[0] == "strided":
        rows, columns, *strides = numbers[:6]
        return (rows, columns, 1), tuple(strides[:2]), tuple(strides[2:])
    if kernel.outer_rank == 2 and patterns == ["unit", "unit"]:
        rows, columns, run, *strides = numbers[:9]
        return (rows, columns, run), tuple(strides[:2]), tuple(strides[3:5])
    return None


def generate(kernel: TransposeKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `TransposeKernel`."""
    side, run, element = kernel.side, kernel.run, f"i{kernel.bits}"
    e = Emitter(side * run, isa.native_half)
    source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
    v = kernel.record.load(e)
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as blocks:
        row = e.intrinsic("smin", blocks.index * side, v["rows"] - side)
        with e.loop(0, v["columns"], side) as loop:
            column = e.intrinsic("smin", loop.index, v["columns"] - side)
            lines = [e.load(e.offset(source, element, ((column + n) * v["source"] + row) * run), element)
                     for n in range(side)]
            for n, line in enumerate(transposed(e, lines, run)):
                e.store(line, e.offset(target, element, ((row + n) * v["target"] + column) * run))
    e.line("ret i32 0")
    wide = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
    return (defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", e.text()) + "\n".join(sorted(e.declarations)) + "\n")
