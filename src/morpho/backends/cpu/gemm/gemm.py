"""The matrix product: packed operands, register tiles, and a fused loop kernel on every finished tile.

The right operand comes packed (`pack.py`): panels of `width` columns, k running down each panel. An item of work is a
tile of rows x panels of the result. For it the rows of the left operand are packed by blocks of k, register tiles of up
to 8 rows x 3 vectors accumulate into a tile of scratch memory, and at the end the `epilogue`, an ordinary loop kernel
whose operand is that tile, writes the result: bias, activation, residual, conversion or a plain copy. Where it would be
a plain copy, sums of whole panels go to the result `straight` from the registers. Every output is one FMA chain with k
ascending, wherever the blocks of k, the tiles and the threads divide the work. Integers are exact: they wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import BITS, CACHE_LINE, Emitter, Value
from morpho.backends.cpu.gemm import neon_f32_microkernel
from morpho.backends.cpu.gemm.neon_bf16_gemv import BLOCK, add_block, fits
from morpho.base.dims import Size, upper
from morpho.base.dtypes import DType, bfloat16
from morpho.base.machine import Isa, machine
from morpho.cost.dispatch_thresholds import DEFAULT

BATCHES = ("inner", "middle", "upper")  # sizes of batch axes from the last one on; there is one more above them
OUTER = 3  # batch axes above the last one
A_OUTER, B_OUTER = (tuple(f"{operand}_outer{axis}" for axis in range(OUTER)) for operand in "ab")
NAMES = ("m", "n", "k", "a_batch", "a_m", "a_k", "b_batch", *BATCHES, *A_OUTER, *B_OUTER, "tile_rows", "tile_panels",
         "depth", "row_tiles", "column_tiles", "stride", "room", "sums_at", "scratch_at", "places", "product",
         "straight", "epilogue")
EPILOGUE = NAMES.index("epilogue")  # the address of the epilogue's function; its own numbers follow
PROLOGUE = len(NAMES)  # that of the prologue's, in kernels that have one (`prologue.py`)
UNROLL = 4
MOST_LANES = 16  # of short integers there would be more: code for panels of so many columns takes long to compile
TILE_ROWS, TILE_COLUMNS = 128, 768  # of one item: its sums and its packed rows share the second-level cache
ENOUGH_ROWS = 64  # of one item, for a panel that comes from memory: not halved further while columns can be
ITEMS_PER_THREAD = 2
EVEN_ANYWAY = 12  # tiles per thread from which one more does not matter


@dataclass(frozen=True, slots=True)
class Register:
    """The register tile of an instruction set: heights of row panels, and vectors of the sums' type side by side."""

    heights: tuple[int, ...]
    vectors: int
    lanes: int
    item: int = 4  # bytes of a sum, and at most of a value of the panel

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def asks_ahead(self) -> bool:
        """Whether panels are asked for: vectors as wide as a line of the cache use one up faster than it would come."""
        return self.lanes * self.item >= CACHE_LINE


def lanes_of(dtype: DType, isa: Isa) -> int:
    """Elements that are multiplied at once: AArch64 has no such instruction for integers of 64 bits."""
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
    return max(BLOCK, l1_bytes * 5 // 8 // (register.width * register.item) // BLOCK * BLOCK)


def blocks_of(k: int, register: Register, l1_bytes: int, l2_bytes: int) -> int:
    """Blocks of k, as few as can be, since sums are read again in each: a panel fits the first-level cache, and the
    rows of a tile half of the second."""
    line = TILE_ROWS * register.item
    most = min(depth_of_block(register, l1_bytes), l2_bytes // 2 // line)
    if register.asks_ahead:  # a panel comes from the second-level cache as fast as it is used
        most = max(most, l2_bytes // 4 // line)
    return max(1, _ceil(k, most))


def choose_tiling(m: Size, n: Size, k: Size, batch: Size, register: Register, threads: int, whole_rows: bool,
                  few_rows: int = DEFAULT.one_block_rows) -> Tiling:
    """Tiles that fit the caches and are enough for all threads. `whole_rows`: an item holds all columns of its rows;
    up to `few_rows` rows run over k in one block."""
    rows, columns, inner = upper(m), upper(n), upper(k)
    panels = max(1, _ceil(columns, register.width))
    # With few rows a panel is read from memory and used once: one block of k reads it in one stream.
    blocks = blocks_of(inner, register, machine().l1_bytes, machine().l2_bytes) if rows > few_rows else 1
    depth = _ceil(_ceil(max(inner, 1), blocks), BLOCK) * BLOCK
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
        tile_rows = evened(rows, tile_rows, _ceil(panels, tile_panels) * max(1, upper(batch)), threads)
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


@dataclass(frozen=True)
class GemmKernel:
    """C[b, m, n] = epilogue(sum over k of A[b, m, k] * B[b, k, n]) with B packed. Called over items; see `NAMES`.

    Buffers: A, packed B, then the epilogue's own, among which the product's is filled in here. `left` is how A lies:
    `rows` (k side by side), `columns` (m side by side) or `general`. Register tiles are as high as occur, since
    others would only take time to compile; all heights where that is not known.
    """

    dtype: DType
    left: str
    heights: tuple[int, ...] = field(default=(), kw_only=True)

    scratch_bytes_per_column = 0
    scratch_bytes = 0
    flops = 2
    tiles_of_result = True  # whether register tiles lie as the result does

    @property
    def stores(self) -> bool:
        """Whether register tiles can go straight to the result."""
        return self.tiles_of_result and self.dtype.compute is self.dtype

    def generate(self, isa: Isa, name: str) -> str:
        from morpho.backends.cpu.gemm.gemm_code import GemmCode

        return GemmCode(self, isa).module(name)


def sum_type(dtype: DType) -> str:
    """The LLVM type sums and packed rows have."""
    return scalars.register_type(dtype)


def places_of_batch(e: Emitter, batch: Value, v: Mapping[str, Value]) -> Callable[[str], Value]:
    """How far an operand of a batch lies from that of the first batch, by its name; batches have four axes, of which
    `BATCHES` are the sizes."""
    coordinates, rest = [], batch
    for name in BATCHES:
        above = e.instruction("udiv", rest, v[name])
        coordinates.append(rest - above * v[name])
        rest = above
    inner, *outer = *coordinates, rest

    def place(operand: str) -> Value:
        total = inner * v[f"{operand}_batch"]
        for axis, coordinate in zip(reversed(range(OUTER)), outer, strict=True):
            total = total + coordinate * v[f"{operand}_outer{axis}"]
        return total

    return place


class Function:
    """One internal function being written."""

    def __init__(self, name: str, arguments: str, lanes: int, isa: Isa) -> None:
        self.e = Emitter(lanes, isa.native_half)
        self.head = f"define internal void @{name}({arguments}) nounwind {{\nentry:\n"

    def number(self, name: str) -> Value:
        return self.e.argument(name, "i64", 1)

    def text(self, prefix: str = "") -> str:
        self.e.line("ret void")
        return self.head + prefix + self.e.text() + "\n}\n"


AHEAD = ", ptr %ahead, i64 %hop"  # what is asked for meanwhile, and how many bytes of it for a value of k
WALK = ", i64 %panels, i64 %panel_step"  # how many panels there are, and how many values from one to the next


class MicroKernel:
    """Sums of `height` rows x the vectors of one panel over a block of k: tile += rows * panel."""

    ARGUMENTS = "ptr %a, ptr %b, i64 %count, ptr %tile, i64 %stride, i1 %first"
    goal = "%tile", "%stride"  # where the sums go
    rows_are_packed = True  # as [k][height]

    def __init__(self, kernel: GemmKernel, height: int, register: Register, isa: Isa, name: str = "",
                 walks: bool = False) -> None:
        self.dtype, self.height, self.register, self.walks = kernel.dtype, height, register, walks
        arguments = self.ARGUMENTS + (AHEAD if register.asks_ahead else "") + (WALK if walks else "")
        self.panel, self.tile = "%b", "%tile"
        self.function = Function(name or f"micro{height}", arguments, register.lanes, isa)
        self.e = self.function.e
        self.element = sum_type(kernel.dtype)
        self.packed = scalars.memory_type(kernel.dtype)
        self.by_lane = isa.architecture == "aarch64" and register.lanes > 1  # an fma takes one lane of a vector there
        self.group, self.registers = 128 // BITS[self.element], isa.registers

    def write(self) -> str:
        if self.dtype is bfloat16:
            return self.write_pairs()
        count, done = self.function.number("%count"), self.e.constant(0, "i64", 1)
        sums = self.start()
        if self.has_written_order:
            done = count & -neon_f32_microkernel.STEPS
            sums = self.short_chain(neon_f32_microkernel.add_steps(self.e, sums, "%a", "%b", done), done, count, 1)
        else:
            sums = self.chain(sums, done, count, 1)
        self.store(sums, self.goal[0], self.function.number(self.goal[1]))
        return self.function.text()

    def write_pairs(self) -> str:
        """bfloat16: per block of 32 an even and an odd chain from zero, added, then added to the sums."""
        e, count = self.e, self.function.number("%count")
        zeros = [e.constant(0, self.element)] * (self.height * self.register.vectors)
        if self.walks:
            step = self.function.number("%panel_step")
            with e.loop(0, self.function.number("%panels")) as panels:
                self.panel = e.offset("%b", self.packed, panels.index * step)
                self.tile = e.offset("%tile", self.element, panels.index * self.register.width)
                self.store(self.pairs_in_registers(zeros), self.tile)
            return self.function.text()
        if self.holds_pairs:
            self.store(self.pairs_in_registers(zeros), self.tile)
            return self.function.text()
        prefix = f"  %even = alloca [{self.height * self.register.width} x {self.element}], align 64\n"
        self.store(self.start(), "%tile")
        with e.loop(0, count, BLOCK) as blocks:
            last = e.intrinsic("smin", blocks.index + BLOCK, count)
            even = self.chain(zeros, blocks.index, last, 2)
            self.store(even, "%even", self.register.width)
            odd = self.chain(zeros, blocks.index + 1, last, 2)
            both = [a + b for a, b in zip(self.load("%even", self.register.width), odd, strict=True)]
            self.store([a + b for a, b in zip(self.load("%tile"), both, strict=True)], "%tile")
        return self.function.text(prefix)

    def pairs_in_registers(self, zeros: list[Value]) -> list[Value]:
        """The sums, while both chains and the sums are in registers; one row alone by code in a written order."""
        e, count = self.e, self.function.number("%count")
        done, totals = e.constant(0, "i64", 1), self.start()
        if self.height == 1 and self.by_lane and fits(self.register.vectors, self.register.lanes):
            done = count & -BLOCK
            with e.loop(0, done, BLOCK, carried=totals) as written:
                panel = e.offset(self.panel, self.packed, written.index * self.register.width)
                written.next(*add_block(e, written.values, panel, e.offset("%a", self.element, written.index)))
            totals = written.values
        with e.loop(done, count, BLOCK, carried=totals) as blocks:
            last = e.intrinsic("smin", blocks.index + BLOCK, count)
            even, odd = self.two_chains(zeros, blocks.index, last)
            blocks.next(*[total + (a + b) for total, a, b in zip(blocks.values, even, odd, strict=True)])
        return blocks.values

    @property
    def holds_pairs(self) -> bool:
        """Whether the sums of both chains fit the registers, beside a line of the panel and values of the rows."""
        return (2 * self.height + 1) * self.register.vectors + 2 <= self.registers

    @property
    def has_written_order(self) -> bool:
        """Whether the instructions of this tile are written, not LLVM's choice."""
        return (self.by_lane and self.packed == self.element == "float" and self.rows_are_packed
                and neon_f32_microkernel.fits(self.height, self.register.vectors, self.register.lanes))

    # -- the tile ------------------------------------------------------------------------------------------------------
    def places(self, base: str, stride: Value | int | None = None) -> list[str]:
        e = self.e
        step = self.function.number("%stride") if stride is None else stride
        found = []
        for row in range(self.height):
            line = e.offset(base, self.element, step * row)
            found += [e.offset(line, self.element, v * self.register.lanes) for v in range(self.register.vectors)]
        return found

    def load(self, base: str, stride: int | None = None) -> list[Value]:
        return [self.e.load(place, self.element) for place in self.places(base, stride)]

    def store(self, sums: list[Value], base: str, stride: Value | int | None = None) -> None:
        for value, place in zip(sums, self.places(base, stride), strict=True):
            self.e.store(value, place)

    def start(self) -> list[Value]:
        """The sums so far: zero in the first block of k, else what the tile holds."""
        e = self.e
        again, go, before = e.fresh("again"), e.fresh("go"), e.block
        e.branch_if(e.argument("%first", "i1", 1), go, again)
        e.label(again)
        loaded = self.load(self.tile)
        e.branch(go)
        e.label(go)
        result = []
        for value in loaded:
            name = "%" + e.fresh("s")
            zero = e.constant(0, self.element)
            e.line(f"{name} = phi {value.type} [ {zero.name}, %{before} ], [ {value.name}, %{again} ]")
            result.append(Value(e, name, value.element, value.lanes))
        return result

    # -- the chain -----------------------------------------------------------------------------------------------------
    def chain(self, sums: list[Value], first: Value, last: Value, step: int) -> list[Value]:
        """sums + a[k] * b[k] for k = first, first + step, ... below last, in that order; unrolled, then the rest."""
        e, stride = self.e, UNROLL * step
        whole = first + ((last - first) & -stride)
        with e.loop(first, whole, stride, carried=sums) as loop:
            values, left = list(loop.values), self.left_values(loop.index, UNROLL * step)
            for u in range(0, stride, step):
                self.ask_ahead(loop.index + u)
                values = self.multiply_add(values, lambda row, u=u: left(u, row), loop.index + u)  # type: ignore[misc]
            loop.next(*values)
        return self.short_chain(loop.values, whole, last, step)

    def two_chains(self, zeros: list[Value], first: Value, last: Value) -> tuple[list[Value], list[Value]]:
        """The sums over k = first, first + 2, ... and those over first + 1, first + 3, ...: `chain` twice, at once."""
        e, stride = self.e, 2 * UNROLL
        whole = first + ((last - first) & -stride)
        with e.loop(first, whole, stride, carried=zeros + zeros) as loop:
            left = self.left_values(loop.index, stride)
            chains = [loop.values[:len(zeros)], loop.values[len(zeros):]]
            for u in range(stride):
                self.ask_ahead(loop.index + u)
                chains[u % 2] = self.multiply_add(chains[u % 2], lambda row, u=u: left(u, row),  # type: ignore[misc]
                                                  loop.index + u)
            loop.next(*chains[0], *chains[1])
        even = self.short_chain(loop.values[:len(zeros)], whole, last, 2)
        return even, self.short_chain(loop.values[len(zeros):], whole + 1, last, 2)

    def short_chain(self, sums: list[Value], first: Value, last: Value, step: int) -> list[Value]:
        """As `chain`, one value of k at a time."""
        with self.e.loop(first, last, step, carried=sums) as loop:
            left = self.left_values(loop.index, 1)
            loop.next(*self.multiply_add(list(loop.values), lambda row: left(0, row), loop.index))
        return loop.values

    def ask_ahead(self, k: Value) -> None:
        """Ask for what comes next, at every value of k: nothing is computed across it, or sums would be spilled."""
        if self.register.asks_ahead:
            self.e.ask_for(self.e.offset("%ahead", "i8", k * self.function.number("%hop")), 2)

    def multiply_add(self, sums: list[Value], left: Callable[[int], Value], k: Value) -> list[Value]:
        """One value of k: row by row, so that few of the left values are alive at a time."""
        e, register = self.e, self.register
        panel = e.offset(self.panel, self.packed, k * register.width)
        places = [e.offset(panel, self.packed, v * register.lanes) for v in range(register.vectors)]
        right = [scalars.from_memory(e, e.load(place, self.packed), self.dtype) for place in places]
        result = []
        for row in range(self.height):
            spread = left(row)
            totals = sums[row * register.vectors:(row + 1) * register.vectors]
            result += [chained(e, spread, b, total) for b, total in zip(right, totals, strict=True)]
        return result

    def left_values(self, k: Value, count: int) -> Callable[[int, int], Value]:
        """A function of (step below `count`, row) that writes the packed value at k + step spread over the lanes."""
        e, height = self.e, self.height
        base = e.offset("%a", self.element, k * height)
        vectors: dict[int, Value] = {}

        def one(step: int, row: int) -> Value:
            return e.splat(e.load(e.offset(base, self.element, step * height + row), self.element, 1))

        def lane(step: int, row: int) -> Value:
            number, lane = divmod(step * height + row, self.group)
            if number not in vectors:
                place = e.offset(base, self.element, number * self.group)
                vectors[number] = e.load(place, self.element, self.group)
            return self.lane(vectors[number], lane)

        return lane if self.by_lane and count * height >= self.group else one

    def lane(self, vector: Value, lane: int) -> Value:
        """One lane of a vector in all lanes."""
        return pick(self.e, vector, vector, [lane] * self.register.lanes)


class StoringMicroKernel(MicroKernel):
    """A `MicroKernel` whose sums go elsewhere than they come from: into the result, after the last block of k."""

    ARGUMENTS = MicroKernel.ARGUMENTS + ", ptr %goal, i64 %goal_stride"
    goal = "%goal", "%goal_stride"


def chained(e: Emitter, a: Value, b: Value, total: Value) -> Value:
    """The next link of a chain: one fma, or for integers a product and a sum, which wrap."""
    return e.fma(a, b, total) if total.is_float else total + a * b


def transpose(e: Emitter, lines: list[Value]) -> list[Value]:
    """Four vectors of four as their transpose, or of several fours side by side, each as its own; fewer lines give
    vectors of that many elements."""
    if len(lines) == 1:
        return [e.assign(f"extractelement {lines[0].type} {lines[0].name}, i64 {i}", lines[0].element, 1)
                for i in range(lines[0].lanes)]
    if len(lines) == 2:
        return [pick(e, lines[0], lines[1], [i, i + 4]) for i in range(4)]
    lanes = lines[0].lanes

    def mixed(a: Value, b: Value, chosen: tuple[int, ...]) -> Value:
        places = [first + i % 4 + (lanes if i >= 4 else 0) for first in range(0, lanes, 4) for i in chosen]
        return pick(e, a, b, places)

    low = [mixed(lines[i], lines[i + 1], (0, 4, 1, 5)) for i in (0, 2)]
    high = [mixed(lines[i], lines[i + 1], (2, 6, 3, 7)) for i in (0, 2)]
    return [mixed(*part, chosen) for part in (low, high) for chosen in ((0, 1, 4, 5), (2, 3, 6, 7))]


def pick(e: Emitter, a: Value, b: Value, chosen: Sequence[int]) -> Value:
    """Lanes of two vectors, by number."""
    mask = ", ".join(f"i32 {i}" for i in chosen)
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(chosen)} x i32> <{mask}>",
                    a.element, len(chosen))

