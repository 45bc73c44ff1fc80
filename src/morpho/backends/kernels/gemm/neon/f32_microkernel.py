"""The float32 micro-kernel of AArch64, 8 rows x 12 columns, in assembly.

24 sums leave eight registers for operands. LLVM clusters its loads and reaches 97.7 % of the FMA peak; here each load
stands a few FMAs before its first use, the vectors of the panel alternate between two sets of registers, and rows (from
L2) and panel (from memory at its first rows) are prefetched: 12.17 cycles per value of k, of which FMAs alone take
12.12 (notes/gemm.md, 2026-11-16).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morpho.backends.code import inline_asm
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value
from morpho.backends.code.inline_asm import NEON_LANES
from morpho.base.machine import Isa

ROWS, VECTORS = 8, 3
STEPS = 4  # values of k per turn of the loop
ROWS_AHEAD, PANEL_AHEAD = 512, 1024  # bytes: prefetch distances; 128 for rows was 1 to 3 % slower
SUMS = ROWS * VECTORS
LEFT, RIGHT = SUMS, SUMS + 2  # registers: two of a line of the rows, then two sets of three of the panel
ROW_BYTES, LINE_BYTES = ROWS * 4, VECTORS * NEON_LANES * 4  # of one value of k


def fits(height: int, vectors: int, lanes: int, isa: Isa) -> bool:
    """Whether a tile of float32 is such a tile, on such a machine."""
    return (height, vectors, lanes) == (ROWS, VECTORS, NEON_LANES) and isa.inline_asm


def add_steps(e: Emitter, sums: Sequence[Value], rows: str, panel: str, count: Value) -> list[Value]:
    """`sums`, row by row, with `count` values of k added, a multiple of `STEPS`."""
    used = [f"v{register}" for register in range(SUMS, 32)] + ["x9", "x10", "x11"]
    return inline_asm.run(e, sums, _instructions, [f"ptr {rows}", f"ptr {panel}", f"i64 {count.name}"], used)


def _instructions(rows: str, panel: str, count: str) -> Iterator[str]:
    yield from (f"mov x9, {rows}", f"mov x10, {panel}", f"subs x11, {count}, #0", "b.eq 2f", "1:")
    for step in range(STEPS):
        yield from _step(step)
    yield from (f"add x9, x9, #{STEPS * ROW_BYTES}", f"add x10, x10, #{STEPS * LINE_BYTES}", "b.ne 1b", "2:")


def _step(step: int) -> Iterator[str]:
    """One value of k; the last step of a turn also counts."""
    right = RIGHT + step % 2 * VECTORS
    row_at, line_at = step * ROW_BYTES, step * LINE_BYTES
    yield f"ldr q{LEFT}, [x9, #{row_at}]"
    for vector in range(VECTORS):
        yield f"ldr q{right + vector}, [x10, #{line_at + 16 * vector}]"
    between = [f"ldr q{LEFT + 1}, [x9, #{row_at + 16}]"]
    if row_at % CACHE_LINE == 0:
        between.append(f"prfm pldl1keep, [x9, #{row_at + ROWS_AHEAD}]")
    if step * CACHE_LINE < STEPS * LINE_BYTES:
        between.append(f"prfm pldl1keep, [x10, #{step * CACHE_LINE + PANEL_AHEAD}]")
    if step == STEPS - 1:
        between.append(f"subs x11, x11, #{STEPS}")
    for row in range(ROWS):
        if row >= 2 and between:
            yield between.pop(0)
        for vector in range(VECTORS):
            total = row * VECTORS + vector
            yield f"fmla ${total}.4s, v{right + vector}.4s, v{LEFT + row // NEON_LANES}.s[{row % NEON_LANES}]"
