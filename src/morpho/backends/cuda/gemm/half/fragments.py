"""Operands of `mma.sync` in shared memory: lines of chunks of 16 bytes, swizzled, and the fragments a warp reads."""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.base.dtypes import DType, bfloat16

CHUNK = 8  # elements of 16 bytes
FOUR = "{ i32, i32, i32, i32 }"


class Fragments:
    """Writes copies and instructions; offsets are bytes of the block's shared memory."""

    def __init__(self, e: GridEmitter, dtype: DType) -> None:
        self.e = e
        self.mma = "mma_bf16" if dtype is bfloat16 else "mma_f16"

    def number(self, value: int) -> Value:
        """A constant."""
        return self.e.constant(value, "i64", 1)

    def swizzled(self, line: Value, chunk: Value, length: int) -> Value:
        """Where a chunk of a line of so many elements lies: eight lines of a fragment are in different banks."""
        chunks = length // CHUNK
        return (line * chunks + (chunk ^ (line & min(7, chunks - 1)))) * 16

    def fetch_lines(self, source: str, first: Value, size: Value, step: Value, depth: int, length: int, count: int,
                    stage: Value, thread: Value, threads: int, aligned: bool) -> None:
        """Queue `count` lines of `depth` elements from the line `first` on; what is not there is zero."""
        e, chunks = self.e, length // CHUNK
        for number in range(-(-count * chunks // threads)):
            place = thread + number * threads
            line, chunk = place.shift_right(chunks.bit_length() - 1), place & (chunks - 1)
            inside = e.icmp("slt", first + line, size)
            if depth < length:
                inside = inside & e.icmp("slt", chunk, depth // CHUNK)
            offset = e.select(inside, (first + line) * step + chunk * CHUNK, 0)
            target = stage + self.swizzled(line, chunk, length)
            if count * chunks % threads:
                with e.when(e.icmp("slt", place, count * chunks)):
                    self.fetch(e.offset(source, "i16", offset), inside, target, aligned)
            else:
                self.fetch(e.offset(source, "i16", offset), inside, target, aligned)

    def fetch(self, source: str, inside: Value, target: Value, aligned: bool) -> None:
        """Queue one chunk, or copy it element by element."""
        e = self.e
        if aligned:
            nbytes = e.select(inside, e.constant(16, "i32", 1), e.constant(0, "i32", 1))
            at = e.convert("trunc", target, "i32")
            e.line(f"call void @gpu.cp_async(ptr %ctx, i32 {at.name}, ptr {source}, i32 {nbytes.name})")
            return
        place = e.offset(e.shared(), "i8", target)
        for number in range(CHUNK):
            at_ = e.select(inside, e.constant(number, "i64", 1), 0)
            value = e.load(e.offset(source, "i16", at_), "i16", 1)
            e.store(e.select(inside, value, 0), e.offset(place, "i16", number))

    # -- shared to registers -------------------------------------------------------------------------------------------
    def read(self, at: Value, turned: bool) -> list[str]:
        """Four matrices of 8 x 8, whose lines the lanes point at."""
        e, name = self.e, "%" + self.e.fresh("f")
        place = e.convert("trunc", at, "i32")
        e.line(f"{name} = call {FOUR} @gpu.ldmatrix{'_trans' if turned else ''}(ptr %ctx, i32 {place.name})")
        return [e.assign(f"extractvalue {FOUR} {name}, {n}", "i32", 1).name for n in range(4)]

    def by_rows(self, base: Value, row: Value, step: int, length: int, lane: Value) -> list[str]:
        """A's 16 x 16: rows are lines, k lies along them."""
        line = row + (lane & 15)
        return self.read(base + self.swizzled(line, lane.shift_right(4) + 2 * step, length), False)

    def of_lines(self, base: Value, column: int, step: int, length: int, lane: Value) -> list[str]:
        """B's 16 x 16: columns are lines, k lies along them; two registers of each 8 columns."""
        line = (lane & 7) + (lane.shift_right(4) << 3) + column
        return self.read(base + self.swizzled(line, (lane.shift_right(3) & 1) + 2 * step, length), False)

    def across_lines(self, base: Value, column: int, step: int, length: int, lane: Value) -> list[str]:
        """B's 16 x 16: k goes from line to line, columns lie along them."""
        line = (lane & 15) + 16 * step
        return self.read(base + self.swizzled(line, lane.shift_right(4) + column // CHUNK, length), True)

    def multiply(self, a: list[str], b: list[str], c: list[Value]) -> list[Value]:
        """C + A B for 16 x 8 results."""
        e, kind = self.e, "{ float, float, float, float }"
        given = ", ".join([*(f"i32 {x}" for x in (*a, *b)), *(f"float {x.name}" for x in c)])
        name = "%" + e.fresh("d")
        e.line(f"{name} = call {kind} @gpu.{self.mma}(ptr %ctx, {given})")
        return [e.assign(f"extractvalue {kind} {name}, {n}", "float", 1) for n in range(4)]
