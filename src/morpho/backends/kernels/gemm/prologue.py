"""GEMM with a fused prologue: a loop kernel computes a few rows of A just before they are packed.

A work item is a tile of rows with all columns, so no row is computed twice. The prologue (a norm, a softmax, an
elementwise chain, a conversion) writes as many rows as a register tile has into scratch, from where they are packed
while they are in the L1 cache: A is never in memory as a whole. Layer norm before 16 columns: 1.16x on two Neoverse N1
cores, 1.39x on one Emerald Rapids core (notes/gemm.md, 2026-11-16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from morpho.backends.code.emit import CACHE_LINE
from morpho.backends.kernels.gemm.gemm import PROLOGUE_GEMM, GemmKernel
from morpho.backends.kernels.gemm.matmul import KEPT_SHARE, Matmul, Matrix, loop_scratch, rounded
from morpho.backends.kernels.gemm.tiling import ENOUGH_ROWS, ITEMS_PER_THREAD, TILE_ROWS, Tiling, choose_tiling, evened
from morpho.backends.kernels.loops.loop_spec import LoopCall, LoopKernel
from morpho.base.dims import Shape, Size, bounds, upper
from morpho.base.dtypes import DType
from morpho.base.shapes import contiguous_strides
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.program.view import View

LEFT = -3  # the slot of the rows in scratch, which the kernel itself fills in


@dataclass(frozen=True)
class PrologueGemmKernel(GemmKernel):
    """As `GemmKernel`, with A written by a loop kernel. The buffer of A is not read; the prologue's follow those of the
    epilogue, and so do its numbers."""


class PrologueMatmul(Matmul):
    """A product whose left operand is written row by row by `before`, at the places of `rows_as`."""

    record = PROLOGUE_GEMM
    sides_change = False
    before: LoopCall

    def __init__(self, dtype: DType, shape: Shape, k: int, b: Matrix, whole_rows: bool, target: Target,
                 thresholds: DispatchThresholds) -> None:
        line = CACHE_LINE // dtype.itemsize
        self.whole_rows, self.left_dtype = whole_rows, dtype
        self.stride = (k // line + 1) * line  # never k itself: rows and columns must not look like one axis
        a = Matrix(self.rows_as((*shape[:-1], k)), shape[-2] * self.stride, self.stride, 1, counts=b.counts)
        super().__init__(dtype, shape, k, a, b, whole_rows, target, thresholds)

    def rows_as(self, shape: Shape) -> View:
        """The rows before packing, all of them by their numbers, as a value of this shape."""
        steps = tuple(step * self.stride for step in contiguous_strides(shape[:-1]))
        return View(LEFT, 0, shape, (*steps, 1), self.left_dtype)

    def tiled(self, tiling: Tiling) -> Tiling:
        """All columns in every item; tiles of rows that stay packed in the second-level cache, alike for all
        threads."""
        alone = replace(self.target, threads=1)
        tiling = choose_tiling(self.m, self.n, self.k, 1, self.register, alone, self.whole_rows, 0,
                               replace(self.thresholds.choice, tile_rows=0, tile_columns=0))
        fits = int(KEPT_SHARE * self.target.l2_bytes) // (upper(self.k) * self.register.item)
        rows, batch = upper(self.m), upper(self.batch)
        share = -(-rows * batch // self.wanted_items)
        highest = min(TILE_ROWS, tiling.tile_rows, max(8, fits & -8), max(8, -(-share // 8) * 8))
        height = evened(rows, highest, batch, self.threads)
        if self.thresholds.choice.tile_rows:
            height = min(rows, -(-self.thresholds.choice.tile_rows // 8) * 8)
        return replace(tiling, tile_rows=height, row_tiles=max(1, -(-rows // height)))

    def kernel(self) -> GemmKernel:
        plain = super().kernel()
        return PrologueGemmKernel(self.dtype, "rows", heights=plain.heights, micro=plain.micro)

    @property
    def room(self) -> int:
        return self.packed_bytes

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, scratch_at, end = super().scratch(epilogue)
        return sums_at, scratch_at, self.before_at(end)[1] + loop_scratch(self.before.kernel, upper(self.k))

    def before_at(self, end: int) -> tuple[int, int]:
        """Where the rows before packing and the prologue's scratch begin, behind all else."""
        return end, end + rounded(self.register.heights[0] * self.stride * self.dtype.itemsize)

    def values(self, epilogue: LoopCall) -> tuple[Size, ...]:
        """The kernel's numbers, then the epilogue's own, then the prologue's."""
        return (*super().values(epilogue), *self.before.values)

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        before = self.before
        left = next(i for i, place in enumerate(before.views) if place is not None and place.slot == LEFT)
        rows_at, scratch_at = self.before_at(super().scratch(epilogue.kernel)[2])
        return super().numbers(epilogue) | {
            "prologue": 0, "before_operands": len(before.views), "before_left": left,
            "before_numbers": len(self.record) + len(epilogue.values), "before_scratch": scratch_at, "left_at": rows_at}

    @property
    def items(self) -> Size:
        return self.batch * self.tiling.row_tiles

    @property
    def work_per_item(self) -> Size:
        return self.k * self.tiling.tile_rows * self.n

    @property
    def wanted_items(self) -> int:
        """As many as let a thread that is late be helped by the others."""
        return self.threads * ITEMS_PER_THREAD if self.threads > 1 else 1

    @property
    def pays(self) -> bool:
        """Whether items are enough, each of rows enough for a panel that comes from memory and no larger than it would
        be without a prologue, and the kernel before runs on a few rows at a time."""
        kernel, least = self.before.kernel, bounds(self.batch * self.m)[0]
        enough = self.tiling.tile_rows >= ENOUGH_ROWS and least >= self.wanted_items * ENOUGH_ROWS
        return enough and self.tiling.column_tiles == 1 and not kernel.transposed and not kernel.short
