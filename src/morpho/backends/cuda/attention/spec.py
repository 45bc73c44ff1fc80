"""Attention as data: what a kernel computes, and its numbers by name."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

BATCH_AXES = 3
KEYS = 64  # of a block: the order in which a row's sum is taken depends on nothing else
OPERANDS = "qkvolxp"  # q, k, v, result, logarithms, mask, positions
ATTENTION = Record(" ".join(["queries keys heads group", f"batches[{BATCH_AXES}]",
                             *(f"{name}_batch[{BATCH_AXES}] {name}_head {name}_row" for name in OPERANDS), "x_column"]))

PAGED = ATTENTION.extended("pages k_page v_page t_batch t_column")  # of the pools, and of the table


def powers_of_two(depth: int, width: int) -> tuple[int, int]:
    """Depth and width as the tiles of a kernel have them."""
    return max(16, 1 << (depth - 1).bit_length()), max(16, 1 << (width - 1).bit_length())


@dataclass(frozen=True)
class AttentionSpec(Kernel):
    """Softmax(scale q k^T + mask) v. Called with q, k, v, the results, then the mask and the positions it has, and the
    table of pages where k and v are pools of them."""

    dtype: DType
    depth: int  # of q and k
    width: int  # of v
    scale: float
    offset: int
    causal: bool
    window: int
    mask: DType | None
    moving: bool
    rows: int  # queries of a block
    way: str = "mma"  # by warps, or "wgmma": by warpgroups
    paged: bool = False

    role = "attention"
    flops = 4

    @property
    def places(self) -> int:
        """Operands in memory."""
        return 5 + (self.mask is not None) + self.moving + self.paged

    @property
    def record(self) -> Record:
        """Its numbers."""
        return PAGED if self.paged else ATTENTION
