"""Blockwise (flash) attention: exact softmax(q k^T) v without the matrix of scores in memory.

The rows of one key-value head (all queries of all query heads that share it) are cut into tiles of 32 or 64. A tile
walks over blocks of 64 keys with a running maximum and sum per row. Scratch is a tile of queries and results, a block
of scores, as they are and as weights, and one packed block of keys and values where their strides do not suit. On a
Neoverse N1 both products run at 86 % of the FMA peak, 1024 x 1024 x 64 as a whole at 75 % (notes/attention.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

KEY_BLOCK = 64  # keys of a block; blocks start at multiples of it
PAIR_BLOCK = 32  # values of k that matrix units add up at once, the even and the odd ones apart
TILE, TALL_TILE = 32, 64  # rows of a tile; 128 were no faster (notes/attention.md, 2026-11-16)
UNIT_TILE = 256  # on matrix units: values are packed for so many rows (notes/attention.md, 2026-11-18)
FAR = 1 << 40  # positions are held within this: beyond the end of any axis
WIDEST = 64  # elements that padding adds to a line at most
OPERANDS = ("q", "k", "v", "o", "lse", "mask", "offset")
READ = ("q", "k", "v", "ct", "lse", "delta", "mask", "offset")
RESULTS = {"queries": ("dq",), "keys": ("dk", "dv"), "heads": ("dk", "dv", "dq", "total")}  # of the gradient's parts


def record_of(rank: int, operands: Sequence[str]) -> Record:
    """The numbers of a kernel of attention: extents of the batch axes, counts (the scale as the bits of a float64), and
    for each operand the strides of batch axes, key-value head, head in its group, row, and along the row."""
    return Record(f"batch[{rank}] kv_heads group queries keys depth width rows offset window scale tile "
                  + " ".join(f"{operand}_strides[{rank + 4}]" for operand in operands))


def forward_scratch_bytes(depth: int, width: int, units: bool = False) -> int:
    """Bytes for one thread: tables, two blocks of scores, a tile of queries and results, a block of keys and values;
    with matrix `units`, the operands of their products as tiles."""
    rows = UNIT_TILE if units else TALL_TILE
    fixed = rows * (4 * 8 + 2 * 4 + 3 * 8 + 6 * 8) + 2 * KEY_BLOCK * TALL_TILE * 8 + 20 * 64
    line = depth + width + 2 * WIDEST
    tiles = (UNIT_TILE * 3 + KEY_BLOCK) * line * 2 + TALL_TILE * KEY_BLOCK * 2 + 4 * 64
    return fixed + (TALL_TILE + KEY_BLOCK) * line * 8 + (tiles if units else 0)


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """softmax(scale * q k^T + mask) v, and the logarithm of each row's sum. Called over `rows` pieces of work.

    `rank` batch axes; `mask` is the mask's dtype; `moving`: the offset is read from memory. Operands as in `OPERANDS`.
    `flops`, `scratch_bytes`, and whether pieces are `uneven`, since later rows of a head may see more keys, belong to a
    step, not to the code.
    """

    dtype: DType
    rank: int
    mask: DType | None
    moving: bool
    flops: int = field(default=2, compare=False, repr=False)
    scratch_bytes: int = field(default=0, compare=False, repr=False)
    uneven: bool = field(default=True, compare=False, repr=False)

    role = "attention"
    one_by_one = True
    paged: ClassVar[bool] = False

    @property
    def operands(self) -> tuple[str, ...]:
        return OPERANDS

    @property
    def record(self) -> Record:
        return record_of(self.rank, OPERANDS)


@dataclass(frozen=True)
class PagedAttentionKernel(AttentionKernel):
    """The same over keys and values in pages of one block each; the last operand says which page holds each block. The
    strides of k and v have nothing for the batch: `k_page` and `v_page` are those from one page to the next."""

    paged: ClassVar[bool] = True

    @property
    def operands(self) -> tuple[str, ...]:
        return (*OPERANDS, "pages")

    @property
    def record(self) -> Record:
        return record_of(self.rank, self.operands).extended("pages k_page v_page")


def backward_scratch_bytes(depth: int, width: int) -> int:
    """Scratch of one thread, of any of the kernels."""
    fixed = KEY_BLOCK * (8 * 8 + 2 * 4 + 3 * 8) + KEY_BLOCK * (TILE + KEY_BLOCK) * 8 + 24 * 64
    return fixed + 4 * KEY_BLOCK * (depth + width + 2 * WIDEST) * 8


@dataclass(frozen=True)
class AttentionBackwardKernel(Kernel):
    """Numbers as for `AttentionKernel`, with the operands of `READ` and then the results of this part."""

    part: str
    dtype: DType
    rank: int
    mask: DType | None
    moving: bool
    flops: int = field(default=2, compare=False, repr=False)
    scratch_bytes: int = field(default=0, compare=False, repr=False)

    role = "attention"

    @property
    def record(self) -> Record:
        return record_of(self.rank, (*READ, *RESULTS[self.part]))
