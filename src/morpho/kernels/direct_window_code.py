"""The function of a `DirectKernel`: lines copied with zeros around them, register tiles on them, sums turned around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.base.machine import Isa
from morpho.kernels.direct_window import DIRECT_NAMES, DirectKernel
from morpho.kernels.emit import BITS, Value
from morpho.kernels.gemm import Function, MicroKernel, Register, register_tile, sum_type
from morpho.kernels.tile_code import transposed
from morpho.kernels.window_code import WindowCode

SHARE_BITS = 16


class DirectMicro(MicroKernel):
    """Sums of `height` neighbouring pixels x the vectors of one panel; `places` says how far from the first window's
    corner a value of k lies."""

    ARGUMENTS = "ptr %a, ptr %places, ptr %b, i64 %count, ptr %tile, i64 %stride, i1 %first"

    def left_values(self, k: Value, count: int) -> Callable[[int, int], Value]:
        e = self.e
        lines: dict[int, str] = {}
        vectors: dict[tuple[int, int], Value] = {}

        def line(step: int) -> str:
            """The pixels at a place in the window."""
            if step not in lines:
                place = e.load(e.offset("%places", "i64", k + step), "i64", 1)
                lines[step] = e.offset("%a", self.element, place)
            return lines[step]

        def one(step: int, row: int) -> Value:
            return e.splat(e.load(e.offset(line(step), self.element, row), self.element, 1))

        def lane(step: int, row: int) -> Value:
            number, lane = divmod(row, self.group)
            if (step, number) not in vectors:
                place = e.offset(line(step), self.element, number * self.group)
                vectors[step, number] = e.load(place, self.element, self.group)
            return self.lane(vectors[step, number], lane)

        return lane if self.by_lane else one


class PlaneCopy:
    """copy_plane(source, row step, step, above, below, rows, first, last, count, target, pitch): lines of `count`
    elements. Elements `first` to `last` of lines `above` to `below` come from the image, the others are zeros. `source`
    is where element 0 of line 0 would be."""

    ARGUMENTS = ("ptr %source, i64 %row_step, i64 %step, i64 %above, i64 %below, i64 %rows, i64 %first, i64 %last, "
                 "i64 %count, ptr %target, i64 %pitch")

    def __init__(self, kernel: DirectKernel, isa: Isa) -> None:
        self.near, self.element = kernel.near, sum_type(kernel.dtype)
        self.lanes = register_tile(kernel.dtype, isa).lanes
        self.function = Function("copy_plane", self.ARGUMENTS, 1, isa)
        self.e = self.function.e

    def write(self) -> str:
        e = self.e
        above, below, rows, first, last, count = (
            self.function.number(f"%{name}") for name in ("above", "below", "rows", "first", "last", "count"))
        zero = e.constant(0, "i64", 1)
        for begin, end in ((zero, above), (below, rows)):
            with e.loop(begin, end) as loop:
                self.clear(self.line(loop.index), zero, count)
        with e.loop(above, below) as loop:
            target = self.line(loop.index)
            self.clear(target, zero, first)
            self.clear(target, last, count)
            source = e.offset("%source", self.element, loop.index * self.function.number("%row_step"))
            self.copy_line(source, target, first, last)
        return self.function.text()

    def line(self, number: Value) -> str:
        return self.e.offset("%target", self.element, number * self.function.number("%pitch"))

    def clear(self, target: str, begin: Value, end: Value) -> None:
        e = self.e
        with e.loop(begin, end) as loop:
            e.store(e.constant(0, self.element, 1), e.offset(target, self.element, loop.index))

    def copy_line(self, source: str, target: str, first: Value, last: Value) -> None:
        """Whole vectors, the last of which may overlap the one before it; short lines by shorter ones."""
        e, lanes, done = self.e, self.lanes, self.e.fresh("done")
        while self.near and lanes >= 4:
            some, shorter = e.fresh("some"), e.fresh("shorter")
            e.branch_if(e.icmp("sge", last - first, lanes), some, shorter)
            e.label(some)
            with e.loop(first, last - lanes, lanes) as loop:
                self.copy(source, target, loop.index, lanes)
            self.copy(source, target, last - lanes, lanes)
            e.branch(done)
            e.label(shorter)
            lanes //= 2
        with e.loop(first, last) as loop:
            self.copy(source, target, loop.index, 1)
        e.branch(done)
        e.label(done)

    def copy(self, source: str, target: str, number: Value, lanes: int) -> None:
        e = self.e
        at = number if self.near else number * self.function.number("%step")
        e.store(e.load(e.offset(source, self.element, at), self.element, lanes),
                e.offset(target, self.element, number))


class LinePacker:
    """pack_lines(source, k step, count, pixels, line, tall, target): tiles of lines that follow one another, each as
    [k][height].

    Without neighbours that share pixels a tile read in place takes a line of the cache for every value of k.
    """

    ARGUMENTS = "ptr %source, i64 %k_step, i64 %count, i64 %pixels, i64 %line, i64 %tall, ptr %target"
    STEPS = 8  # values of k at a time, as of `ColumnPacker`

    def __init__(self, kernel: DirectKernel, isa: Isa) -> None:
        self.heights, self.element = kernel.heights, sum_type(kernel.dtype)
        self.function = Function("pack_lines", self.ARGUMENTS, 1, isa)
        self.e = self.function.e

    def write(self) -> str:
        e, count = self.e, self.function.number("%count")
        whole = count & -self.STEPS
        for start, stop, steps in ((e.constant(0, "i64", 1), whole, self.STEPS), (whole, count, 1)):
            with e.loop(start, stop, steps) as loop:
                self.tiles(loop.index, steps)
        return self.function.text()

    def tiles(self, k: Value, steps: int) -> None:
        e, number = self.e, self.function.number
        with e.loop(0, number("%pixels"), number("%line")) as lines:
            for height, begin, end in spans(self.heights, number("%tall"), number("%line")):
                with e.loop(begin, end, height) as columns:
                    pixel = lines.index + columns.index
                    source = e.offset("%source", self.element, k * number("%k_step") + pixel)
                    target = e.offset("%target", self.element, pixel * number("%count") + k * height)
                    for step in range(steps):
                        line = e.load(e.offset(source, self.element, number("%k_step") * step), self.element, height)
                        e.store(line, e.offset(target, self.element, step * height))


def spans(heights: tuple[int, ...], tall: Value, line: Value) -> list[tuple[int, Value | int, Value]]:
    """The heights of the tiles of a line, and where those of each begin and end."""
    return list(zip(heights, (0, tall), (tall, line), strict=False))


class Turn:
    """turn(sums, stride, pixels, channels, target, pitch): sums of pixels x channels as channels x pixels, both filled
    up to whole vectors."""

    ARGUMENTS = "ptr %sums, i64 %stride, i64 %pixels, i64 %channels, ptr %target, i64 %pitch"

    def __init__(self, kernel: DirectKernel, isa: Isa) -> None:
        self.element, self.lanes = sum_type(kernel.dtype), register_tile(kernel.dtype, isa).lanes
        self.function = Function("turn", self.ARGUMENTS, self.lanes, isa)
        self.e = self.function.e

    def write(self) -> str:
        e, lanes = self.e, self.lanes
        stride, pixels, channels, pitch = (self.function.number(f"%{name}")
                                           for name in ("stride", "pixels", "channels", "pitch"))
        with e.loop(0, pixels, lanes) as down, e.loop(0, channels, lanes) as across:
            source = e.offset("%sums", self.element, down.index * stride + across.index)
            target = e.offset("%target", self.element, across.index * pitch + down.index)
            lines = [e.load(e.offset(source, self.element, stride * i), self.element) for i in range(lanes)]
            for number, line in enumerate(transposed(e, lines)):
                e.store(line, e.offset(target, self.element, pitch * number))
        return self.function.text()


class DirectCode(WindowCode):
    """As `WindowCode`, with lines that are copied, not packed."""

    kernel: DirectKernel

    def __init__(self, kernel: DirectKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.register = Register(kernel.heights, kernel.vectors, self.register.lanes)

    def parts(self) -> list[Any]:
        micro, copy = (MicroKernel, LinePacker) if self.kernel.flat else (DirectMicro, PlaneCopy)
        return [*(micro(self.kernel, height, self.register, self.isa) for height in self.register.heights),
                copy(self.kernel, self.isa), Turn(self.kernel, self.isa)]

    @property
    def names(self) -> tuple[str, ...]:
        return DIRECT_NAMES

    def begin(self) -> None:
        """Write the table of places: how far each value of k in a block lies from the first one's."""
        e, v = self.e, self.v
        self.places = e.offset("%scratch", "i8", v["places_at"])
        self.pitch = v["line"] * v["phases"]
        window = v["kernel_rows"] * v["kernel_columns"]
        with e.loop(0, v["kernel_columns"]) as columns:
            reach = columns.index * v["column_dilation"]
            along = e.instruction("udiv", reach, v["column_step"])
            phase = reach - along * v["column_step"]
            with e.loop(0, v["kernel_rows"]) as rows:
                place = phase * v["line"] + along + rows.index * v["row_dilation"] * self.pitch
                first = rows.index * v["kernel_columns"] + columns.index
                with e.loop(first, v["depth"], window, carried=[place]) as loop:
                    e.store(loop.values[0], e.offset(self.places, "i64", loop.index))
                    loop.next(loop.values[0] + v["plane"])
        self.window = window
        lines = (v["depth"] * (self.register.width * BITS[self.memory] // 8)).shift_right(6)
        self.share = e.instruction("udiv", lines << SHARE_BITS, v["tile_rows"])  # of a panel, to fetch with a row

    # -- lines ---------------------------------------------------------------------------------------------------------
    def source(self, batch: Value, rows: tuple[Value, Value], start: Value) -> str:
        channel = self.e.instruction("udiv", start, self.window)
        return self.e.offset(super().source(batch, rows, start), self.memory, channel * self.v["a_channel"])

    def before_packing(self, rows: tuple[Value, Value], start: Value, depth: Value) -> None:
        """The table is there."""

    def lines(self, rows: tuple[Value, Value]) -> tuple[Value, Value]:
        """First line of the result, and the number of lines."""
        e, columns = self.e, self.v["out_columns"]
        return e.instruction("udiv", rows[0], columns), e.instruction("udiv", rows[1] - rows[0], columns)

    def pack_rows(self, source: str, rows: tuple[Value, Value], depth: Value) -> None:
        """Copy the lines of the image that the tile needs, channel by channel."""
        e, v = self.e, self.v
        if self.kernel.flat:
            place = e.offset(source, self.memory, rows[0])
            e.line(f"call void @pack_lines(ptr {place}, i64 {v['a_channel'].name}, i64 {depth.name}, "
                   f"i64 {(rows[1] - rows[0]).name}, i64 {v['line'].name}, i64 {v['tall_columns'].name}, ptr %scratch)")
            return
        first, count = self.lines(rows)
        top = first * v["row_step"] - v["rows_before"]  # line 0 of the copy, as a line of the image
        read = (count - 1) * v["row_step"] + (v["kernel_rows"] - 1) * v["row_dilation"] + 1
        above, below = self.inside(top, read, v["image_rows"], e.constant(1, "i64", 1))
        phases = 1 if self.kernel.near else v["phases"]
        with e.loop(0, e.instruction("udiv", depth, self.window)) as channels, e.loop(0, phases) as phase:
            left = phase.index - v["columns_before"]  # element 0 of a line, as a column of the image
            begin, end = self.inside(left, v["line"], v["image_columns"], v["column_step"])
            corner = top * v["a_row"] + left * v["a_column"]
            line = e.offset(source, self.memory, channels.index * v["a_channel"] + corner)
            target = e.offset("%scratch", self.element, channels.index * v["plane"] + phase.index * v["line"])
            numbers = (v["a_row"], v["column_step"] * v["a_column"], above, below, read, begin, end, v["line"])
            e.line(f"call void @copy_plane(ptr {line}, {', '.join(f'i64 {n.name}' for n in numbers)}, ptr {target}, "
                   f"i64 {self.pitch.name})")

    def inside(self, start: Value, count: Value, size: Value, step: Value) -> tuple[Value, Value]:
        """Which of `count` positions from `start` on, a step apart, are neither less than 0 nor `size` or more."""
        e, zero = self.e, self.e.constant(0, "i64", 1)

        def before(edge: Value) -> Value:
            distance = e.intrinsic("smax", edge - start, zero)
            if not self.kernel.near and step.name != "1":
                distance = e.instruction("udiv", distance + step - 1, step)
            return e.intrinsic("smin", distance, count)

        return before(zero), before(size)

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def over_rows(self, rows: tuple[Value, Value], write) -> None:  # type: ignore[no-untyped-def]
        """`write(height, row)` for the tiles of every line."""
        e, v, heights = self.e, self.v, self.register.heights
        with e.loop(0, self.lines(rows)[1]) as lines:
            for height, begin, end in spans(heights, v["tall_columns"], v["out_columns"]):
                with e.loop(begin, end, height) as columns:
                    self.corner = lines.index * v["row_step"] * self.pitch + columns.index
                    write(height, lines.index * v["out_columns"] + columns.index)

    def ahead(self, batch: Value, number: Value, panels: tuple[Value, Value], end: Value, panel: str) -> str:
        """After the last panel the first one's next values of k."""
        e = self.e
        following, first = super().ahead(batch, number, panels, end, panel), self.panel(batch, panels[0], end, end)
        chosen = "%" + e.fresh("p")
        more = e.icmp("slt", number + 1, panels[1])
        e.line(f"{chosen} = select i1 {more.name}, ptr {following}, ptr {first}")
        return chosen

    def fetch(self, panel: str, depth: Value, rows: tuple[Value, Value], count: Value) -> None:
        """As of every product, by a share of a row found once."""
        if self.isa.vector_bits < 512:
            return
        e = self.e
        e.declarations.add("declare void @llvm.prefetch(ptr, i32, i32, i32)")
        with e.loop(*((self.share * row).shift_right(SHARE_BITS) for row in rows)) as loop:
            e.line(f"call void @llvm.prefetch(ptr {e.offset(panel, 'i8', loop.index * 64)}, i32 0, i32 2, i32 1)")

    def multiply(self, height: int, row: Value, panel: str, depth: Value, target: str, first: Value) -> None:
        e, v = self.e, self.v
        if self.kernel.flat:
            super().multiply(height, row, panel, depth, target, first)
            return
        pixels = e.offset("%scratch", self.element, self.corner)
        tile = e.offset(target, self.element, row * v["stride"])
        e.line(f"call void @micro{height}(ptr {pixels}, ptr {self.places}, ptr {panel}, i64 {depth.name}, ptr {tile}, "
               f"i64 {v['stride'].name}, i1 {first.name})")

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Pixels side by side, as the epilogue reads and writes them."""
        e, v, width = self.e, self.v, self.register.width
        channel, end = panels[0] * width, e.intrinsic("smin", panels[1] * width, v["n"])
        image, group = self.group(batch)
        turned, count = e.offset("%scratch", "i8", v["turned_at"]), rows[1] - rows[0]
        e.line(f"call void @turn(ptr {self.sums}, i64 {v['stride'].name}, i64 {count.name}, "
               f"i64 {(end - channel).name}, ptr {turned}, i64 {v['turned_pitch'].name})")
        top = (image * v["groups"] + group) * v["n"]
        self.follow(turned, (top + channel, top + end), rows, (v["turned_pitch"], e.constant(1, "i64", 1)))
