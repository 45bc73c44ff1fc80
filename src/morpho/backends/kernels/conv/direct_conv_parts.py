"""The functions of a `DirectConvKernel` beside the main one: lines copied or packed, micro-kernels, transposed sums."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code.emit import Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.conv.direct_conv import DirectConvKernel
from morpho.backends.kernels.conv.weight_gradient import WeightGradientKernel
from morpho.backends.kernels.gemm.microkernel import Function, MicroKernel, sum_type
from morpho.backends.kernels.gemm.tiling import Register, register_tile
from morpho.base.machine import Isa


class DirectConvMicroKernel(MicroKernel):
    """Sums of `height` neighbouring pixels x the vectors of one panel; `places` says how far from the first window's
    corner a value of k lies."""

    ARGUMENTS = "ptr %a, ptr %places, ptr %b, i64 %count, ptr %tile, i64 %stride, i1 %first"
    rows_are_packed = False

    def __init__(self, kernel: DirectConvKernel, height: int, register: Register, isa: Isa) -> None:
        super().__init__(kernel, height, register, isa)
        self.apart = kernel.apart or 1

    def left_values(self, k: Value, count: int) -> Callable[[int, int], Value]:
        e, apart = self.e, self.apart
        lines: dict[int, str] = {}
        vectors: dict[tuple[int, int], Value] = {}

        def line(step: int) -> str:
            """The pixels at a place in the window."""
            if step not in lines:
                place = e.load(e.offset("%places", "i64", k + step), "i64", 1)
                lines[step] = e.offset("%a", self.element, place)
            return lines[step]

        def one(step: int, row: int) -> Value:
            return e.splat(e.load(e.offset(line(step), self.element, row * apart), self.element, 1))

        def lane(step: int, row: int) -> Value:
            number, lane = divmod(row, self.group)
            if (step, number) not in vectors:
                place = e.offset(line(step), self.element, number * self.group)
                vectors[step, number] = e.load(place, self.element, self.group)
            return self.lane(vectors[step, number], lane)

        return lane if self.by_lane and apart == 1 else one


class PlaneCopy:
    """copy_plane(source, row step, step, above, below, rows, first, last, count, target, pitch): lines of `count`
    elements. Elements `first` to `last` of lines `above` to `below` come from the image, the others are zeros. `source`
    is where element 0 of line 0 would be."""

    ARGUMENTS = ("ptr %source, i64 %row_step, i64 %step, i64 %above, i64 %below, i64 %rows, i64 %first, i64 %last, "
                 "i64 %count, ptr %target, i64 %pitch")

    def __init__(self, kernel: DirectConvKernel | WeightGradientKernel, isa: Isa) -> None:
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

    def __init__(self, kernel: DirectConvKernel, isa: Isa) -> None:
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

    def __init__(self, kernel: DirectConvKernel | WeightGradientKernel, isa: Isa) -> None:
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
