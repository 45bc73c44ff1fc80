"""Elements as integer keys that have their order."""

from __future__ import annotations

from morpho.backends.code.emit import BITS, Emitter, Value
from morpho.base.dtypes import DType, bfloat16, float16, float32, float64

INFINITY = {float16: 0x7C00, bfloat16: 0x7F80, float32: 0x7F800000, float64: 0x7FF0000000000000}
QUIET = {float16: 0x7E00, bfloat16: 0x7FC0, float32: 0x7FC00000, float64: 0x7FF8000000000000}


class Keys:
    """To keys and back. `canonical` keys of -0.0 and 0.0 are one; there is no way back from those. `signed` keys have
    the order of signed integers, the others that of unsigned ones."""

    def __init__(self, e: Emitter, dtype: DType, descending: bool, canonical: bool = False,
                 signed: bool = False) -> None:
        self.e, self.dtype, self.descending, self.canonical, self.signed = e, dtype, descending, canonical, signed
        self.element = f"i{8 * dtype.itemsize}"
        self.sign = -(1 << (BITS[self.element] - 1))
        self.magnitude = (1 << (BITS[self.element] - 1)) - 1

    def of(self, bits: Value) -> Value:
        e = self.e
        if self.dtype.is_float:
            filled = bits.shift_right(BITS[self.element] - 1, arithmetic=True)
            key = bits ^ (filled | self.sign)
            nan = e.icmp("ugt", bits & self.magnitude, INFINITY[self.dtype])
            key = e.select(nan, -1, key)
            if self.canonical:
                key = e.select(e.icmp("eq", bits, self.sign), self.sign, key)
        else:
            key = bits ^ self.sign if self.dtype.kind == "i" else bits
        key = key ^ self.sign if self.signed else key
        return key ^ -1 if self.descending else key

    def back(self, key: Value) -> Value:
        e = self.e
        key = key ^ self.sign if self.signed else key
        key = key ^ -1 if self.descending else key
        if self.dtype.is_float:
            filled = (key ^ -1).shift_right(BITS[self.element] - 1, arithmetic=True)
            bits = key ^ (filled | self.sign)
            return e.select(e.icmp("eq", key, -1), QUIET[self.dtype], bits)
        return key ^ self.sign if self.dtype.kind == "i" else key

    def digit(self, key: Value, number: int) -> Value:
        """A byte of the key, as an index."""
        part = key.shift_right(8 * number) if number else key
        byte = part if self.element == "i8" else part & 0xFF
        return self.e.convert("zext", byte, "i64") if self.element != "i64" else byte

    def zero_range(self) -> tuple[int, int]:
        """The keys of the two zeros, in order."""
        if self.signed:
            return -1, 0  # also when descending: -1 and 0 change places
        top = 1 << (BITS[self.element] - 1)
        return top - 1, top
