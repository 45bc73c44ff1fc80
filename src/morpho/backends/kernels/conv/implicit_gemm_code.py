"""The macro-kernel of an `ImplicitGemmKernel`: tables of pixels and window positions, and packing by them."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.conv.implicit_gemm import ENTRY_WORDS, WINDOW_GEMM, ImplicitGemmKernel
from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import Function, sum_type
from morpho.backends.kernels.gemm.packing.row_packers import RowPacker
from morpho.base.machine import Isa


def generate(kernel: ImplicitGemmKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `ImplicitGemmKernel`."""
    return ImplicitGemmCode(kernel, isa).module(name)


class WindowPacker(RowPacker):
    """packN(source, pixels, places, count, target, ...): windows of N pixels as [k][N], in the type of the sums.

    Windows that lie inside the image are read without looking; those of neighbouring pixels even as one vector. At the
    border every element is looked at, and a zero read in place of what is not there.
    """

    ARGUMENTS = ("ptr %source, ptr %pixels, ptr %places, i64 %count, ptr %target, i64 %rows, i64 %columns, "
                 "i64 %row_span, i64 %column_span, ptr %zero")

    def __init__(self, kernel: GemmKernel, height: int, isa: Isa) -> None:
        self.dtype, self.height = kernel.dtype, height
        self.function = Function(f"pack{height}", self.ARGUMENTS, 4, isa)
        self.e, self.vectors = self.function.e, isa.vector_bits > 0
        self.memory, self.element = scalars.memory_type(kernel.dtype), sum_type(kernel.dtype)

    def write(self) -> str:
        e = self.e
        self.pixels = [self.entry("%pixels", row) for row in range(self.height)]
        inside, together = self.inside(), self.together()
        border, middle, line, done = (e.fresh(name) for name in ("border", "middle", "line", "done"))
        apart = e.fresh("apart")
        e.branch_if(inside, middle, border)
        e.label(middle)
        e.branch_if(together, line, apart)
        for label, copy in ((line, self.copy_line), (apart, self.copy_apart), (border, self.copy_checked)):
            e.label(label)
            with e.loop(0, self.function.number("%count")) as loop:
                copy(loop.index, e.offset("%target", self.element, loop.index * self.height))
            e.branch(done)
        e.label(done)
        return self.function.text()

    def entry(self, table: str, number: Value | int) -> list[Value]:
        """Offset, row and column of a pixel, or of a place in the window."""
        e = self.e
        at = e.offset(table, "i64", number * ENTRY_WORDS)
        return [e.load(e.offset(at, "i64", part), "i64", 1) for part in range(ENTRY_WORDS)]

    def inside(self) -> Value:
        """Whether the windows of all pixels lie in the image."""
        e = self.e
        found: Value | None = None
        for part, size, span in ((1, "%rows", "%row_span"), (2, "%columns", "%column_span")):
            last = self.function.number(size) - self.function.number(span)
            for pixel in self.pixels:
                here = e.icmp("sge", pixel[part], 0) & e.icmp("slt", pixel[part], last)
                found = here if found is None else found & here
        assert found is not None
        return found

    def together(self) -> Value:
        """Whether the pixels lie side by side."""
        e = self.e
        found = e.constant(self.vectors or self.height == 1, "i1", 1)
        for number, pixel in enumerate(self.pixels):
            found = found & e.icmp("eq", pixel[0], self.pixels[0][0] + number)
        return found

    def copy_line(self, k: Value, target: str) -> None:
        e = self.e
        if not self.vectors:
            return self.copy_apart(k, target)
        place = e.load(e.offset("%places", "i64", k * ENTRY_WORDS), "i64", 1)
        source = e.offset("%source", self.memory, self.pixels[0][0] + place)
        e.store(scalars.from_memory(e, e.load(source, self.memory, self.height), self.dtype), target)

    def copy_apart(self, k: Value, target: str) -> None:
        e = self.e
        place = e.load(e.offset("%places", "i64", k * ENTRY_WORDS), "i64", 1)
        line = e.offset("%source", self.memory, place)
        for number, pixel in enumerate(self.pixels):
            self.copy_one(e.offset(line, self.memory, pixel[0]), target, number)

    def copy_checked(self, k: Value, target: str) -> None:
        e = self.e
        offset, row, column = self.entry("%places", k)
        line = e.offset("%source", self.memory, offset)
        for number, pixel in enumerate(self.pixels):
            there = e.icmp("ult", pixel[1] + row, self.function.number("%rows")) \
                & e.icmp("ult", pixel[2] + column, self.function.number("%columns"))
            source = e.offset(line, self.memory, pixel[0])
            chosen = "%" + e.fresh("p")
            e.line(f"{chosen} = select i1 {there.name}, ptr {source}, ptr %zero")
            self.copy_one(chosen, target, number)

    def copy_one(self, source: str, target: str, number: int) -> None:
        e = self.e
        value = scalars.from_memory(e, e.load(source, self.memory, 1), self.dtype)
        e.store(value, e.offset(target, self.element, number))


class ImplicitGemmCode(GemmCode):
    """As `GemmCode`, with a left operand that is looked up, groups, and the epilogue's rows and columns exchanged."""

    record = WINDOW_GEMM
    packs_columns = False  # rows are packed one panel at a time

    def packer(self, height: int) -> RowPacker:
        return WindowPacker(self.kernel, height, self.isa)

    def body(self) -> str:
        self.e.line(f"%zero = alloca {self.memory}, align 8")
        self.e.store(self.e.constant(0, self.memory, 1), "%zero")
        return super().body()

    def group(self, batch: Value) -> tuple[Value, Value]:
        """The first image of a batch, and its group."""
        block = self.e.instruction("udiv", batch, self.v["groups"])
        return block * self.v["images"], batch - block * self.v["groups"]

    def source(self, batch: Value, rows: tuple[Value, Value], start: Value) -> str:
        image, group = self.group(batch)
        return self.e.offset(self.a, self.memory, image * self.v["a_batch"] + group * self.v["a_group"])

    def right(self, batch: Value) -> Value:
        return self.group(batch)[1] * self.v["b_batch"]

    def before_packing(self, rows: tuple[Value, Value], start: Value, depth: Value) -> None:
        """Write both tables: where each pixel's window begins, and where each k lies in it."""
        e, v = self.e, self.v
        self.pixels, self.places = (e.offset("%scratch", "i8", v[name]) for name in ("pixels_at", "places_at"))
        with e.loop(rows[0], rows[1]) as loop:
            image = e.instruction("udiv", loop.index, v["pixels"])
            pixel = loop.index - image * v["pixels"]
            down = e.instruction("udiv", pixel, v["out_columns"])
            across = pixel - down * v["out_columns"]
            row, column = down * v["row_step"] - v["rows_before"], across * v["column_step"] - v["columns_before"]
            offset = image * v["a_batch"] + row * v["a_row"] + column * v["a_column"]
            self.write_entry(self.pixels, loop.index - rows[0], offset, row, column)
        with e.loop(0, depth) as loop:
            rest = e.instruction("udiv", start + loop.index, v["kernel_columns"])
            column = (start + loop.index - rest * v["kernel_columns"]) * v["column_dilation"]
            channel = e.instruction("udiv", rest, v["kernel_rows"])
            row = (rest - channel * v["kernel_rows"]) * v["row_dilation"]
            offset = channel * v["a_channel"] + row * v["a_row"] + column * v["a_column"]
            self.write_entry(self.places, loop.index, offset, row, column)

    def write_entry(self, table: str, number: Value, *parts: Value) -> None:
        at = self.e.offset(table, "i64", number * ENTRY_WORDS)
        for position, part in enumerate(parts):
            self.e.store(part, self.e.offset(at, "i64", position))

    def pack(self, height: int, source: str, row: Value, depth: Value) -> None:
        e, v = self.e, self.v
        target = self.packed_rows(row, depth)
        pixels = e.offset(self.pixels, "i64", row * ENTRY_WORDS)
        spans = [(v[f"kernel_{name}s"] - 1) * v[f"{name}_dilation"] for name in ("row", "column")]
        e.line(f"call void @pack{height}(ptr {source}, ptr {pixels}, ptr {self.places}, i64 {depth.name}, "
               f"ptr {target}, i64 {v['image_rows'].name}, i64 {v['image_columns'].name}, i64 {spans[0].name}, "
               f"i64 {spans[1].name}, ptr %zero)")

    def finish(self, batch: Value, rows: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Channels are the epilogue's rows and lie side by side in the tile; pixels are its columns, image by image."""
        e, v, width = self.e, self.v, self.register.width
        channel, end = panels[0] * width, e.intrinsic("smin", panels[1] * width, v["n"])
        begin, group = self.group(batch)
        image = e.instruction("udiv", rows[0], v["pixels"])
        last = e.instruction("udiv", rows[1] - 1, v["pixels"]) + 1
        with e.loop(image, last) as images:
            before = images.index * v["pixels"]
            first = e.intrinsic("smax", rows[0] - before, e.constant(0, "i64", 1))
            stop = e.intrinsic("smin", rows[1] - before, v["pixels"])
            top = ((begin + images.index) * v["groups"] + group) * v["n"]
            tile = e.offset(self.sums, self.element, (before + first - rows[0]) * v["stride"])
            self.call_epilogue(tile, (top + channel, top + end), (first, stop), (e.constant(1, "i64", 1), v["stride"]))
