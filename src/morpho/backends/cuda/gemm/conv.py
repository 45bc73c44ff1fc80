"""Convolutions as implicit products: kernels [m, k] times windows of the images [k, pixels], which are never in memory.

k is (channel, row, column of the kernel) in row-major order, and pixels are those of all images. A block reads the
windows of its pixels element by element, neighbouring threads neighbouring pixels, straight into the slices of shared
memory that a product has: half floats are multiplied on tensor cores, others on the arithmetic units with the CPU's
bits. The numbers of a convolution are constants of its kernel, so that no division is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.backends.cuda.gemm.half.mma import CHUNK, DEPTH, MmaGemm, ReadAhead
from morpho.backends.cuda.gemm.simt import DEPTH as SIMT_DEPTH
from morpho.backends.cuda.gemm.simt import PAD, SimtCode, SimtGemm

Pair = tuple[int, int]


@dataclass(frozen=True)
class Windows:
    """Images of `size` and what windows over them: steps between windows and between elements of one, and elements
    before the image; `pixels` are rows and columns of the result."""

    size: Pair
    pixels: Pair
    kernel: Pair
    before: Pair
    steps: Pair
    dilations: Pair
    image: int  # elements from one image to the next
    result: int  # and of the result


class WindowReader:
    """Writes reads of windows; places are 32 bits wide."""

    def __init__(self, e: GridEmitter, windows: Windows) -> None:
        self.e, self.w = e, windows

    def whole(self, x: Value, by: int) -> tuple[Value, Value]:
        """Quotient and rest."""
        quotient = self.e.instruction("udiv", x, self.e.constant(by, "i32", 1))
        return quotient, x - quotient * by

    def pixel(self, number: Value) -> tuple[Value, Value, Value]:
        """Of the pixel of a column: where its image begins, and its window's first row and column in it."""
        e, w = self.e, self.w
        image, pixel = self.whole(e.convert("trunc", number, "i32"), w.pixels[0] * w.pixels[1])
        row, column = self.whole(pixel, w.pixels[1])
        start = e.convert("zext", image, "i64") * w.image
        return start, row * w.steps[0] - w.before[0], column * w.steps[1] - w.before[1]

    def place(self, pixel: tuple[Value, Value, Value], k: Value) -> tuple[Value, Value]:
        """Where the element k of a window lies, and whether it lies in the image."""
        e, w = self.e, self.w
        channel, rest = self.whole(e.convert("trunc", k, "i32"), w.kernel[0] * w.kernel[1])
        row, column = self.whole(rest, w.kernel[1])
        y, x = pixel[1] + row * w.dilations[0], pixel[2] + column * w.dilations[1]
        inside = e.icmp("ult", y, w.size[0]) & e.icmp("ult", x, w.size[1])
        at = channel * (w.size[0] * w.size[1]) + y * w.size[1] + x
        return pixel[0] + e.convert("sext", at, "i64"), inside

    def column_place(self, row: Value, column: Value) -> Value:
        """Where a row and a column of the product lie in the result."""
        e, pixels = self.e, self.w.pixels[0] * self.w.pixels[1]
        image, pixel = self.whole(e.convert("trunc", column, "i32"), pixels)
        return e.convert("zext", image, "i64") * self.w.result + row * pixels + e.convert("zext", pixel, "i64")


@dataclass(frozen=True)
class SimtConv(SimtGemm):
    """A convolution on the arithmetic units."""

    windows: Windows | None = None

    def unaligned(self) -> SimtConv:
        return self

    def text(self) -> str:
        return _SimtConvCode(self).module()


class _SimtConvCode(SimtCode):
    def __init__(self, kernel: SimtConv) -> None:
        super().__init__(kernel)
        assert kernel.windows is not None
        self.reader = WindowReader(self.e, kernel.windows)
        self.pixels: dict[int, tuple[Value, Value, Value]] = {}

    def slice(self, source: str, target: str, start: Value, size: Value, step: Value, along: Value, depth: Value,
              count: int, k_first: bool) -> None:
        """Kernels are read as they are, windows by their places."""
        if target == self.left:
            super().slice(source, target, start, size, step, along, depth, count, k_first)
            return
        e, kernel = self.e, self.kernel
        memory = scalars.memory_type(kernel.dtype)
        for number in range(-(-count * SIMT_DEPTH // kernel.threads)):
            place = self.thread + number * kernel.threads
            line, k = place & (count - 1), place.shift_right(count.bit_length() - 1)
            pixel = self.reader.pixel(start + line)
            at, there = self.reader.place(pixel, depth + k)
            there = there & e.icmp("slt", start + line, size) & e.icmp("slt", depth + k, self.frame.k)
            there = there & e.icmp("slt", k, SIMT_DEPTH)
            loaded = e.load(e.offset(source, memory, e.select(there, at, 0)), memory, 1)
            value = e.select(there, scalars.from_memory(e, loaded, kernel.dtype), 0)
            with e.when(e.icmp("slt", k, SIMT_DEPTH)):
                e.store(value, e.offset(target, self.element, k * (count + PAD) + line))

    def store(self, sums: list[Value]) -> None:
        """The thread's part of the tile, image by image."""
        e, frame, result = self.e, self.frame, self.kernel.result
        for i in range(self.high):
            row = frame.row + self.my_row + i
            for j in range(self.wide):
                column = frame.column + self.my_column + j
                rounded = scalars.to_memory(e, scalars.round_to(e, sums[i * self.wide + j], result), result)
                with e.when(e.icmp("slt", row, frame.m) & e.icmp("slt", column, frame.n)):
                    place = self.reader.column_place(row, column)
                    e.store(rounded, e.offset(frame.c, scalars.memory_type(result), place))


@dataclass(frozen=True)
class MmaConv(MmaGemm):
    """A convolution on tensor cores."""

    windows: Windows | None = None

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Kernels are read by whole chunks."""
        return ((0, 16),)

    def text(self) -> str:
        return _MmaConvCode(self).module()


class _MmaConvCode(ReadAhead):
    """Windows of the next slice are on their way in registers while one is multiplied."""

    def __init__(self, kernel: MmaConv) -> None:
        super().__init__(kernel)
        assert kernel.windows is not None
        self.reader = WindowReader(self.e, kernel.windows)
        self.pixels: dict[int, tuple[tuple[Value, Value, Value], Value]] = {}

    def read(self, depth: Value) -> list[Value]:
        """Elements of windows."""
        e, f, kernel = self.e, self.frame, self.kernel
        found = []
        for number in range(self.columns * DEPTH // kernel.threads):
            place = self.thread + number * kernel.threads
            k = depth + place.shift_right(self.columns.bit_length() - 1)
            pixel, valid = self.pixel_of(number)
            at, there = self.reader.place(pixel, k)
            there = there & valid & e.icmp("slt", k, f.k)
            read = e.load(e.offset(f.b, "i16", e.select(there, at, 0)), "i16", 1)
            found.append(e.select(there, read, 0))
        return found

    def pixel_of(self, number: int) -> tuple[tuple[Value, Value, Value], Value]:
        """The pixel of a thread's element; there are few of them."""
        e, threads = self.e, self.kernel.threads
        key = number * threads % self.columns
        if key not in self.pixels:
            column = self.frame.column + ((self.thread + key) & (self.columns - 1))
            self.pixels[key] = self.reader.pixel(column), e.icmp("slt", column, self.frame.n)
        return self.pixels[key]

    def put(self, values: list[Value], stage: Value) -> None:
        """Elements of windows into a stage: lines of k, chunks of eight pixels, swizzled."""
        e, chunks = self.e, self.columns // CHUNK
        memory = e.shared()
        for number, value in enumerate(values):
            place = self.thread + number * self.kernel.threads
            line, column = place.shift_right(self.columns.bit_length() - 1), place & (self.columns - 1)
            at = self.swizzled(line, column.shift_right(3), chunks) + (column & 7) * 2
            e.store(value, e.offset(memory, "i8", stage + at + 2 * DEPTH * self.rows))

    def store_pair(self, row: Value, column: Value, values: list[Value]) -> None:
        """Two neighbours of a row."""
        e, frame, result = self.e, self.frame, self.kernel.result
        for n, value in enumerate(values):
            rounded = scalars.to_memory(e, scalars.round_to(e, value, result), result)
            with e.when(e.icmp("slt", column + n, frame.n)):
                place = self.reader.column_place(row, column + n)
                e.store(rounded, e.offset(frame.c, scalars.memory_type(result), place))
