"""One row of bfloat16 times a block of 32 values of k on AArch64, in assembly.

One row uses every value of its panel once, so that widening to float32 takes as many instructions as multiplying. Of
the two vector units of a Neoverse core only one can shift, and instructions are assigned to a unit in program order:
LLVM's schedule leaves a fifth of their time unused. Here an FMA stands beside every shift, that of a value which was
widened some steps before (notes/low_precision.md has the cycles).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morpho.backends.code import inline_asm
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value
from morpho.backends.code.inline_asm import NEON_LANES
from morpho.backends.kernels.gemm.tiling import K_BLOCK
from morpho.base.machine import Isa

TOGETHER = 8  # values of the row that are loaded at a time
AHEAD = 8  # steps from a load to the first shift of what it loaded
FARTHER = 2048  # bytes: prefetch distance into the L2 cache
DISTANCE = 5  # steps from a shift to its fma
RAW, WIDE = 8, 8  # registers of what was loaded, and of what was widened
MOST_VECTORS = 4


def fits(vectors: int, lanes: int, isa: Isa) -> bool:
    """Whether there are registers for a panel of these vectors, on such a machine."""
    return 1 < vectors <= MOST_VECTORS and lanes == NEON_LANES and isa.inline_asm


def add_block(e: Emitter, totals: Sequence[Value], panel: str, row: str) -> list[Value]:
    """`totals`, a vector each for the columns of a panel, with the block added that begins at `panel` and `row`."""
    vectors = len(totals)
    used = [f"v{register}" for register in range(2 * vectors + RAW + WIDE + 2)]
    operands = [f"ptr {panel}", f"ptr {row}"]
    return inline_asm.run(e, totals, lambda *names: _instructions(vectors, *names), operands, used)


def _instructions(vectors: int, panel: str, row: str) -> Iterator[str]:
    """The chain of the even values of k is in v0, v1, ..., that of the odd ones in the registers behind.

    Both begin with a product, not with a zero: what differs is the sign of a zero, and the sums begin with +0.
    """
    raw, wide = 2 * vectors, 2 * vectors + RAW
    left = wide + WIDE
    count = K_BLOCK * vectors  # steps: step k * vectors + c is four columns of one line, eight bytes
    for step in range(-AHEAD, count + DISTANCE):
        if step + AHEAD < count:
            yield from _reading(step + AHEAD, panel, raw + (step + AHEAD) // 2 % RAW, count)
        if step >= DISTANCE:
            k, column = divmod(step - DISTANCE, vectors)
            if column == 0 and k % TOGETHER == 0:
                yield f"ldp q{left}, q{left + 1}, [{row}, #{4 * k}]"
            factor = f"v{left + k % TOGETHER // NEON_LANES}.s[{k % NEON_LANES}]"
            operation = "fmul" if k < 2 else "fmla"
            yield f"{operation} v{k % 2 * vectors + column}.4s, v{wide + (step - DISTANCE) % WIDE}.4s, {factor}"
        if 0 <= step < count:
            half, lanes = ("2", "8h") if step % 2 else ("", "4h")
            yield f"shll{half} v{wide + step % WIDE}.4s, v{raw + step // 2 % RAW}.{lanes}, #16"
    for column in range(vectors):
        yield f"fadd v{column}.4s, v{column}.4s, v{column + vectors}.4s"
    for column in range(vectors):
        yield f"fadd ${column}.4s, ${column}.4s, v{column}.4s"


def _reading(step: int, panel: str, register: int, count: int) -> Iterator[str]:
    """Two vectors for the next four steps; and the same line of the next block asked for, and one farther on."""
    if step % 4 == 0:
        yield f"ldp q{register}, q{register + 1}, [{panel}, #{8 * step}]"
    if 8 * (step + 2) % CACHE_LINE == 0:
        yield f"prfm pldl1strm, [{panel}, #{8 * (step + 2 + count) - CACHE_LINE}]"
        yield f"prfm pldl2keep, [{panel}, #{8 * (step + 2) - CACHE_LINE + FARTHER}]"
