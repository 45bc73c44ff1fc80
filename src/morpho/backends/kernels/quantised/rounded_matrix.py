"""Dot products of rounded rows by matrix instructions: AMX's `tdpbsud`, 16 rows at a time, and AArch64's `smmla`, two
at a time. Sums of a block are whole numbers below 2**24: the bits are those of any other instruction.

A panel's codes are a tile of AMX as they lie: 8 groups of four values of k by 16 outputs. So are the codes of 16 rows,
a line each. Codes of 4 bits are unpacked into memory first, once for all rows. `smmla` takes 8 values of k of two rows
and of two outputs, for which two groups are put one into the other.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.gemm.amx.amx import LINE_BYTES, SIDE
from morpho.backends.kernels.gemm.amx.amx_code import call, configure, release
from morpho.base.machine import Isa
from morpho.ops.neural.quantised import BLOCK
from morpho.ops.neural.rounded import GROUP, WIDTH

SUMS, ROWS, CODES = 0, 4, 6  # registers
LINES = BLOCK // GROUP  # of a block's codes
# Palette 1; from byte 16 on the bytes of a line of each of eight tiles, from byte 48 on their lines.
_LINE_BYTES = {SUMS: LINE_BYTES, ROWS: BLOCK, CODES: LINE_BYTES}
_LINES = {SUMS: SIDE, ROWS: SIDE, CODES: LINES}
SHAPES = bytes([1] + [0] * 15 + [byte for tile in range(8) for byte in (_LINE_BYTES.get(tile, 0), 0)] + [0] * 16
               + [_LINES.get(tile, 0) for tile in range(8)] + [0] * 8)
SMMLA = "llvm.aarch64.neon.smmla.v4i32.v16i8"
Parts = Callable[[Value], list[Value]]


def by_matrix(isa: Isa) -> str:
    """The matrix instructions that blocks are multiplied by: `tiles` (AMX), `smmla` (AArch64's i8mm) or none."""
    features = isa.llvm_features.split(",")
    if isa.architecture == "aarch64" and isa.vector_bits == 128 and {"+dotprod", "+i8mm"} <= {*features}:
        return "smmla"
    return "tiles" if isa.matrix_units and isa.vector_bits == 512 else ""


class TileDots:
    """The dot products of 16 rows with a panel's block, by AMX. Memory for them is the function's own."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        e.line(f"%tile_sums = alloca [{SIDE * LINE_BYTES} x i8], align 64")
        e.line(f"%tile_codes = alloca [{LINES * LINE_BYTES} x i8], align 64")

    def begin(self) -> None:
        configure(self.e, SHAPES)

    def end(self) -> None:
        release(self.e)

    def dots(self, codes: str, rows: str, row_bytes: Value, parts: Parts, bits: int) -> list[Value]:
        """Vectors of 16 sums, one for each row; `rows` is where the first row's codes stand."""
        e = self.e
        if bits != 8:
            codes = self.unpacked(codes, parts)
        self.load(CODES, codes, e.constant(LINE_BYTES, "i64", 1))
        self.load(ROWS, rows, row_bytes)
        call(e, "tilezero", f"i8 {SUMS}")
        call(e, "tdpbsud", f"i8 {SUMS}", f"i8 {ROWS}", f"i8 {CODES}")
        call(e, "tilestored64", f"i8 {SUMS}", "ptr %tile_sums", f"i64 {LINE_BYTES}")
        return [e.load(e.offset("%tile_sums", "i8", row * LINE_BYTES), "i32", WIDTH) for row in range(SIDE)]

    def load(self, tile: int, place: str, stride: Value) -> None:
        call(self.e, "tileloadd64", f"i8 {tile}", f"ptr {place}", f"i64 {stride.name}")

    def unpacked(self, codes: str, parts: Parts) -> str:
        """Codes of 4 bits in bytes: the low halves are the first values of k, the high ones the last."""
        e = self.e
        for line in range(LINES // 2):
            stored = e.load(e.offset(codes, "i8", line * LINE_BYTES), "i32", WIDTH)
            for part, values in enumerate(parts(stored)):
                e.store(values, e.offset("%tile_codes", "i8", (part * LINES // 2 + line) * LINE_BYTES))
        return "%tile_codes"


def pair_dots(e: Emitter, codes: str, lines: list[str], parts: Parts, bits: int) -> list[Value]:
    """The dot products of pairs of rows with a panel's block, by `smmla`: for each row four vectors of four sums."""
    lanes, span = 4, BLOCK * bits // 8
    vectors = WIDTH // lanes
    zero = e.constant(0, "i32", lanes)
    found = [[[zero, zero] for _ in range(vectors)] for _ in lines[::2]]  # by pair, by four outputs, by two of them
    for at in range(0, span, 2 * GROUP):
        rows = [[_both(e, first, second, 8 + part * span + at) for part in range(BLOCK // span)]
                for first, second in zip(lines[::2], lines[1::2], strict=True)]
        for v in range(vectors):
            groups = [parts(e.load(e.offset(codes, "i8", (at + step) * WIDTH + v * lanes * GROUP), "i32", lanes))
                      for step in (0, GROUP)]
            for part, (low, high) in enumerate(zip(*groups, strict=True)):
                for half, places in enumerate(("0, 4, 1, 5", "2, 6, 3, 7")):
                    weights = _bytes(e, _shuffled(e, low, high, places))
                    for pair in range(len(rows)):
                        found[pair][v][half] = _multiplied(e, found[pair][v][half], rows[pair][part], weights)
    return [_shuffled(e, found[row // 2][v][0], found[row // 2][v][1], "2, 3, 6, 7" if row % 2 else "0, 1, 4, 5")
            for row in range(len(lines)) for v in range(vectors)]


def _both(e: Emitter, first: str, second: str, at: int) -> Value:
    """Eight codes of two rows side by side."""
    one, two = (e.load(e.offset(line, "i8", at), "i64", 1, 1) for line in (first, second))
    lower = e.assign(f"insertelement <2 x i64> poison, i64 {one.name}, i32 0", "i64", 2)
    return _bytes(e, e.assign(f"insertelement <2 x i64> {lower.name}, i64 {two.name}, i32 1", "i64", 2))


def _bytes(e: Emitter, value: Value) -> Value:
    return e.assign(f"bitcast {value.type} {value.name} to <16 x i8>", "i8", 16)


def _shuffled(e: Emitter, a: Value, b: Value, places: str) -> Value:
    mask = ", ".join(f"i32 {place}" for place in places.split(", "))
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <4 x i32> <{mask}>", "i32", 4)


def _multiplied(e: Emitter, total: Value, rows: Value, weights: Value) -> Value:
    e.declarations.add(f"declare <4 x i32> @{SMMLA}(<4 x i32>, <16 x i8>, <16 x i8>)")
    return e.assign(f"call <4 x i32> @{SMMLA}(<4 x i32> {total.name}, <16 x i8> {rows.name}, <16 x i8> "
                    f"{weights.name})", "i32", 4)
