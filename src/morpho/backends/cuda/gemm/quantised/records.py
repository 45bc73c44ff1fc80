"""A block of 32 quantised values as one thread reads it: its bytes in words of registers, and numbers of them."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter
from morpho.base.dtypes import float16
from morpho.ops.neural.float8 import KINDS as FLOAT8
from morpho.ops.neural.quantised import BLOCK, BOOKS, LAYOUTS


class BlockReader:
    """Writes code that reads blocks of one layout. Numbers are those of the CPU: d * q, or fma(d, q, m)."""

    def __init__(self, e: GridEmitter, kind: str) -> None:
        self.e, self.layout = e, LAYOUTS[kind]
        self.unit = 4 if self.layout.block_bytes % 4 == 0 else 2  # bytes that blocks begin on

    @property
    def words(self) -> int:
        return self.layout.block_bytes // self.unit

    def read(self, rows: str, row: Value, row_bytes: Value, block: Value, inside: Value) -> list[Value]:
        """The words of a block of a row; zeros where there is none."""
        e, kind = self.e, f"i{8 * self.unit}"
        at = e.select(inside, row * row_bytes + block * self.layout.block_bytes, 0)
        start = e.offset(rows, "i8", at)
        found = [e.load(e.offset(start, kind, n), kind, 1, align=self.unit) for n in range(self.words)]
        return [e.select(inside, word, 0) for word in found]

    def byte(self, words: list[Value], number: int) -> Value:
        """A byte of the block, in the low bits of 32."""
        word = words[number // self.unit]
        wide = word if self.unit == 4 else self.e.convert("zext", word, "i32")
        shift = 8 * (number % self.unit)
        return wide.shift_right(shift) if shift else wide

    def header(self, words: list[Value], number: int) -> Value:
        """A scale or a least value."""
        e = self.e
        if self.layout.wide:
            return e.from_bits(words[number], "float")
        if self.unit == 2:
            bits = words[number]
        else:
            both = words[number // 2]
            bits = e.convert("trunc", both.shift_right(16) if number % 2 else both, "i16")
        return scalars.from_memory(e, e.from_bits(bits, "half"), float16)

    def numbers(self, words: list[Value], first: int = 0, count: int = BLOCK) -> list[Value]:
        """So many values of the block from one on, in float32."""
        e, layout, found = self.e, self.layout, []
        headers: dict[int, list[Value]] = {}
        for number in range(first, first + count):
            group = number * layout.groups // BLOCK
            if group not in headers:
                headers[group] = [self.header(words, group * layout.headers + n) for n in range(layout.headers)]
            code = self.code(words, number)
            d, *least = headers[group]
            found.append(e.fma(d, code, least[0]) if least else d * code)
        return found

    def code(self, words: list[Value], number: int) -> Value:
        """A code as a float."""
        e, start = self.e, self.layout.header_bytes
        if self.layout.float8:
            return scalars.from_float8(e, e.convert("trunc", self.byte(words, start + number), "i8"),
                                       FLOAT8[self.layout.float8])
        if self.layout.bits == 8:
            low = self.byte(words, start + number)
            return e.convert("sitofp", (low << 24).shift_right(24, True), "float")
        low = self.byte(words, start + number % 16)
        code = (low.shift_right(4) if number >= 16 else low) & 15
        book = self.layout.book
        return scalars.from_book(e, code, BOOKS[book]) if book else e.convert("sitofp", code, "float")
