"""The macro-kernel of a `DirectConvKernel`: lines copied by blocks of channels, micro-kernels, transposed sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from morpho.backends.code.emit import Value
from morpho.backends.kernels.conv.direct_conv import DIRECT_CONV, TRANSPOSED_CHANNELS, DirectConvKernel
from morpho.backends.kernels.conv.direct_conv_parts import DirectConvMicroKernel, LinePacker, PlaneCopy, Turn, spans
from morpho.backends.kernels.conv.implicit_gemm_code import ImplicitGemmCode
from morpho.backends.kernels.gemm.microkernel import MicroKernel
from morpho.base.machine import Isa


def generate(kernel: DirectConvKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `DirectConvKernel`."""
    return DirectConvCode(kernel, isa).module(name)


class DirectConvCode(ImplicitGemmCode):
    """As `ImplicitGemmCode`, with lines that are copied, not packed."""

    record = DIRECT_CONV
    kernel: DirectConvKernel

    def __init__(self, kernel: DirectConvKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.register = replace(self.register, heights=kernel.heights, vectors=kernel.vectors)

    def parts(self) -> list[Any]:
        micro, copy = (MicroKernel, LinePacker) if self.kernel.flat else (DirectConvMicroKernel, PlaneCopy)
        copies = [] if self.kernel.apart else [copy(self.kernel, self.isa)]
        return [*(micro(self.kernel, height, self.register, self.isa) for height in self.register.heights),
                *copies, *([] if self.kernel.last else [Turn(self.kernel, self.isa)])]

    def begin(self) -> None:
        """Write the table of places: how far each value of k in a block lies from the first one's."""
        e, v = self.e, self.v
        self.places = e.offset("%scratch", "i8", v["places_at"])
        self.pitch = v["a_row"] if self.kernel.apart else v["line"] * v["phases"]
        plane = v["a_channel"] if self.kernel.apart else v["plane"]
        window = v["kernel_rows"] * v["kernel_columns"]
        with e.loop(0, v["kernel_columns"]) as columns:
            across = self.across(columns.index * v["column_dilation"])
            with e.loop(0, v["kernel_rows"]) as rows:
                place = across + rows.index * v["row_dilation"] * self.pitch
                first = rows.index * v["kernel_columns"] + columns.index
                with e.loop(first, v["depth"], window, carried=[place]) as loop:
                    e.store(loop.values[0], e.offset(self.places, "i64", loop.index))
                    loop.next(loop.values[0] + plane)
        self.window = window
        if self.register.prefetches:
            self.share = super().share_of_row(v["tile_rows"])

    def across(self, reach: Value) -> Value:
        """How far a column of the window lies from its first one: in the image, or in a copied line and its phases."""
        e, v = self.e, self.v
        if self.kernel.apart:
            return reach * v["a_column"]
        along = e.instruction("udiv", reach, v["column_step"])
        return (reach - along * v["column_step"]) * v["line"] + along

    def block(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value], number: Value, place: Value,
              packed: Value) -> None:
        """Images that are read in place need no rows of their own."""
        if not self.kernel.apart:
            super().block(batch, rows, panels, number, place, packed)
            return
        e, v = self.e, self.v
        start = number * v["depth"]
        depth = e.intrinsic("smin", v["depth"], v["k"] - start)
        top = self.lines(rows)[0] * v["row_step"] * v["a_row"]
        self.rows_at = e.offset(self.source(batch, rows, start), self.memory, top)
        self.over_panels(batch, rows, panels, (start, depth), e.icmp("eq", number, 0))

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
                   f"i64 {(rows[1] - rows[0]).name}, i64 {v['line'].name}, i64 {v['tall_columns'].name}, "
                   f"ptr {self.rows_at})")
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
            target = e.offset(self.rows_at, self.element, channels.index * v["plane"] + phase.index * v["line"])
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
                    across = columns.index * self.kernel.apart if self.kernel.apart else columns.index
                    self.corner = lines.index * v["row_step"] * self.pitch + across
                    write(height, lines.index * v["out_columns"] + columns.index)

    def share_of_row(self, rows: Value) -> Value:
        """That of a whole tile, found once."""
        return self.share

    def multiply(self, height: int, row: Value, panel: str, depth: Value, target: str, first: Value) -> None:
        e, v = self.e, self.v
        if self.kernel.flat:
            super().multiply(height, row, panel, depth, target, first)
            return
        pixels = e.offset(self.rows_at, self.element, self.corner)
        tile = e.offset(target, self.element, row * v["stride"])
        e.line(f"call void @micro{height}(ptr {pixels}, ptr {self.places}, ptr {panel}, i64 {depth.name}, ptr {tile}, "
               f"i64 {v['stride'].name}, i1 {first.name}{self.prefetch_arguments(row, depth)})")

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Pixels side by side, as the epilogue reads and writes them: some channels at a time, which it then finds in
        the first-level cache."""
        e, v, width = self.e, self.v, self.register.width
        channel, end = panels[0] * width, e.intrinsic("smin", panels[1] * width, v["n"])
        if self.kernel.last:
            top = batch * v["m"]
            self.call_epilogue(self.sums, (top + rows[0], top + rows[1]), (channel, end),
                               (v["stride"], e.constant(1, "i64", 1)))
            return
        image, group = self.group(batch)
        top = (image * v["groups"] + group) * v["n"]
        transposed, count = e.offset("%scratch", "i8", v["transposed_at"]), rows[1] - rows[0]
        with e.loop(channel, end, TRANSPOSED_CHANNELS) as channels:
            stop = e.intrinsic("smin", channels.index + TRANSPOSED_CHANNELS, end)
            sums = e.offset(self.sums, self.element, channels.index - channel)
            e.line(f"call void @turn(ptr {sums}, i64 {v['stride'].name}, i64 {count.name}, "
                   f"i64 {(stop - channels.index).name}, ptr {transposed}, i64 {v['transposed_pitch'].name})")
            self.call_epilogue(transposed, (top + channels.index, top + stop), rows,
                               (v["transposed_pitch"], e.constant(1, "i64", 1)))
