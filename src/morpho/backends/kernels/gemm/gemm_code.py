"""The macro-kernel of a `GemmKernel`: work items, packing of rows, micro-kernels over panels, and the epilogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.gemm.gemm import EPILOGUE, GEMM, GemmKernel
from morpho.backends.kernels.gemm.microkernel import MicroKernel, StoringMicroKernel, places_of_batch, sum_type
from morpho.backends.kernels.gemm.neon.bf16_gemv import fits
from morpho.backends.kernels.gemm.packing.row_packers import ColumnPacker, RowPacker
from morpho.backends.kernels.gemm.tiling import register_tile
from morpho.base.dtypes import bfloat16
from morpho.base.machine import Isa

SHARE_BITS = 16  # fraction bits of the prefetch distance that a row of the tile advances


def generate(kernel: GemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `GemmKernel`."""
    return GemmCode(kernel, isa).module(name)


class GemmCode:
    """State of the generator of gemm kernels."""

    record = GEMM  # the kernel's numbers; those of the epilogue follow
    values_per_step = 1  # values of k that a register tile takes at once
    batch_place: Callable[[str], Value]  # of the item being written
    next_panel: str  # what micro-kernels prefetch
    share: Value

    def __init__(self, kernel: GemmKernel, isa: Isa) -> None:
        self.kernel, self.isa = kernel, isa
        self.register = register_tile(kernel.dtype, isa)
        if kernel.heights:
            self.register = replace(self.register, heights=kernel.heights)
        if kernel.micro:
            self.register = replace(self.register, vectors=kernel.micro[0], prefetch=kernel.micro[1])
        self.e = Emitter(1, isa.native_half)
        self.element = sum_type(kernel.dtype)
        self.bytes = BITS[self.element] // 8
        self.memory = scalars.memory_type(kernel.dtype)
        self.stores = kernel.stores
        self.micro_kernel = StoringMicroKernel if self.stores else MicroKernel

    def module(self, name: str) -> str:
        parts = self.parts()
        texts = [part.write() for part in parts]
        declarations = set(self.e.declarations).union(*(part.e.declarations for part in parts))
        body = self.body()
        wide = '"prefer-vector-width"="512"' if self.isa.vector_bits >= 512 else ""
        if wide:
            texts = [text.replace(") nounwind {", f") nounwind {wide} {{") for text in texts]
        declarations |= self.e.declarations
        main = defined(f"i32 @{name}({SIGNATURE}) nounwind", body)
        return "".join(texts) + main + "\n".join(sorted(declarations)) + "\n"

    def parts(self) -> list[Any]:
        """The internal functions, each with `write()`."""
        micro = [self.micro_kernel(self.kernel, h, self.register, self.isa, walks=self.walks)
                 for h in self.register.heights]
        return [*micro, *self.row_packers()]

    def row_packers(self) -> list[Any]:
        heights = self.register.heights
        across = [ColumnPacker(self.kernel, heights[0], self.isa)] if self.packs_columns else []
        return [*(self.packer(h) for h in heights), *across]

    @property
    def walks(self) -> bool:
        """Whether one call multiplies a row by all panels: in a written order, calls were 1 % of its time."""
        kernel, register = self.kernel, self.register
        return (type(kernel) is GemmKernel and kernel.dtype is bfloat16 and kernel.heights == (1,)
                and self.isa.architecture == "aarch64" and fits(register.vectors, register.lanes, self.isa))

    @property
    def packs_columns(self) -> bool:
        """Whether rows that lie side by side are packed panel beside panel."""
        return self.kernel.left == "columns" and self.isa.vector_bits > 0

    def packer(self, height: int) -> RowPacker:
        return RowPacker(self.kernel, height, self.isa)

    def body(self) -> str:
        e = self.e
        self.a, self.b = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        self.v = self.record.load(e)
        self.status, self.last = "%status", "%last"
        self.begin()
        e.line(f"%places = alloca ptr, i64 {self.v['operands'].name}, align 8")
        e.line("%status = alloca i32, align 4")
        e.line("%last = alloca i64, align 8")
        e.store(e.constant(0, "i32", 1), self.status)
        e.store(e.constant(-1, "i64", 1), self.last)
        self.copy_places("%places", e.constant(2, "i64", 1), self.v["operands"])
        self.sums = e.offset("%scratch", "i8", self.v["sums_at"])
        self.panels = e.instruction("udiv", self.v["n"] + (self.register.width - 1),
                                    e.constant(self.register.width, "i64", 1))
        if self.stores:  # a copy has two operands, the sums and the result
            self.result = e.load_pointer("%buffers", 3)
            self.direct_store = e.icmp("ne", self.v["direct_store"], 0)
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as items:
            self.item(items.index)
        self.end()
        e.line(f"ret i32 {e.load(self.status, 'i32', 1).name}")
        return e.text()

    def copy_places(self, target: str, first: Value, count: Value) -> None:
        """Addresses of a loop kernel's operands, among which one is filled in here: the list itself is shared."""
        e = self.e
        with e.loop(0, count) as loop:
            given = e.load_pointer(e.offset("%buffers", "ptr", first + loop.index))
            e.line(f"store ptr {given}, ptr {e.offset(target, 'ptr', loop.index)}, align 8")

    def begin(self) -> None:
        """Before the first item."""

    def end(self) -> None:
        """After the last one."""

    def item(self, index: Value) -> None:
        """One tile: decode where it lies, sum over the blocks of k, and hand it to the epilogue."""
        e, v = self.e, self.v
        upper = e.instruction("udiv", index, v["column_tiles"])
        column = index - upper * v["column_tiles"]
        batch = e.instruction("udiv", upper, v["row_tiles"])
        row = upper - batch * v["row_tiles"]
        self.batch_place = places_of_batch(e, batch, v)
        first, panel = row * v["tile_rows"], column * v["tile_panels"]
        last = e.intrinsic("smin", first + v["tile_rows"], v["m"])
        end = self.last_panel(e.intrinsic("smin", panel + v["tile_panels"], self.panels), (first, last))
        there = e.icmp("slt", first, last) & e.icmp("slt", panel, end)  # dynamic sizes may have fewer tiles
        with e.when(there):
            blocks = e.instruction("udiv", v["k"] + v["depth"] - 1, v["depth"])
            blocks = e.intrinsic("smax", blocks, e.constant(1, "i64", 1))  # without k the sums are zero
            packed = self.packed(upper)
            with e.loop(0, blocks) as loop:
                self.block(batch, (first, last), (panel, end), loop.index, loop.index, packed)
            self.finish(batch, (first, last), (panel, end))

    def last_panel(self, end: Value, rows: tuple[Value, Value]) -> Value:
        """Where the panels of a tile of these rows end."""
        return end

    def packed(self, rows: Value) -> Value:
        """Whether rows of this number are packed already: neighbouring items share theirs, where there is room for
        all of k. From now on they are those that are."""
        e = self.e
        found = e.icmp("eq", e.load(self.last, "i64", 1), rows) & e.icmp("ne", self.v["room"], 0)
        e.store(rows, self.last)
        return found

    def block(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value], number: Value, place: Value,
              packed: Value) -> None:
        """Add one block of k to the sums of a tile; its packed rows have a place among those that are kept."""
        e, v = self.e, self.v
        start = number * v["depth"]
        depth = e.intrinsic("smin", v["depth"], v["k"] - start)
        self.rows_at = e.offset("%scratch", "i8", place * v["room"])
        with e.when(packed ^ True):
            self.before_packing(rows, start, depth)
            self.pack_rows(self.source(batch, rows, start), rows, depth)
        self.over_panels(batch, rows, panels, (start, depth), e.icmp("eq", number, 0))

    def over_panels(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value],
                    block: tuple[Value, Value], first: Value) -> None:
        """Multiply the packed rows by the panels of a tile; `block` is where k starts, and how many values."""
        if self.walks:
            self.walk_panels(batch, panels, block, first)
            return
        with self.e.loop(panels[0], panels[1]) as loop:
            number = loop.index - panels[0]
            goal = self.goal(batch, rows, self.column(loop.index), number, block) if self.stores else None
            self.one_panel(rows, self.panel(batch, loop.index, *block), number, block[1], first, goal)

    def walk_panels(self, batch: Value, panels: tuple[Value, Value], block: tuple[Value, Value], first: Value) -> None:
        """Multiply one packed row by all panels of a tile."""
        panel, step = self.panel(batch, panels[0], *block), self.v["k"] * self.register.width
        count, stride = panels[1] - panels[0], self.v["stride"]
        self.e.line(f"call void @{self.micro(1)}(ptr {self.rows_at}, ptr {panel}, i64 {block[1].name}, "
                    f"ptr {self.sums}, i64 {stride.name}, i1 {first.name}, i64 {count.name}, i64 {step.name})")

    def column(self, panel: Value) -> Value:
        """The first column of a panel."""
        return panel * self.register.width

    def goal(self, batch: Value, rows: tuple[Value, Value], column: Value, number: Value,
             block: tuple[Value, Value]) -> tuple[str, Value]:
        """Where the sums of a panel go, and how far rows are apart there: into the result after the last block of k,
        if it takes them as they are and has all columns of the panel; else to the panel's place in the tile."""
        e, v, width = self.e, self.v, self.register.width
        done = self.direct_store & e.icmp("eq", block[0] + block[1], v["k"]) & e.icmp("sle", column + width, v["n"])
        place = e.offset(self.result, self.element, (batch * v["m"] + rows[0]) * v["n"] + column)
        tile = e.offset(self.sums, self.element, number * width)
        chosen = "%" + e.fresh("goal")
        e.line(f"{chosen} = select i1 {done.name}, ptr {place}, ptr {tile}")
        return chosen, e.select(done, v["n"], v["stride"])

    def one_panel(self, rows: tuple[Value, Value], panel: str, number: Value, depth: Value, first: Value,
                  goal: tuple[str, Value] | None = None) -> None:
        """Multiply the packed rows by one panel, that with this number in its tile."""
        e, width = self.e, self.register.width
        target = e.offset(self.sums, self.element, number * width)
        if self.stores:
            self.goal_of_panel = goal or (target, self.v["stride"])
        self.prefetch_panel(panel, number, rows[1] - rows[0])
        self.over_rows(rows, lambda height, row: self.multiply(height, row, panel, depth, target, first))

    def prefetch_panel(self, panel: str, number: Value, rows: Value) -> None:
        """Prefetch the next panel from the micro-kernels of a panel, a share of it with each of the rows."""
        if self.register.prefetches:
            self.next_panel = self.panel_after(panel, number)
            self.share = self.share_of_row(rows)

    def panel_after(self, panel: str, number: Value) -> str:
        """Where the panel after one lies that has this number in its tile; any address will do."""
        return self.e.offset(panel, self.memory, self.v["k"] * (self.register.width * self.register.panels_ahead))

    def share_of_row(self, rows: Value) -> Value:
        """Bytes of a panel for a value of k and one of so many rows, times a power of two."""
        return self.e.instruction("udiv", self.e.constant(self.register.width * BITS[self.memory] // 8 << SHARE_BITS,
                                                          "i64", 1), rows)

    def prefetch_arguments(self, row: Value, depth: Value) -> str:
        """The prefetch arguments of a micro-kernel whose tile begins at `row`; see `PREFETCH_ARGUMENTS`."""
        if not self.register.prefetches:
            return ""
        place = self.e.offset(self.next_panel, "i8", (self.share * row * depth).shift_right(SHARE_BITS))
        hop = (self.share * (self.register.heights[0] * self.values_per_step)).shift_right(SHARE_BITS)
        return f", ptr {place}, i64 {hop.name}"

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        """Where a panel of the right operand lies from k = start on."""
        place = self.right(batch) + (number * self.v["k"] + start) * self.register.width
        return self.e.offset(self.b, self.memory, place)

    def packed_rows(self, row: Value, depth: Value) -> str:
        """Where rows of the left operand lie after packing."""
        return self.e.offset(self.rows_at, self.element, row * depth)

    def source(self, batch: Value, rows: tuple[Value, Value], start: Value) -> str:
        """Where the rows of a tile begin at a block of k."""
        v = self.v
        return self.e.offset(self.a, self.memory, self.batch_place("a") + rows[0] * v["a_m"] + start * v["a_k"])

    def right(self, batch: Value) -> Value:
        """Where the packed right operand of a batch begins."""
        return self.batch_place("b")

    def before_packing(self, rows: tuple[Value, Value], start: Value, depth: Value) -> None:
        """Rows with one stride need nothing."""

    def over_rows(self, rows: tuple[Value, Value], write) -> None:  # type: ignore[no-untyped-def]
        """`write(height, row)` for row panels of the largest height, then of smaller ones for what is left."""
        e, height = self.e, self.register.heights[0]
        with e.loop(0, (rows[1] - rows[0]) & -height, height) as loop:
            write(height, loop.index)
        self.over_rest(rows, write)

    def over_rest(self, rows: tuple[Value, Value], write) -> None:  # type: ignore[no-untyped-def]
        """`write(height, row)` for what is left after row panels of the largest height."""
        e, count = self.e, rows[1] - rows[0]
        for height in self.register.heights[1:]:
            with e.when(e.icmp("ne", count & height, 0)):
                write(height, count & -(2 * height))

    def pack_rows(self, source: str, rows: tuple[Value, Value], depth: Value) -> None:
        """The rows of a tile at a block of k as panels."""
        if not self.packs_columns:
            self.over_rows(rows, lambda height, row: self.pack(height, source, row, depth))
            return
        whole = (rows[1] - rows[0]) & -self.register.heights[0]
        self.e.line(f"call void @pack_columns(ptr {source}, i64 {self.v['a_k'].name}, i64 {depth.name}, "
                    f"i64 {whole.name}, ptr {self.rows_at})")
        self.over_rest(rows, lambda height, row: self.pack(height, source, row, depth))

    def pack(self, height: int, source: str, row: Value, depth: Value) -> None:
        v = self.v
        self.pack_lines(height, self.e.offset(source, self.memory, row * v["a_m"]), row, depth)

    def pack_lines(self, height: int, source: str, row: Value, depth: Value) -> None:
        """Pack rows that begin at `source`; the first of them is `row` of its tile."""
        v = self.v
        self.e.line(f"call void @pack{height}(ptr {source}, i64 {v['a_m'].name}, i64 {v['a_k'].name}, "
                    f"i64 {depth.name}, ptr {self.packed_rows(row, depth)})")

    def multiply(self, height: int, row: Value, panel: str, depth: Value, target: str, first: Value) -> None:
        e, v = self.e, self.v
        packed = self.packed_rows(row, depth)
        tile = e.offset(target, self.element, row * v["stride"])
        more = ""
        if self.stores:
            goal, step = self.goal_of_panel
            more = f", ptr {e.offset(goal, self.element, row * step)}, i64 {step.name}"
        e.line(f"call void @{self.micro(height)}(ptr {packed}, ptr {panel}, i64 {depth.name}, ptr {tile}, "
               f"i64 {v['stride'].name}, i1 {first.name}{more}{self.prefetch_arguments(row, depth)})")

    def micro(self, height: int) -> str:
        """The name of the function that sums this many rows."""
        return f"micro{height}"

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """The epilogue over the tile: its operand's address is such that whole-matrix indices fall into the tile."""
        width = self.register.width
        self.epilogue_over_columns(
            batch, rows, (panels[0] * width, self.e.intrinsic("smin", panels[1] * width, self.v["n"])))

    def epilogue_over_columns(self, batch: Value, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> None:
        """The epilogue over a tile of these columns, or over what whole panels left of it."""
        e, v = self.e, self.v
        top, (first, end) = batch * v["m"], columns
        steps = v["stride"], e.constant(1, "i64", 1)
        if not self.stores:
            self.call_epilogue(self.sums, (top + rows[0], top + rows[1]), columns, steps)
            return
        rest = e.instruction("urem", end - first, e.constant(self.register.width, "i64", 1))
        begin = e.select(self.direct_store, end - rest, first)
        with e.when(e.icmp("slt", begin, end)):
            tile = e.offset(self.sums, self.element, begin - first)
            self.call_epilogue(tile, (top + rows[0], top + rows[1]), (begin, end), steps)

    def call_epilogue(self, tile: str, rows: tuple[Value, Value], columns: tuple[Value, Value],
               steps: tuple[Value, Value]) -> None:
        """Call the epilogue on rows and columns of its own, which lie these steps apart; the first is at `tile`."""
        e, v = self.e, self.v
        origin = e.offset(tile, self.element, 0 - (rows[0] * steps[0] + columns[0] * steps[1]))
        e.line(f"store ptr {origin}, ptr {e.offset('%places', 'ptr', v['tile_operand'])}, align 8")
        self.call_loop(EPILOGUE, "%places", e.offset("%values", "i64", len(self.record)), rows, columns, "scratch_at")

    def call_loop(self, function: int, places: str, numbers: str, rows: tuple[Value, Value],
                  columns: tuple[Value, Value], scratch_at: str) -> None:
        """Call a loop kernel whose address is the kernel's number `function`."""
        e = self.e
        address = e.load_pointer(e.offset("%values", "i64", function))
        scratch = e.offset("%scratch", "i8", self.v[scratch_at])
        found = e.assign(f"call i32 {address}(ptr {places}, ptr {numbers}, i64 {rows[0].name}, i64 {rows[1].name}, "
                         f"i64 {columns[0].name}, i64 {columns[1].name}, ptr {scratch})", "i32", 1)
        e.store(e.load(self.status, "i32", 1) | found, self.status)
