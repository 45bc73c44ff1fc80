"""GEMM on a B that changes from call to call: every work item packs the columns it needs and uses them at once.

A pack step of its own costs a launch, and leaves half of what it wrote in the cache of another core. Here an item is a
tile of columns with all rows, or, where threads are many, with a part of them: it packs its columns, a block of k at a
time, into the scratch of its thread, where they stay for the tiles of rows. Tiles are whole vectors wide, not whole
panels: the last panel of a tile may be narrower, so that threads have equal shares and no zeros are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from morpho.backends.kernels.gemm.gemm import GEMM, GemmKernel
from morpho.backends.kernels.gemm.matmul import Matmul, layout, rounded
from morpho.backends.kernels.gemm.tiling import Tiling
from morpho.backends.kernels.loops.loop_spec import LoopCall, LoopKernel
from morpho.base.dims import Size, upper

UNPACKED_GEMM = GEMM.extended("b_k b_n panels_at tile_vectors row_parts group panel_step kept")
MOST_ROWS = 64  # rows per lane: beyond, packing is a small part, and 512 squared was 3 % slower (notes/gemm.md)
LEAST_COLUMNS = 32  # of a tile, each of which packs all rows: 64 squared 10.7 us, with 96 13.8 (notes/gemm.md)
ENOUGH_VECTORS = 48  # vectors of a tile from which a thread gets two tiles: 1000 squared 0.90 -> 0.95x (notes/gemm.md)
PACKING = 8  # multiply-adds that take as long as packing an element: 32 a cycle, and 4 elements
ONE_TILE_ROWS = 256  # of a tile that packs: 197 rows in one 12 % faster than in two (notes/gemm.md)
GROUP_SHARE = {"rows": 4, "columns": 2}  # of the L2 cache, for the panels that are packed together
FEW_ROWS_BYTES = 256 << 10  # bytes of a tile's packed columns with few rows: they stay in the L2 cache


@dataclass(frozen=True)
class UnpackedGemmKernel(GemmKernel):
    """As `GemmKernel`, with B as it lies: `right` is `columns` (n side by side), `rows` (k side by side) or
    `general`. Like heights of register tiles, `vectors` are those that occur."""

    right: str = "general"
    vectors: tuple[int, ...] = ()
    ragged: bool = True  # whether the last vector has lanes without a column


class UnpackedMatmul(Matmul):
    """A product that packs the right operand itself."""

    record = UNPACKED_GEMM
    packs_right = True

    def kernel(self) -> GemmKernel:
        n, lanes, register = int(self.n), self.register.lanes, self.register
        left = layout(self.a.rows, self.a.columns, ("columns", "rows"))
        right = layout(self.b.rows, self.b.columns, ("rows", "columns"))
        widths = {self.tile_vectors, -(-n // lanes) - (self.tiling.column_tiles - 1) * self.tile_vectors}
        whole = {register.vectors} if max(widths) >= register.vectors else set()
        vectors = sorted((whole | {width % register.vectors for width in widths}) - {0}, reverse=True)
        return UnpackedGemmKernel(self.dtype, left, right, tuple(vectors), n % lanes != 0, heights=self.heights,
                                  micro=self.micro)

    def tiled(self, tiling: Tiling) -> Tiling:
        """As many tiles of columns for every thread, and all rows in each."""
        found = vectors_of_tile(self, tiling)
        assert found is not None and isinstance(self.n, int), "asked for products that are worth it only"
        (self.tile_vectors, self.row_parts), lanes = found, self.register.lanes
        stride = self.tile_vectors * lanes
        stride += lanes if stride == self.n else 0  # rows and columns of the tile must not look like one axis
        sums = upper(self.m) * stride * self.dtype.itemsize
        if (self.row_parts == 1 and upper(self.m) <= ONE_TILE_ROWS and sums <= self.target.l2_bytes // 2
                and not self.thresholds.choice.tile_rows):
            tiling = replace(tiling, tile_rows=upper(self.m), row_tiles=1)
        if self.row_parts > 1:
            rows = _rows_of_part(upper(self.m), self.row_parts)
            height = -(-rows // -(-rows // tiling.tile_rows))
            height = -(-height // 8) * 8
            tiling = replace(tiling, tile_rows=height, row_tiles=-(-upper(self.m) // height))
            self.row_parts = min(self.row_parts, tiling.row_tiles)
        return replace(tiling, tile_panels=-(-self.tile_vectors // self.register.vectors),
                       column_tiles=-(-self.n // (self.tile_vectors * lanes)), stride=stride)

    @property
    def tiles_of_part(self) -> int:
        """Tiles of rows of an item, at most."""
        return -(-self.tiling.row_tiles // self.row_parts)

    @property
    def packed_places(self) -> int:
        return super().packed_places * self.tiles_of_part

    @property
    def is_kept(self) -> bool:
        """Whether packed columns stay for further tiles of rows."""
        return self.tiles_of_part > 1

    @property
    def panel_step(self) -> int:
        """Elements from one packed panel to the next: a block of k, or all of it where they are kept."""
        return (upper(self.k) if self.is_kept else min(self.tiling.depth, upper(self.k))) * self.register.width

    @property
    def group(self) -> int:
        """Panels that are packed one after the other before they are used: they stay in the L2 cache, and where k is
        not side by side, some lines of memory lie so."""
        right = layout(self.b.rows, self.b.columns, ("rows", "columns"))
        most = self.target.l2_bytes // GROUP_SHARE.get(right, 2)
        nbytes = self.tiling.depth * self.register.width * self.dtype.itemsize
        if self.is_kept and right != "rows":
            return self.tiling.tile_panels
        return max(1, min(most // nbytes, self.tiling.tile_panels))

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, scratch_at, end = super().scratch(epilogue)
        columns, width = self.tile_vectors * self.register.lanes, self.register.width
        columns = columns if self.is_kept else min(columns, self.group * width)
        return sums_at, scratch_at, end + rounded(columns * self.panel_step // width * self.dtype.itemsize)

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        b = self.b
        return super().numbers(epilogue) | {
            "b_batch": b.batch, "b_outer": b.outer, "b_k": b.rows, "b_n": b.columns,
            "panels_at": super().scratch(epilogue.kernel)[2], "tile_vectors": self.tile_vectors,
            "row_parts": self.row_parts, "group": self.group, "panel_step": self.panel_step, "kept": int(self.is_kept)}

    @property
    def items(self) -> Size:
        return self.batch * self.row_parts * self.tiling.column_tiles

    @property
    def work_per_item(self) -> Size:
        rows = self.m if self.row_parts == 1 else self.tiles_of_part * self.tiling.tile_rows
        return self.k * rows * self.tile_vectors * self.register.lanes


def _rows_of_part(rows: int, parts: int) -> int:
    return -(-rows // (parts * 8)) * 8


def vectors_of_tile(product: Matmul, tiling: Tiling) -> tuple[int, int] | None:
    """How many vectors wide the tiles of columns are, and into how many parts rows are divided; None where the columns
    are too few for that."""
    m, n, k, batch = product.m, product.n, product.k, product.batch
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int) and isinstance(batch, int)):
        return None
    if product.swapped or min(m, n, k, batch) < 1:
        return None
    if product.right_batches != batch:  # one matrix for several of them is packed once
        return None
    register, few = product.register, tiling.row_tiles == 1 and m <= product.thresholds.single_k_block_rows
    most = max(4, FEW_ROWS_BYTES // (k * register.width * product.dtype.itemsize)) if few else 64  # panels of a tile
    work = batch * m * k * product.panels * register.width  # as the driver counts it
    is_shared = batch < 2 * product.threads and work > product.thresholds.parallel_macs
    sharers = product.threads if is_shared else 1
    if is_shared and not few and batch == 1 and sharers > 2 and m <= MOST_ROWS * register.lanes:
        return grid(m, n, product.threads, register.lanes, register.vectors)
    if sharers > 1 and n >= 2 * sharers * ENOUGH_VECTORS * register.lanes:
        sharers *= 2
    tiles = -(-product.panels // (most * sharers)) * sharers
    vectors = -(-n // (register.lanes * tiles))
    if sharers == 1 or tiles > 2 * sharers:  # shares are even enough: only the last tile has a narrow panel
        vectors = -(-vectors // register.vectors) * register.vectors
    transposed = few and product.b.columns != 1  # with k side by side, columns are packed faster all at once
    narrow = transposed or product.panels < sharers or (not few and vectors * register.lanes < min(LEAST_COLUMNS, n))
    return None if narrow or m > MOST_ROWS * register.lanes else (vectors, 1)


def grid(m: int, n: int, threads: int, lanes: int, panel: int) -> tuple[int, int]:
    """Vectors of a tile of columns, and parts of rows, such that the thread with the most work ends first: it
    multiplies its items, and packs the rows and the columns of each.

    >>> grid(256, 256, 16, 16, 3)
    (4, 4)
    """
    def longest(choice: tuple[int, int]) -> tuple[int, int]:
        vectors, parts = choice
        rows, columns = _rows_of_part(m, parts), vectors * lanes
        items = -(-n // columns) * -(-m // rows)
        narrow = vectors % panel != 0  # a narrower panel is slower, as if it were a vector more
        return -(-items // threads) * (rows * (columns + narrow * lanes) + PACKING * (rows + columns)), items

    total = -(-n // lanes)
    found = ((vectors, parts) for parts in range(1, min(threads, -(-m // 8)) + 1)
             for vectors in {-(-total // tiles) for tiles in range(1, min(2 * threads, total) + 1)})
    return min(found, key=longest)
