"""Products on the arithmetic units: every result is one chain of fused multiply-adds, k ascending: the CPU's bits.

A block of threads has a tile of C. Slices of A and B of `DEPTH` values of k come into shared memory, from which every
thread reads its rows and columns and keeps its part of the tile in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, WithoutMaps
from morpho.backends.cuda.driver.interface import Geometry
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

DEPTH = 16  # values of k of a slice
PAD = 4  # elements behind a row of a slice: writes of a column go to different banks


@dataclass(frozen=True)
class SimtGemm(WithoutMaps):
    """A tile of rows x columns per block, `tile[2]` x `tile[3]` of it per thread."""

    product: Kernel
    dtype: DType
    result: DType
    left: str
    right: str
    tile: tuple[int, int, int, int]
    numbers: int

    def alignments(self) -> tuple[tuple[int, int], ...]:
        return ()

    def unaligned(self) -> SimtGemm:
        return self

    def kernel(self) -> Kernel:
        return self.product

    @property
    def threads(self) -> int:
        rows, columns, high, wide = self.tile
        return (rows // high) * (columns // wide)

    @property
    def shared_bytes(self) -> int:
        """Both slices."""
        size = BITS[scalars.register_type(self.dtype)] // 8
        return self.depth * (self.tile[0] + self.tile[1] + 2 * self.pad) * max(size, 1)

    @property
    def pad(self) -> int:
        """Elements behind a row of a slice."""
        return PAD

    @property
    def depth(self) -> int:
        """Values of k of a slice."""
        return DEPTH

    def launch(self, sizes: Sizes) -> Launch:
        """A block per tile."""
        m, n = sizes.values[:2]
        batch = 1
        for count in sizes.values[9:13]:
            batch *= count
        tiles = -(-m // self.tile[0]) * -(-n // self.tile[1]) * batch
        return Launch(Geometry(max(tiles, 1), self.threads, self.shared_bytes))

    def text(self) -> str:
        return SimtCode(self).module()


class Frame:
    """Parts of the kernels of products: the numbers, the tile of this block, the addresses of its operands."""

    def __init__(self, e: GridEmitter, dtype: DType, result: DType, rows: int, columns: int, places: int = 3) -> None:
        """`places` operands, the third of them the result, or where there are others what follows the product."""
        first = int(Header.SIZE)
        numbers = [e.word(first + places + n) for n in range(25)]
        self.m, self.n, self.k, self.a_m, self.a_k, self.b_k, self.b_n, self.c_m, self.c_n = numbers[:9]
        batches, a, b, c = (numbers[9 + 4 * n:13 + 4 * n] for n in range(4))
        tiles_n = e.instruction("udiv", self.n + (columns - 1), e.constant(columns, "i64", 1))
        tiles_m = e.instruction("udiv", self.m + (rows - 1), e.constant(rows, "i64", 1))
        block = e.ask("block")
        rest = e.instruction("udiv", block, tiles_n)
        self.column = (block - rest * tiles_n) * columns
        outer = e.instruction("udiv", rest, tiles_m)
        self.row, self.matrix = (rest - outer * tiles_m) * rows, outer
        offsets = [e.constant(0, "i64", 1)] * 3
        for axis in reversed(range(4)):
            upper = e.instruction("udiv", outer, batches[axis])
            at = outer - upper * batches[axis]
            offsets = [offset + at * strides[axis] for offset, strides in zip(offsets, (a, b, c), strict=True)]
            outer = upper
        kinds = (scalars.memory_type(dtype), scalars.memory_type(dtype), scalars.memory_type(result))
        self.a, self.b, self.c = (e.offset(e.address(first + n), kind, offset)
                                  for n, (kind, offset) in enumerate(zip(kinds, offsets, strict=True)))


class SimtCode:
    """Generator of the LLVM text of one simt kernel."""

    def __init__(self, kernel: SimtGemm) -> None:
        self.kernel, self.e = kernel, GridEmitter()
        self.element = scalars.register_type(kernel.dtype)
        self.element = "i8" if self.element == "i1" else self.element
        self.rows, self.columns, self.high, self.wide = kernel.tile
        self.depth, self.pad, self.count = kernel.depth, kernel.pad, self.high * self.wide

    def module(self) -> str:
        e, kernel = self.e, self.kernel
        self.frame = frame = Frame(e, kernel.dtype, kernel.result, self.rows, self.columns)
        self.thread = e.ask("thread")
        memory = e.shared()
        self.left = memory
        self.right = e.offset(memory, self.element, self.depth * (self.rows + self.pad))
        self.find_part()
        zero = e.constant(0.0 if self.element in ("float", "double") else 0, self.element, 1)
        with e.loop(0, frame.k, self.depth, carried=[zero] * self.count) as loop:
            self.slice(frame.a, self.left, frame.row, frame.m, frame.a_m, frame.a_k, loop.index, self.rows,
                       kernel.left == "k")
            self.right_slice(loop.index)
            e.barrier()
            sums = list(loop.values)
            for depth in range(self.depth):
                sums = self.multiply(depth, sums)
            e.barrier()
            loop.next(*sums)
        self.store(loop.values)
        words = int(Header.SIZE) + 3 + kernel.numbers
        attributes = f' nounwind "nvvm.maxntid"="{kernel.threads}"'
        return entry("kernel_main", words, e.text(), attributes) + e.outside()

    def find_part(self) -> None:
        """The thread's part of the tile."""
        across = self.columns // self.wide
        self.my_row = self.e.instruction("udiv", self.thread, self.e.constant(across, "i64", 1)) * self.high
        self.my_column = (self.thread & (across - 1)) * self.wide

    def kept(self, value: Value) -> Value:
        """An element as shared memory has it."""
        return value

    def right_slice(self, depth: Value) -> None:
        """The right operand's slice."""
        frame = self.frame
        self.slice(frame.b, self.right, frame.column, frame.n, frame.b_n, frame.b_k, depth, self.columns,
                   self.kernel.right == "k")

    def slice(self, source: str, target: str, start: Value, size: Value, step: Value, along: Value, depth: Value,
              count: int, k_first: bool) -> None:
        """A slice of an operand into shared memory, k by k; what is not there is zero."""
        e, kernel = self.e, self.kernel
        for number in range(-(-count * self.depth // kernel.threads)):
            place = self.thread + number * kernel.threads
            if k_first:
                k, line = place & (self.depth - 1), place.shift_right(self.depth.bit_length() - 1)
            else:
                line = place & (count - 1)
                k = place.shift_right(count.bit_length() - 1)
            inside = e.icmp("slt", start + line, size) & e.icmp("slt", depth + k, self.frame.k)
            if count * self.depth % kernel.threads:
                inside = inside & e.icmp("slt", place, count * self.depth)
            memory = scalars.memory_type(kernel.dtype)
            offset = e.select(inside, (start + line) * step + (depth + k) * along, 0)
            loaded = scalars.from_memory(e, e.load(e.offset(source, memory, offset), memory, 1), kernel.dtype)
            loaded = e.convert("zext", loaded, "i8") if loaded.element == "i1" else loaded
            value = self.kept(e.select(inside, loaded, 0))
            at = k * (count + self.pad) + line
            if count * self.depth % kernel.threads:
                with e.when(e.icmp("slt", place, count * self.depth)):
                    e.store(value, e.offset(target, self.element, at))
            else:
                e.store(value, e.offset(target, self.element, at))

    def multiply(self, depth: int, sums: list[Value]) -> list[Value]:
        """One value of k for the thread's part of the tile."""
        e = self.e
        start = depth * (self.rows + self.pad)
        left = [e.load(e.offset(self.left, self.element, self.my_row + (start + i)), self.element, 1)
                for i in range(self.high)]
        right = [e.load(e.offset(self.right, self.element, self.my_column + (depth * (self.columns + self.pad) + j)),
                        self.element, 1) for j in range(self.wide)]
        found = []
        for i in range(self.high):
            for j in range(self.wide):
                total = sums[i * self.wide + j]
                if self.element in ("float", "double"):
                    found.append(e.fma(left[i], right[j], total))
                else:
                    found.append(total + left[i] * right[j])
        return found

    def store(self, sums: list[Value]) -> None:
        """The thread's part of the tile, rounded once."""
        e, frame, result = self.e, self.frame, self.kernel.result
        for i in range(self.high):
            row = frame.row + self.my_row + i
            for j in range(self.wide):
                column = frame.column + self.my_column + j
                value = sums[i * self.wide + j]
                if self.kernel.dtype is not result and not result.is_float:
                    value = scalars.cast(e, value, self.kernel.dtype, result)
                rounded = scalars.to_memory(e, scalars.round_to(e, value, result), result)
                with e.when(e.icmp("slt", row, frame.m) & e.icmp("slt", column, frame.n)):
                    place = row * frame.c_m + column * frame.c_n
                    e.store(rounded, e.offset(frame.c, scalars.memory_type(result), place))
