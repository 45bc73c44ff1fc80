"""GEMM of a matrix and its own transpose: tiles on and below the diagonal are computed, those above are mirrored.

Element (i, j) adds the same products in the same order as (j, i), so that a copy has its bits. An item computes rows of
C up to its diagonal, hands them to the epilogue, turns what lies left of the diagonal, block by block in scratch, and
hands that to the epilogue, too: at its mirrored place. Little more than half of the products are made (BLAS: SYRK).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from morpho.backends.kernels.gemm.gemm import GEMM, GemmKernel
from morpho.backends.kernels.gemm.matmul import Matmul, Matrix, rounded
from morpho.backends.kernels.gemm.tiling import Tiling
from morpho.backends.kernels.loops.loop_spec import LoopCall, LoopKernel
from morpho.base.dims import Size, upper
from morpho.program.view import View

SYMMETRIC_GEMM = GEMM.extended("mirror_at")
TILE_ROWS = 64  # of an item: the lower, the less of the diagonal's blocks is computed twice
MIRRORED = 64  # rows of a mirrored block
LEAST_SIZE = 192  # of C: at least three tiles, one of which has nothing above it
LEAST_DEPTH = 64  # of the sums: with few, the turning is as long as what it saves
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class SymmetricGemmKernel(GemmKernel):
    """As `GemmKernel`, for a B that is the transpose of A."""

    tiles_of_result = False  # what is mirrored is read from scratch


def is_symmetric(a: Matrix, b: Matrix, m: Size, n: Size, k: Size) -> bool:
    """Whether the right operand is the left one transposed, and large enough."""
    same = (a.view.slot, a.view.offset, a.view.dtype) == (b.view.slot, b.view.offset, b.view.dtype)
    turned = (a.rows, a.columns, a.batch, a.outer) == (b.columns, b.rows, b.batch, b.outer)
    large = isinstance(n, int) and isinstance(k, int) and m == n and n >= LEAST_SIZE and k >= LEAST_DEPTH
    return same and turned and large and a.view.dtype.name in DTYPES


class SymmetricMatmul(Matmul):
    """A product of a matrix with its transpose."""

    record = SYMMETRIC_GEMM
    sides_change = False

    def tiled(self, tiling: Tiling) -> Tiling:
        """Low tiles of rows; a row in scratch holds that many elements of a mirrored block."""
        stride = max(tiling.stride, TILE_ROWS)
        return replace(tiling, tile_rows=TILE_ROWS, row_tiles=-(-upper(self.m) // TILE_ROWS), stride=stride)

    def kernel(self) -> GemmKernel:
        plain = super().kernel()
        return SymmetricGemmKernel(self.dtype, plain.left, heights=plain.heights, micro=plain.micro)

    def takes_direct_store(self, target: View) -> bool:
        return False

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, scratch_at, end = super().scratch(epilogue)
        return sums_at, scratch_at, end + rounded(MIRRORED * self.tiling.stride * self.dtype.itemsize)

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        return super().numbers(epilogue) | {"mirror_at": super().scratch(epilogue.kernel)[2]}

    @property
    def work_per_item(self) -> Size:
        """Half of what a tile would be."""
        return super().work_per_item // 2
