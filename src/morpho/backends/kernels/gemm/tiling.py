"""How a product is blocked: the register tile of an instruction set, and tiles of C, which are the work items."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from morpho.backends.code.emit import CACHE_LINE
from morpho.base.dims import Size, upper
from morpho.base.dtypes import DType
from morpho.base.machine import Isa
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.cost.tuned_choices import PLAIN, Choice

K_BLOCK = 32  # values of k in a block of bfloat16 sums (docs/numerics.md); blocks of k are multiples of it
MOST_LANES = 16  # elements; short integers have more a vector, but micro-kernels that wide compile for too long
# Rows and columns of a work item: its sums and packed rows share the L2 cache. With a prologue, items of 1024 columns
# let a late thread hold up the others (0.8x with 8 threads; notes/gemm.md, 2026-11-16).
TILE_ROWS, TILE_COLUMNS = 128, 768
ENOUGH_ROWS = 64  # rows of an item that amortise a panel read from memory: 32 cost 1.2 % (notes/gemm.md, 2026-11-15)
ITEMS_PER_THREAD = 2  # so that a thread that is late can be helped
EVEN_ANYWAY = 12  # items per thread from which one more does not matter; 9 for 2 threads cost 6 % (notes/gemm.md)


@dataclass(frozen=True, slots=True)
class Register:
    """The register tile of an instruction set: heights of row panels, and vectors of the sums' type side by side."""

    heights: tuple[int, ...]
    vectors: int
    lanes: int
    item: int = 4  # bytes of a sum, and at most of a value of the panel
    prefetch: str = field(default="", repr=False)  # "on", "off", or how many panels ahead

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def prefetches(self) -> bool:
        """Whether the next panel is prefetched: vectors as wide as a cache line consume lines faster than the hardware
        prefetcher brings them. One line per value of k: 95 to 97 % of the FMA peak on AVX-512, where a burst before
        every tile gave 91 % (notes/gemm.md, 2026-11-16)."""
        return self.prefetch != "off" if self.prefetch else self.lanes * self.item >= CACHE_LINE

    @property
    def panels_ahead(self) -> int:
        """The prefetch distance, in panels."""
        return int(self.prefetch) if self.prefetch.isdigit() else 1

    def narrowed(self, columns: int) -> Register:
        """This tile for few columns: no vector without one, so that whole panels are stored as they are.

        >>> Register((8, 4, 2, 1), 3, 8).narrowed(16).width, Register((8, 4, 2, 1), 3, 8).narrowed(17).width
        (16, 24)
        """
        return replace(self, vectors=min(self.vectors, -(-columns // self.lanes)))

    def tuned(self, choice: Choice) -> Register:
        """This tile as a choice has it: lower, or of other vectors. Every element of C stays one chain over k."""
        heights = tuple(height for height in self.heights if height <= (choice.height or self.heights[0]))
        return replace(self, heights=heights or self.heights[-1:], vectors=choice.vectors or self.vectors,
                       prefetch=choice.prefetch)


def lanes_of(dtype: DType, isa: Isa) -> int:
    """Elements of a vector multiply: AArch64 has none for 64-bit integers."""
    alone = isa.architecture == "aarch64" and dtype.itemsize == 8 and not dtype.is_float
    return 1 if alone else max(1, isa.vector_bits // 8 // dtype.compute.itemsize)


def register_tile(dtype: DType, isa: Isa) -> Register:
    """8 rows x 3 vectors fill 24 of 32 registers, 4 x 3 fill 12 of 16."""
    item = dtype.compute.itemsize
    lanes = min(MOST_LANES, lanes_of(dtype, isa))
    if lanes == 1:
        return Register((4, 2, 1), 4, 1, item)
    return Register((4, 2, 1) if isa.registers < 32 else (8, 4, 2, 1), 3, lanes, item)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is divided into items; any division gives the same bits."""

    tile_rows: int
    tile_panels: int
    depth: int
    row_tiles: int
    column_tiles: int
    stride: int  # of a row of the scratch tile, in elements

    @property
    def items(self) -> int:
        return self.row_tiles * self.column_tiles


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def depth_of_block(register: Register, l1_bytes: int) -> int:
    """Values of k per block: a panel of the right operand stays in the first-level cache, with room for rows."""
    return max(K_BLOCK, l1_bytes * 5 // 8 // (register.width * register.item) // K_BLOCK * K_BLOCK)


def blocks_of(k: int, register: Register, l1_bytes: int, l2_bytes: int) -> int:
    """Blocks of k, as few as can be, since sums are read again in each: a panel fits the first-level cache, and the
    rows of a tile half of the second."""
    line = TILE_ROWS * register.item
    most = min(depth_of_block(register, l1_bytes), l2_bytes // 2 // line)
    if register.prefetches:  # a panel comes from the second-level cache as fast as it is used
        most = max(most, l2_bytes // 4 // line)
    return max(1, _ceil(k, most))


def choose_tiling(m: Size, n: Size, k: Size, batch: Size, register: Register, target: Target, whole_rows: bool,
                  few_rows: int = DEFAULT.single_k_block_rows, choice: Choice = PLAIN) -> Tiling:
    """Tiles that fit the caches and are enough for all threads. `whole_rows`: an item holds all columns of its rows;
    up to `few_rows` rows run over k in one block. A `choice` of tiles stands above all that."""
    rows, columns, inner, threads = upper(m), upper(n), upper(k), target.threads
    panels = max(1, _ceil(columns, register.width))
    # With few rows a panel is read from memory and used once: one block of k reads it in one stream.
    blocks = blocks_of(inner, register, target.l1_bytes, target.l2_bytes) if rows > few_rows else 1
    depth = _ceil(_ceil(max(inner, 1), blocks), K_BLOCK) * K_BLOCK
    wanted = max(1, _ceil(threads * ITEMS_PER_THREAD, max(1, upper(batch)))) if threads > 1 else 1
    tile_rows = min(rows, TILE_ROWS)
    if whole_rows:
        tile_panels = panels
        least = min(ENOUGH_ROWS, _ceil(rows, threads))
        tile_rows = min(tile_rows, max(8, _ceil(max(_ceil(rows, wanted), least), 8) * 8))
    elif rows <= few_rows:
        # One item each: every other one would wait for its first lines of memory, and pack the rows again.
        tile_panels = max(4, _ceil(panels, _ceil(wanted, ITEMS_PER_THREAD)))
    else:
        tile_panels = _equal(panels, max(1, TILE_COLUMNS // register.width))
        # Rows are divided first: every item packs its own, so that fewer columns mean more packing and fewer rows less.
        while tile_rows > ENOUGH_ROWS and _ceil(rows, tile_rows) * _ceil(panels, tile_panels) < wanted:
            tile_rows = _ceil(_ceil(tile_rows, 2), 8) * 8
        while tile_panels > 8 and _ceil(rows, tile_rows) * _ceil(panels, tile_panels) < wanted:
            tile_panels = _ceil(tile_panels, 2)
        while tile_rows > 32 and _ceil(rows, tile_rows) * _ceil(panels, tile_panels) < wanted:
            tile_rows = _ceil(_ceil(tile_rows, 2), 8) * 8
        while tile_panels > 2 and _ceil(rows, tile_rows) * _ceil(panels, tile_panels) * max(1, upper(batch)) < threads:
            tile_panels = _ceil(tile_panels, 2)  # rather rows packed twice than a thread without work
        tile_rows = evened(rows, tile_rows, _ceil(panels, tile_panels) * max(1, upper(batch)), threads)
    if choice.tile_rows:
        tile_rows = min(rows, _ceil(choice.tile_rows, 8) * 8)
    if choice.tile_columns and not whole_rows:
        tile_panels = max(1, choice.tile_columns // register.width)
    if choice.k_block:
        depth = min(_ceil(max(inner, 1), K_BLOCK), _ceil(choice.k_block, K_BLOCK)) * K_BLOCK
    tile_panels = min(tile_panels, panels)
    stride = tile_panels * register.width
    stride += register.lanes if stride == n else 0  # rows and columns of the tile must not look like one axis
    return Tiling(max(tile_rows, 1), tile_panels, depth, max(1, _ceil(rows, max(tile_rows, 1))),
                  _ceil(panels, tile_panels), stride)


def _equal(count: int, most: int) -> int:
    """The size of equal parts of at most `most`: few parts of unequal size keep one thread longer than the others."""
    return _ceil(count, _ceil(count, most))


def evened(rows: int, tile_rows: int, others: int, threads: int) -> int:
    """Tiles a little lower, where few of them would leave one thread with more rows than the others."""
    if threads == 1 or _ceil(rows, max(tile_rows, 1)) * others >= EVEN_ANYWAY * threads:
        return tile_rows

    def longest(height: int) -> int:
        """Rows that one thread has at most."""
        return _ceil(_ceil(rows, height) * others, threads) * height

    return min(range(tile_rows, max(32, tile_rows // 2) - 1, -8), key=lambda height: (longest(height), -height),
               default=tile_rows)
