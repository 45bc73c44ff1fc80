"""The macro-kernel of a `WeightGradientKernel`: copied lines, micro-kernels along them, transposed sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.conv.direct_conv_parts import PlaneCopy, Turn, spans
from morpho.backends.kernels.conv.weight_gradient import TRANSPOSED, WEIGHT_GRADIENT, WeightGradientKernel
from morpho.backends.kernels.gemm.microkernel import MicroKernel, sum_type
from morpho.backends.kernels.gemm.tiling import Register, register_tile
from morpho.base.machine import Isa


def generate(kernel: WeightGradientKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `WeightGradientKernel`."""
    return WeightGradientCode(kernel, isa).module(name)


class WindowMicroKernel(MicroKernel):
    """Sums of `height` rows x the vectors of one panel along some lines of the window; `places` says how far each row's
    pixel lies from the first one's."""

    ARGUMENTS = ("ptr %a, ptr %places, ptr %b, i64 %lines, i64 %columns, i64 %line_step, ptr %tile, i64 %stride, "
                 "i1 %first")
    rows_are_packed = False

    def __init__(self, kernel: WeightGradientKernel, height: int, register: Register, isa: Isa) -> None:
        super().__init__(kernel, height, register, isa)  # type: ignore[arg-type]
        self.apart, self.columns = kernel.apart, kernel.columns

    def write(self) -> str:
        e, number = self.e, self.function.number
        columns = number("%columns")
        rows = [e.load(e.offset("%places", "i64", row), "i64", 1) for row in range(self.height)]
        with e.loop(0, number("%lines"), carried=self.start()) as lines:
            begin = lines.index * columns
            # Element k of the block lies at `line` + k * apart.
            line = e.offset("%a", self.element, lines.index * number("%line_step") - begin * self.apart)
            self.rows = [e.offset(line, self.element, row) for row in rows]
            lines.next(*self.along(list(lines.values), begin, columns))
        self.store(lines.values, *self.goal[:1], number(self.goal[1]))
        return self.function.text()

    def along(self, sums: list[Value], begin: Value, columns: Value) -> list[Value]:
        """The sums after one more line of the window."""
        if not self.columns:
            return self.chain(sums, begin, begin + columns, 1)
        left = self.left_values(begin, self.columns)
        for step in range(self.columns):
            sums = self.multiply_add(sums, lambda row, step=step: left(step, row), begin + step)  # type: ignore[misc]
        return sums

    def left_values(self, k: Value, count: int) -> Callable[[int, int], Value]:
        e = self.e

        def one(step: int, row: int) -> Value:
            return e.splat(e.load(e.offset(self.rows[row], self.element, (k + step) * self.apart), self.element, 1))

        return one


class WeightGradientCode:
    """State of the generator of weight gradient kernels."""

    def __init__(self, kernel: WeightGradientKernel, isa: Isa) -> None:
        self.kernel, self.isa = kernel, isa
        self.register = replace(register_tile(kernel.dtype, isa), heights=kernel.heights, vectors=kernel.vectors,
                                prefetch="off")
        self.e = Emitter(1, isa.native_half)
        self.element = sum_type(kernel.dtype)

    def module(self, name: str) -> str:
        parts: list[Any] = [
            *(WindowMicroKernel(self.kernel, height, self.register, self.isa) for height in self.register.heights),
            PlaneCopy(self.kernel, self.isa), Turn(self.kernel, self.isa)]
        texts = [part.write() for part in parts]
        if self.isa.vector_bits >= 512:
            texts = [text.replace(") nounwind {", ') nounwind "prefer-vector-width"="512" {') for text in texts]
        body = self.body()
        declarations = self.e.declarations.union(*(part.e.declarations for part in parts))
        main = defined(f"i32 @{name}({SIGNATURE}) nounwind", body)
        return "".join(texts) + main + "\n".join(sorted(declarations)) + "\n"

    def body(self) -> str:
        e = self.e
        self.a, self.b, self.result = (e.load_pointer("%buffers", number) for number in range(3))
        self.v = v = WEIGHT_GRADIENT.load(e)
        self.sums, self.transposed, self.places = (e.offset("%scratch", "i8", v[f"{name}_at"])
                                                   for name in ("sums", "transposed", "places"))
        self.write_places()
        panels = e.instruction("udiv", v["n"] + (self.register.width - 1),
                               e.constant(self.register.width, "i64", 1))
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as items:
            tile = e.instruction("udiv", items.index, v["panel_tiles"])
            panel = (items.index - tile * v["panel_tiles"]) * v["tile_panels"]
            image = tile * v["tile_images"]
            self.item((image, e.intrinsic("smin", image + v["tile_images"], v["images"])),
                      (panel, e.intrinsic("smin", panel + v["tile_panels"], panels)))
        e.line("ret i32 0")
        return e.text()

    def write_places(self) -> None:
        """The table of rows: how far each one's pixel lies from the first one of the tile, in the copied lines."""
        e, v = self.e, self.v
        with e.loop(0, v["tile_images"] * v["pixels"]) as loop:
            image = e.instruction("udiv", loop.index, v["pixels"])
            pixel = loop.index - image * v["pixels"]
            row = e.instruction("udiv", pixel, v["out_columns"])
            column = pixel - row * v["out_columns"]
            place = image * v["plane"] + row * v["row_step"] * v["line"] + column * v["column_step"]
            e.store(place, e.offset(self.places, "i64", loop.index))

    def item(self, images: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """One tile: sums over the blocks of the window, channel by channel, then their transpose."""
        e, v = self.e, self.v
        depth = v["lines"] * v["window_columns"]
        blocks = e.instruction("udiv", v["k"], depth)
        with e.loop(0, blocks) as loop:
            channel = e.instruction("udiv", loop.index, v["blocks_per_channel"])
            line = (loop.index - channel * v["blocks_per_channel"]) * v["lines"]
            self.copy_lines(images, channel, line)
            with e.loop(panels[0], panels[1]) as panel:
                place = (panel.index * v["k"] + loop.index * depth) * self.register.width
                target = e.offset(self.sums, self.element, (panel.index - panels[0]) * self.register.width)
                self.multiply(images, e.offset(self.b, self.element, place), target, e.icmp("eq", loop.index, 0))
        self.finish(images, panels)

    def copy_lines(self, images: tuple[Value, Value], channel: Value, line: Value) -> None:
        """The lines that a block of the window looks at, of all images of the tile, with zeros around them."""
        e, v = self.e, self.v
        top, left = line * v["row_dilation"] - v["rows_before"], e.constant(0, "i64", 1) - v["columns_before"]
        above, below = self.inside(top, v["copied_rows"], v["image_rows"])
        begin, end = self.inside(left, v["line"], v["image_columns"])
        corner = channel * v["a_channel"] + top * v["a_row"] + left
        one = e.constant(1, "i64", 1)
        with e.loop(images[0], images[1]) as loop:
            source = e.offset(self.a, self.element, loop.index * v["a_image"] + corner)
            target = e.offset("%scratch", self.element, (loop.index - images[0]) * v["plane"])
            self.copy_plane(source, (v["a_row"], one, above, below, v["copied_rows"], begin, end, v["line"]), target,
                            v["line"])

    def copy_plane(self, source: str, numbers: tuple[Value, ...], target: str, pitch: Value) -> None:
        self.e.line(f"call void @copy_plane(ptr {source}, {', '.join(f'i64 {n.name}' for n in numbers)}, ptr {target}, "
                    f"i64 {pitch.name})")

    def inside(self, start: Value, count: Value, size: Value) -> tuple[Value, Value]:
        """Which of `count` positions from `start` on are neither less than 0 nor `size` or more."""
        e, zero = self.e, self.e.constant(0, "i64", 1)

        def before(edge: Value) -> Value:
            return e.intrinsic("smin", e.intrinsic("smax", edge - start, zero), count)

        return before(zero), before(size)

    def multiply(self, images: tuple[Value, Value], panel: str, target: str, first: Value) -> None:
        """All rows of a tile by one panel."""
        e, v = self.e, self.v
        rows = v["group"] * v["pixels"]
        with e.loop(0, (images[1] - images[0]) * v["pixels"], rows) as groups:
            for height, begin, end in spans(self.register.heights, v["tall_rows"], rows):
                with e.loop(begin, end, height) as loop:
                    row = groups.index + loop.index
                    places, tile = e.offset(self.places, "i64", row), e.offset(target, self.element, row * v["stride"])
                    e.line(f"call void @micro{height}(ptr %scratch, ptr {places}, ptr {panel}, i64 {v['lines'].name}, "
                           f"i64 {v['window_columns'].name}, i64 {(v['line'] * v['row_dilation']).name}, ptr {tile}, "
                           f"i64 {v['stride'].name}, i1 {first.name})")

    def finish(self, images: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Sums as the result has them, pixels of all images side by side, some kernels at a time."""
        e, v, width = self.e, self.v, self.register.width
        begin, end = panels[0] * width, e.intrinsic("smin", panels[1] * width, v["n"])
        count, across = (images[1] - images[0]) * v["pixels"], v["images"] * v["pixels"]
        zero, one, pitch = e.constant(0, "i64", 1), e.constant(1, "i64", 1), v["transposed_pitch"]
        with e.loop(begin, end, TRANSPOSED) as loop:
            kernels = e.intrinsic("smin", loop.index + TRANSPOSED, end) - loop.index
            sums = e.offset(self.sums, self.element, loop.index - begin)
            e.line(f"call void @turn(ptr {sums}, i64 {v['stride'].name}, i64 {count.name}, i64 {kernels.name}, "
                   f"ptr {self.transposed}, i64 {pitch.name})")
            target = e.offset(self.result, self.element, loop.index * across + images[0] * v["pixels"])
            self.copy_plane(self.transposed, (pitch, one, zero, kernels, kernels, zero, count, count), target, across)
