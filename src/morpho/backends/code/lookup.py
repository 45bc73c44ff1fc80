"""Tables of eight numbers, looked up in every lane at once: each vector instruction set has an instruction that picks
bytes or floats of a register by the numbers in another one. Elsewhere the numbers are read from memory one by one.
"""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value, vector_type

ENTRIES = 8
INSIDE = bytes((0, 1, 2, 3))  # the places of bytes in their number
LOWEST = "<" + ", ".join(f"i8 {n & -4}" for n in range(16)) + ">"  # the first byte of its number, for every byte


class Lookup:
    """The numbers at `index` of any table of eight floats: integers of 32 bits whose lowest byte is below eight.

    NEON needs the bytes of `INSIDE` once for every lane, at the address `inside`.
    """

    def __init__(self, e: Emitter, index: Value, inside: str) -> None:
        sizes = {"neon": (4,), "avx2": (8,), "avx512": (16, 8)}.get(e.lookups, ())
        self.e, self.index, self.lanes = e, index, index.lanes
        self.register = next((size for size in sizes if self.lanes % size == 0), 0)  # in lanes
        if self.register:
            pieces = [self._part(index, first, self.register) for first in range(0, self.lanes, self.register)]
            self.pieces = self._places(pieces, inside) if e.lookups == "neon" else pieces

    def __call__(self, row: str) -> Value:
        """The numbers of the table at this address; 64 bytes from there can be read."""
        if not self.register:
            return self._one_by_one(row)
        found = self._pick_bytes(row) if self.e.lookups == "neon" else self._permute(row)
        while len(found) > 1:
            found = [self._pair(low, high) for low, high in zip(found[::2], found[1::2], strict=True)]
        return found[0]

    # -- pieces of one register ----------------------------------------------------------------------------------------
    def _part(self, value: Value, first: int, count: int) -> Value:
        if count == value.lanes:
            return value
        mask = ", ".join([f"i32 {first + n}" for n in range(count)])
        return self.e.assign(f"shufflevector {value.type} {value.name}, {value.type} poison, <{count} x i32> <{mask}>",
                             value.element, count)

    def _pair(self, low: Value, high: Value) -> Value:
        mask = ", ".join([f"i32 {n}" for n in range(2 * low.lanes)])
        return self.e.assign(f"shufflevector {low.type} {low.name}, {low.type} {high.name}, "
                             f"<{2 * low.lanes} x i32> <{mask}>", low.element, 2 * low.lanes)

    # -- NEON: 32 bytes in two registers -------------------------------------------------------------------------------
    def _as_bytes(self, value: Value) -> Value:
        return self.e.assign(f"bitcast {value.type} {value.name} to <16 x i8>", "i8", 16)

    def _bytes_by(self, function: str, *arguments: Value, last: str = "") -> Value:
        """Result of an instruction for bytes."""
        name = f"@llvm.aarch64.neon.{function}.v16i8"
        types = ["<16 x i8>"] * len(arguments) + ["i32"] * bool(last)
        given = ", ".join([f"{kind} {text}" for kind, text in zip(types, [*(a.name for a in arguments), last])])
        self.e.declarations.add(f"declare <16 x i8> {name}({', '.join(types)})")
        return self.e.assign(f"call <16 x i8> {name}({given})", "i8", 16)

    def _places(self, pieces: list[Value], inside: str) -> list[Value]:
        """The places of the four bytes of every number: its lowest byte four times, shifted left by two bits and put
        before 0, 1, 2 and 3. (A product by 0x04040404 would keep one of two units busy for two cycles.)"""
        found, each = [], self.e.load(inside, "i8", 4 * self.lanes, align=16)
        for number, piece in enumerate(pieces):
            lowest = self._bytes_by("tbl1", self._as_bytes(piece), Value(self.e, LOWEST, "i8", 16))
            found.append(self._bytes_by("vsli", self._part(each, 16 * number, 16), lowest, last="2"))
        return found

    def _pick_bytes(self, row: str) -> list[Value]:
        halves = [self.e.load(at, "i8", 16, align=16) for at in (row, self.e.offset(row, "i8", 16))]
        picked = [self._bytes_by("tbl2", *halves, places) for places in self.pieces]
        return [self.e.assign(f"bitcast <16 x i8> {each.name} to <4 x float>", "float", 4) for each in picked]

    # -- AVX2 and AVX-512: a whole register, of which the first eight numbers matter ---------------------------------
    def _permute(self, row: str) -> list[Value]:
        e, width = self.e, self.register
        function = {8: "llvm.x86.avx2.permps", 16: "llvm.x86.avx512.permvar.sf.512"}[width]
        kind, numbers = vector_type("float", width), vector_type("i32", width)
        e.declarations.add(f"declare {kind} @{function}({kind}, {numbers})")
        table = e.load(row, "float", width, align=16)
        return [e.assign(f"call {kind} @{function}({kind} {table.name}, {numbers} {piece.name})", "float", width)
                for piece in self.pieces]

    # -- elsewhere -----------------------------------------------------------------------------------------------------
    def _one_by_one(self, row: str) -> Value:
        e, lanes = self.e, self.lanes
        place, at = e.convert("zext", self.index & (ENTRIES - 1), "i64"), "%" + e.fresh("p")
        e.line(f"{at} = getelementptr float, ptr {row}, {place.type} {place.name}")
        if lanes == 1:
            return e.load(at, "float", 1)
        kind, mask, pointers = (vector_type(element, lanes) for element in ("float", "i1", "ptr"))
        name = f"llvm.masked.gather.v{lanes}f32.v{lanes}p0"
        e.declarations.add(f"declare {kind} @{name}({pointers}, i32, {mask}, {kind})")
        return e.assign(f"call {kind} @{name}({pointers} {at}, i32 4, {mask} splat (i1 true), {kind} poison)",
                        "float", lanes)
