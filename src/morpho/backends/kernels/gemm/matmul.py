"""A product while it is lowered: its operands as matrices, its tiling, and the numbers of its pack and GEMM steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from morpho.backends.code.emit import CACHE_LINE
from morpho.backends.kernels.gemm.gemm import GEMM, OUTER, GemmKernel
from morpho.backends.kernels.gemm.gemv import column_tile
from morpho.backends.kernels.gemm.packing.pack import PACK, PackKernel
from morpho.backends.kernels.gemm.tiling import Register, Tiling, choose_tiling, register_tile
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, LoopCall, LoopKernel
from morpho.base.dims import Shape, Size, product, upper
from morpho.base.dtypes import DType
from morpho.base.shapes import contiguous_strides
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DEFAULT, DispatchThresholds
from morpho.program.co_schedule import TILES_PER_THREAD
from morpho.program.view import View

KEPT_SHARE = 3 / 8  # of L2 for packed rows kept over tiles of columns: +1 to 3 % on AVX-512 (notes/gemm.md, 2026-11-15)
FEW_BATCH_ROWS = 16  # rows of a batch up to which batches with one B are copied into one product, to read B once
PRODUCT = -2  # the slot of the scratch tile, which the kernel itself fills in


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of a product: where it lies, and its strides along batches, its own two axes, and outer batches, where
    those of both operands together have several axes; `counts` are then the sizes of these, outermost first."""

    view: View
    batch: Size
    rows: Size
    columns: Size
    outer: tuple[Size, ...] = (0,) * OUTER
    counts: tuple[Size, ...] | None = None

    @property
    def transposed(self) -> Matrix:
        return replace(self, rows=self.columns, columns=self.rows)


def layout(first: Size, second: Size, names: tuple[str, str]) -> str:
    """How a matrix lies: the name of the axis that runs side by side, or `general`."""
    if second == 1:
        return names[1]
    return names[0] if first == 1 else "general"


def product_sizes(batch: Size, m: Size, k: Size, n: Size) -> tuple[Size, ...]:
    """The sizes of a product as people read them: how many, if several, then rows, what is summed, columns.

    >>> product_sizes(1, 37, 96, 70), product_sizes(8, 2, 3, 4)
    ((37, 96, 70), (8, 2, 3, 4))
    """
    return (m, k, n) if batch == 1 else (batch, m, k, n)


class Matmul:
    """One product being lowered: sizes after the choice of sides, then its two steps."""

    record = GEMM  # its numbers by name
    sides_change = True  # whether a column may be computed as a row
    packs_right = False  # whether the kernel packs the right operand itself
    before: LoopCall | None = None  # what computes rows of the left operand, where that is part of the kernel
    label = ""  # what it computes
    choice = ""  # which way of computing it was taken, and which others there were
    is_gemv = False  # whether it reads the right operand unpacked
    direct_store = False  # whether register tiles are written as they are
    narrows = False  # whether few columns have a register tile of as many vectors as they fill
    on_matrix_unit = False
    tunes_register = True  # whether its kernel is told which register tile it has

    def __init__(self, dtype: DType, shape: Shape, k: Size, a: Matrix, b: Matrix, whole_rows: bool,
                 target: Target, thresholds: DispatchThresholds = DEFAULT) -> None:
        batch, m, n = product(shape[:-2]), shape[-2], shape[-1]
        elements = upper(batch) * (upper(m) * upper(k) + upper(k) * upper(n) + upper(m) * upper(n))
        sharers = thresholds.sharers(upper(batch) * upper(m) * upper(n) * upper(k), elements * dtype.itemsize,
                                     self.on_matrix_unit)
        target = replace(target, threads=min(target.threads, sharers))  # it is cut for as many as have work
        self.dtype, self.k, self.target, self.thresholds = dtype, k, target, thresholds
        self.register = self.register_of(dtype)
        if self.narrows and isinstance(n, int) and n > 1 and not thresholds.choice.vectors:
            self.register = self.register.narrowed(n)
        # A column is computed as a row: more than one lane has work.
        self.swapped = self.sides_change and n == 1 and m != 1
        if self.swapped:
            m, n, a, b = n, m, b.transposed, a.transposed
        elif a.counts is None and b.batch == 0 and a.batch == m * a.rows:  # one matrix for all: rows are one matrix
            batch, m = 1, batch * m
        self.batch, self.m, self.n, self.a, self.b = batch, m, n, a, b
        self.tiling: Tiling = self.tiled(choose_tiling(m, n, k, batch, self.register, target, whole_rows,
                                                       thresholds.single_k_block_rows, thresholds.choice))
        self.steps = rows, columns = (1, self.tiling.stride) if self.swapped else (self.tiling.stride, 1)
        outer = tuple(s * shape[-2] * self.tiling.stride for s in contiguous_strides(shape[:-2]))
        if self.swapped:
            outer = tuple(s * self.tiling.stride for s in contiguous_strides(shape[:-2]))
        self.tile = View(PRODUCT, 0, shape, (*outer, rows, columns), dtype.compute)

    @property
    def threads(self) -> int:
        return self.target.threads

    @property
    def sizes(self) -> tuple[Size, ...]:
        m, n = (self.n, self.m) if self.swapped else (self.m, self.n)
        return product_sizes(self.batch, m, self.k, n)

    def register_of(self, dtype: DType) -> Register:
        """Rows and columns that are summed in registers."""
        found = register_tile(dtype, self.target.isa)
        return found.tuned(self.thresholds.choice) if self.tunes_register else found

    @property
    def micro(self) -> tuple[int, str] | tuple[()]:
        """Vectors of the register tile and prefetch, where they are not those of the instruction set."""
        choice = self.thresholds.choice
        chosen = self.narrows and self.register.vectors != register_tile(self.dtype, self.target.isa).vectors
        chosen = chosen or (self.tunes_register and bool(choice.vectors or choice.prefetch))
        return (self.register.vectors, choice.prefetch) if chosen else ()

    def tiled(self, tiling: Tiling) -> Tiling:
        """The tiles that are taken, given those that suit most."""
        return tiling

    def seen(self, shape: Shape, columns: int) -> View:
        """The tile with its rows and columns divided into other axes, the last `columns` of which are columns."""
        rows = tuple(s * self.steps[0] for s in contiguous_strides(shape[:-columns]))
        across = tuple(s * self.steps[1] for s in contiguous_strides(shape[-columns:]))
        return View(PRODUCT, 0, shape, (*rows, *across), self.dtype.compute)

    def takes_direct_store(self, target: View) -> bool:
        """Whether a result that is the sums themselves may be written tile by tile."""
        return self.kernel().stores and not self.swapped and target.is_contiguous and target.dtype is self.dtype

    @property
    def has_few_rows(self) -> bool:
        """Whether it can be a GEMV: few rows, known sizes, and unit stride along k or n of B."""
        sizes = (self.batch, self.m, self.n, self.k)
        plain = self.dtype.compute is self.dtype and self.b.view.dtype is self.dtype
        return (self.sides_change and plain and all(isinstance(size, int) for size in sizes)
                and self.k > 1 and 1 in (self.b.rows, self.b.columns)
                and self.thresholds.reads_unpacked(self.m, self.n * self.k * self.dtype.itemsize,  # type: ignore[arg-type]
                                                 self.b.columns != 1))

    @property
    def direct_tiles(self) -> tuple[int, int]:
        """Tiles of columns of a product that packs nothing, and the columns of one."""
        assert isinstance(self.n, int)
        alone = self.batch >= self.threads or self.batch * self.m * self.n * self.k < self.thresholds.parallel_macs
        tile = column_tile(self.n, self.dtype.itemsize, 1 if alone else self.threads)
        if self.thresholds.choice.tile_columns:
            tile = max(16, min(-(-self.n // 16), self.thresholds.choice.tile_columns // 16) * 16)
        return -(-self.n // tile), tile

    # -- packing -------------------------------------------------------------------------------------------------------
    @property
    def panels(self) -> int:
        return -(-max(upper(self.n), 1) // self.register.width)

    @property
    def batches(self) -> tuple[Size, ...]:
        """Sizes of the batch axes from the last one on, which has all where it is alone."""
        return (self.batch, *[1] * (OUTER - 1)) if self.b.counts is None else self.b.counts[:0:-1]

    @property
    def different(self) -> tuple[Size, ...]:
        """How many right operands there are along each batch axis: one, where all batches along it share theirs."""
        counts = self.b.counts or (*[1] * OUTER, self.batch)
        return tuple(count if stride != 0 else 1
                     for count, stride in zip(counts, (*self.b.outer, self.b.batch), strict=True))

    @property
    def right_batches(self) -> Size:
        """How many right operands there are."""
        return product(self.different)

    @property
    def packed_shape(self) -> Shape:
        return (self.right_batches, self.panels, self.k, self.register.width)

    def pack_kernel(self) -> PackKernel:
        return PackKernel(self.dtype, layout(self.b.rows, self.b.columns, ("rows", "columns")), self.register.width)

    def pack_values(self) -> tuple[Size, ...]:
        """The numbers of a packing kernel."""
        b = self.b
        return PACK.values(n=self.n, k=self.k, b_batch=b.batch, b_k=b.rows, b_n=b.columns, panels=self.packed_shape[1],
                           target_batch=self.packed_batch, batches=self.different[:0:-1], b_outer=b.outer)

    @property
    def packed_batch(self) -> Size:
        """Elements of one batch after packing."""
        return product(self.packed_shape[1:])

    @property
    def packed_strides(self) -> tuple[Size, ...]:
        """Of the right operand after packing, along all batch axes."""
        steps = contiguous_strides(self.different)
        return tuple(self.packed_batch * step if stride != 0 else 0
                     for step, stride in zip(steps, (*self.b.outer, self.b.batch), strict=True))

    # -- multiplying ---------------------------------------------------------------------------------------------------
    def kernel(self) -> GemmKernel:
        # What is not so simple shares one kernel.
        heights: tuple[int, ...] = self.heights if len(self.heights) == 1 else ()
        if self.tunes_register and self.thresholds.choice.height:
            heights = self.heights or self.register.heights
        return GemmKernel(self.dtype, layout(self.a.rows, self.a.columns, ("columns", "rows")), heights=heights,
                          micro=self.micro)

    @property
    def heights(self) -> tuple[int, ...]:
        """Heights of the register tiles in all tiles of rows and in the last; () if unknown."""
        if not isinstance(self.m, int):
            return ()
        rows = self.tiling.tile_rows, self.m - (self.tiling.row_tiles - 1) * self.tiling.tile_rows
        highest = max((height for height in self.register.heights if height <= max(rows)), default=1)
        return tuple(height for height in self.register.heights
                     if height == highest or (height < highest and any(count & height for count in rows)))

    @property
    def packed_bytes(self) -> int:
        """Bytes of a tile's packed rows at one block of k."""
        return rounded(self.tiling.tile_rows * self.tiling.depth * self.dtype.compute.itemsize)

    @property
    def packed_places(self) -> int:
        """How many of them are all the rows that items of work next to each other have in common."""
        return -(-max(upper(self.k), 1) // self.tiling.depth)

    @property
    def room(self) -> int:
        """Bytes from packed rows to those of the next block of k, all of which stay for the tiles of columns that
        follow. 0 where none do or where that is too much: every block takes the place of the one before."""
        places = self.packed_places
        # Threads take items one by one, unless they are very many: what follows is another thread's.
        runs = self.threads == 1 or upper(self.items) > self.threads * TILES_PER_THREAD
        follow = self.tiling.column_tiles > 1 and runs
        kept = places == 1 or (follow and places * self.packed_bytes <= KEPT_SHARE * self.target.l2_bytes)
        return self.packed_bytes if kept else 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of all packed rows that a thread holds at a time."""
        return self.packed_bytes * (self.packed_places if self.room else 1)

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        """Where the sums and the epilogue's scratch begin behind the packed rows, and the bytes of all."""
        size, tiling = self.dtype.compute.itemsize, self.tiling
        sums_at = self.kept_bytes
        scratch_at = sums_at + rounded((tiling.tile_rows + 8) * tiling.stride * size)
        return sums_at, scratch_at, scratch_at + loop_scratch(epilogue, max(upper(self.n), 1))

    def values(self, epilogue: LoopCall) -> tuple[Size, ...]:
        """The kernel's numbers, then the epilogue's own."""
        return (*self.record.values(**self.numbers(epilogue)), *epilogue.values)

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        """The kernel's numbers by the names of its record."""
        t, (sums_at, scratch_at, _) = self.tiling, self.scratch(epilogue.kernel)
        index = next(i for i, place in enumerate(epilogue.views) if place is not None and place.slot == PRODUCT)
        a, (*outer, along) = self.a, self.packed_strides
        return {"m": self.m, "n": self.n, "k": self.k, "a_batch": a.batch, "a_m": a.rows, "a_k": a.columns,
                "b_batch": along, "batches": self.batches, "a_outer": a.outer, "b_outer": outer,
                "tile_rows": t.tile_rows, "tile_panels": t.tile_panels, "depth": t.depth, "row_tiles": t.row_tiles,
                "column_tiles": t.column_tiles, "stride": t.stride, "room": self.room, "sums_at": sums_at,
                "scratch_at": scratch_at, "operands": len(epilogue.views), "tile_operand": index,
                "direct_store": int(self.direct_store), "epilogue": 0}

    @property
    def items(self) -> Size:
        return self.batch * self.tiling.items

    @property
    def work_per_item(self) -> Size:
        return self.k * (self.tiling.tile_rows * self.tiling.tile_panels * self.register.width)


class PackedMatmul(Matmul):
    """A product of plain matrices on a packed B."""

    narrows = True


class GemvMatmul(Matmul):
    """GEMV on an unpacked B: see `gemv.py`."""

    is_gemv = True


def follows(lowered: LoopCall) -> bool:
    """Whether a loop kernel can run on the tiles of a product: it reads them once, in their own order."""
    reads = [place for place in lowered.views if place is not None and place.slot == PRODUCT]
    return len(reads) == 1 and not lowered.kernel.transposed


def as_matrices(places: Sequence[View], copies: Sequence[Callable[[View], View]]) -> list[Matrix]:
    """The operands of a product, whose batches together have four axes at most; one that would need more is copied.

    So are few rows of batches with one right matrix: copied, they are many rows of one product, which reads it once.
    """
    places = list(places)
    if len(places) == 2 and _is_common(places[1]) and upper(places[0].shape[-2]) <= FEW_BATCH_ROWS \
            and len(batch_axes(places[0])) > 1:
        places[0] = copies[0](places[0])
    while len(axes := batch_axes(*places)) > 1 + OUTER:
        worst = max(range(len(places)), key=lambda i: len(batch_axes(places[i])))
        places[worst] = copies[worst](places[worst])
    several = len(axes) > 1
    axes = [*((1, *[0] * len(places)),) * (1 + OUTER - len(axes)), *axes]
    counts = tuple(axis[0] for axis in axes) if several else None
    strides = [[axis[1 + i] for axis in axes] for i in range(len(places))]
    return [Matrix(place, steps[-1], place.strides[-2], place.strides[-1], tuple(steps[:-1]), counts)
            for place, steps in zip(places, strides, strict=True)]


def _is_common(place: View) -> bool:
    """Whether an operand is the same for all batches."""
    return all(stride == 0 for stride in place.strides[:-2])


def batch_axes(*places: View) -> list[tuple[Size, ...]]:
    """Batch axes of operands, as the size and each one's stride; neighbours that are one axis in all of them are
    joined. All have the axes of the first, or none.

    >>> from morpho.base.dtypes import float32
    >>> a = Place(0, 0, (5, 2, 4, 8), (64, 32, 8, 1), float32)
    >>> batch_axes(a, Place(1, 0, (5, 2, 8, 3), (0, 24, 3, 1), float32))
    [(5, 64, 0), (2, 32, 24)]
    """
    found: list[tuple[Size, ...]] = []
    rank = len(places[0].shape) - 2
    strides = zip(*(place.strides[:-2] or (0,) * rank for place in places), strict=True)
    for size, steps in reversed([*zip(places[0].shape[:-2], strides, strict=True)]):
        if size == 1:
            continue
        last = found[0] if found else None
        if last is not None and all(step == inner * last[0] for step, inner in zip(steps, last[1:], strict=True)):
            found[0] = (size * last[0], *last[1:])
        else:
            found.insert(0, (size, *steps))
    return found


def loop_scratch(kernel: LoopKernel, columns: int) -> int:
    """Bytes of scratch that a loop kernel needs for tiles of so many columns."""
    whole = -(-columns // TREE_LANES) * TREE_LANES
    return rounded(kernel.scratch_bytes + whole * kernel.scratch_bytes_per_column)


def rounded(count: int) -> int:
    """Bytes up to the next line of the cache."""
    return -(-count // CACHE_LINE) * CACHE_LINE
