"""The functions of `RoundRowsKernel` and `RoundedKernel`.

A group of four codes is one i32 in every lane. Weights are unsigned, rows signed: AVX-512 with VNNI multiplies and
adds a group by `vpdpbusd`, AArch64 with dot products by `sdot` (of weights brought back below 128), other x86 by
`pmaddwd` on pairs of 16 bits, and what has none of these byte by byte; several rows go through matrix instructions
where there are any (`rounded_matrix.py`). The sums are whole numbers below 2**24: all have the same bits.
"""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import CACHE_LINE, Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.gemm.amx.amx import SIDE
from morpho.backends.kernels.quantised.int8_code import PAIRS, by_dot
from morpho.backends.kernels.quantised.quantised_code import AHEAD
from morpho.backends.kernels.quantised.rounded import PRODUCT, ROW, RoundedKernel, RoundRowsKernel
from morpho.backends.kernels.quantised.rounded_matrix import TileDots, by_matrix, pair_dots
from morpho.base.dtypes import float16
from morpho.base.machine import Isa
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.ops.neural.rounded import GROUP, LEAST, RECORD, WIDTH, added_to_codes

ROWS = 4  # that share what is read of a panel
MAGIC = 12582912.0  # 1.5 * 2**23: adding and subtracting it rounds to whole numbers, ties to even


def generate(kernel: RoundRowsKernel | RoundedKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel."""
    if isinstance(kernel, RoundRowsKernel):
        return RoundRowsCode(isa).module(name)
    return RoundedCode(kernel, isa).module(name)


def _module(e: Emitter, name: str) -> str:
    e.line("ret i32 0")
    return defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n"


class RoundRowsCode:
    """Writes the code that makes records of rows, a block of 32 values in registers at a time."""

    def __init__(self, isa: Isa) -> None:
        self.lanes = max(isa.vector_bits // 32, 1)
        self.e = Emitter(self.lanes, isa.native_half)

    def module(self, name: str) -> str:
        e = self.e
        source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        v = ROW.load(e)
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            line = e.offset(source, "float", rows.index * v["row_stride"])
            records = e.offset(target, "i8", rows.index * v["blocks"] * RECORD)
            with e.loop(0, v["blocks"]) as blocks:
                self.block(e.offset(line, "float", blocks.index * BLOCK),
                           e.offset(records, "i8", blocks.index * RECORD))
        return _module(e, name)

    def reduced(self, name: str, parts: list[Value]) -> Value:
        """All lanes of some vectors of i32 by an operation whose order does not matter."""
        e, total = self.e, parts[0]
        for part in parts[1:]:
            total = e.intrinsic("umax", total, part) if name == "umax" else total + part
        if total.lanes == 1:
            return total
        e.declarations.add(f"declare i32 @llvm.vector.reduce.{name}.v{total.lanes}i32({total.type})")
        return e.assign(f"call i32 @llvm.vector.reduce.{name}.v{total.lanes}i32({total.type} {total.name})", "i32", 1)

    def block(self, source: str, record: str) -> None:
        e, lanes = self.e, self.lanes
        values = [e.load(e.offset(source, "float", at), "float", lanes) for at in range(0, BLOCK, lanes)]
        # As bits without a sign, larger numbers are larger, infinities larger still, and NaN the largest.
        most = e.from_bits(self.reduced("umax", [e.bits(value) & 0x7FFFFFFF for value in values]), "float")
        tiny = e.fcmp("olt", most, LEAST)
        zero = e.constant(0.0, "float", 1)
        inverse = e.select(tiny, zero, e.constant(127.0, "float", 1) / most)
        scale = e.select(tiny, zero, most / 127.0 + (most - most))
        codes = []
        for value in values:
            scaled = value * e.splat(inverse, lanes)
            whole = (scaled + MAGIC) - MAGIC
            codes.append(e.convert("fptosi", e.select(e.is_nan(whole), 0.0, whole), "i32"))
        e.store(scale, record)
        e.store(self.reduced("add", codes), e.offset(record, "i32", 1))
        for number, code in enumerate(codes):
            e.store(e.convert("trunc", code, "i8"), e.offset(record, "i8", 8 + number * lanes))


class RoundedCode:
    """Writes the code of a product."""

    def __init__(self, kernel: RoundedKernel, isa: Isa) -> None:
        self.isa, self.layout = isa, LAYOUTS[kernel.kind]
        self.lanes = max(min(isa.vector_bits // 32, WIDTH), 1)
        self.vectors = WIDTH // self.lanes
        self.e = Emitter(self.lanes, isa.native_half)
        self.by_dot, self.by_matrix = by_dot(isa), by_matrix(isa)
        name, needed = PAIRS.get(isa.vector_bits, ("", ""))
        usable = not needed or needed in isa.llvm_features.split(",")
        self.by_pairs = name if isa.architecture == "x86_64" and usable else ""
        self.bytes = WIDTH * self.layout.block_bytes
        self.wide = self.layout.bits == 8  # codes are stored with 128 added
        self.added_power = added_to_codes(kernel.kind).bit_length() - 1  # 2 to this was added to codes; -1: nothing

    def module(self, name: str) -> str:
        e = self.e
        self.rows_at, self.panels_at, self.result = (e.load_pointer("%buffers", i) for i in range(3))
        self.v = v = PRODUCT.load(e)
        tiles, tiled = TileDots(e) if self.by_matrix == "tiles" else None, e.constant(0, "i64", 1)
        if tiles is not None:
            tiled = v["rows"] & -SIDE
            with e.when(e.icmp("ne", tiled, 0)):
                tiles.begin()
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as panels:
            self.column = panels.index * WIDTH
            panel = e.offset(self.panels_at, "i8", panels.index * v["blocks"] * self.bytes)
            if tiles is not None:
                with e.loop(0, tiled, SIDE) as several:
                    self.matrix(tiles, panel, several.index)
            whole = e.constant(0, "i64", 1)
            if self.lanes > 1:
                whole = v["rows"] & -ROWS
                with e.loop(tiled, whole, ROWS) as several:
                    self.tile(panel, several.index, ROWS)
            with e.loop(whole, v["rows"]) as single:
                self.tile(panel, single.index, 1)
        if tiles is not None:
            with e.when(e.icmp("ne", tiled, 0)):
                tiles.end()
        return _module(e, name)

    def matrix(self, tiles: TileDots, panel: str, first: Value) -> None:
        """16 rows times one panel by AMX."""
        e, v = self.e, self.v
        line = e.offset(self.rows_at, "i8", first * v["row_bytes"])
        with e.loop(0, v["blocks"], carried=[e.constant(0.0, "float", self.lanes)] * SIDE) as blocks:
            record = e.offset(panel, "i8", blocks.index * self.bytes)
            at = e.offset(line, "i8", blocks.index * RECORD)
            codes = e.offset(record, "i8", 2 * self.layout.headers * WIDTH)
            dots = tiles.dots(codes, e.offset(at, "i8", 8), v["row_bytes"], self.parts, self.layout.bits)
            lines = [e.offset(at, "i8", v["row_bytes"] * row) for row in range(SIDE)]
            totals = [e.load(e.offset(one, "i32", 1), "i32", 1, 4) for one in lines]
            dots = [self.brought_back(dot, total) for dot, total in zip(dots, totals, strict=True)]
            blocks.next(*self.added(record, lines, totals, dots, list(blocks.values)))
        for row in range(SIDE):
            self.store([blocks.values[row]], first + row)

    def tile(self, panel: str, first: Value, height: int) -> None:
        """Some rows times one panel."""
        e, v = self.e, self.v
        lines = [e.offset(self.rows_at, "i8", (first + row) * v["row_bytes"]) for row in range(height)]
        start = [e.constant(0.0, "float", self.lanes)] * (height * self.vectors)
        with e.loop(0, v["blocks"], carried=start) as blocks:
            record = e.offset(panel, "i8", blocks.index * self.bytes)
            at = [e.offset(line, "i8", blocks.index * RECORD) for line in lines]
            if self.isa.architecture == "x86_64":
                for line in range(0, self.bytes, CACHE_LINE):
                    e.prefetch(e.offset(record, "i8", AHEAD + line), 2)
            blocks.next(*self.block(record, at, list(blocks.values)))
        for row in range(height):
            self.store(blocks.values[row * self.vectors:(row + 1) * self.vectors], first + row)

    def block(self, record: str, lines: list[str], sums: list[Value]) -> list[Value]:
        e = self.e
        codes = e.offset(record, "i8", 2 * self.layout.headers * WIDTH)
        totals = [e.load(e.offset(line, "i32", 1), "i32", 1, 4) for line in lines]
        if self.by_matrix == "smmla" and len(lines) % 2 == 0:
            dots = pair_dots(e, codes, lines, self.parts, self.layout.bits)
            if not self.wide:  # `parts` has brought those back
                dots = [self.brought_back(dot, totals[place // self.vectors]) for place, dot in enumerate(dots)]
        else:
            dots = self.dots(codes, lines, totals)
        return self.added(record, lines, totals, dots, sums)

    def added(self, record: str, lines: list[str], totals: list[Value], dots: list[Value],
              sums: list[Value]) -> list[Value]:
        """The chains of all rows with one more block."""
        e = self.e
        headers = [[self.header(record, h * WIDTH + v * self.lanes) for v in range(self.vectors)]
                   for h in range(self.layout.headers)]
        for row, line in enumerate(lines):
            scale = e.splat(e.load(line, "float", 1, 4), self.lanes)
            whole = e.splat(e.convert("sitofp", totals[row], "float"), self.lanes)
            for v in range(self.vectors):
                place = row * self.vectors + v
                sums[place] = e.fma(scale * headers[0][v], e.convert("sitofp", dots[place], "float"), sums[place])
                if self.layout.headers == 2:
                    sums[place] = e.fma(scale * headers[1][v], whole, sums[place])
        return sums

    def header(self, record: str, index: int) -> Value:
        e = self.e
        return scalars.from_memory(e, e.load(e.offset(record, "half", index), "half", self.lanes), float16)

    def dots(self, codes: str, lines: list[str], totals: list[Value]) -> list[Value]:
        """The dot products of a block's codes, in whole numbers."""
        e = self.e
        zero = e.constant(0, "i32", self.lanes)
        moved = not self.wide or self.by_dot != "neon"  # else `parts` brings them back
        begin = [self.brought_back(zero, total) if moved else zero for total in totals]
        found = [begin[row] for row in range(len(lines)) for _ in range(self.vectors)]
        span = BLOCK * self.layout.bits // 8
        if self.by_dot:
            for at in range(0, span, GROUP):
                found = self.group(e.constant(at, "i64", 1), span, codes, lines, found)
            return found
        with e.loop(0, span, GROUP, carried=found) as groups:  # many instructions each: not one after another
            groups.next(*self.group(groups.index, span, codes, lines, list(groups.values)))
        return groups.values

    def brought_back(self, dot: Value, total: Value) -> Value:
        """A dot product without what was added to each weight: so many times the sum of the row's codes is too much."""
        return dot if self.added_power < 0 else dot - self.e.splat(total << self.added_power, dot.lanes)

    def group(self, at: Value, span: int, codes: str, lines: list[str], found: list[Value]) -> list[Value]:
        """The bytes `at` to `at` + 3 of all columns' codes."""
        e = self.e
        base = e.offset(codes, "i8", at * WIDTH)
        for v in range(self.vectors):
            stored = e.load(e.offset(base, "i8", v * self.lanes * GROUP), "i32", self.lanes)
            for part, weights in enumerate(self.parts(stored)):
                for row, line in enumerate(lines):
                    group = e.load(e.offset(e.offset(line, "i8", at), "i8", 8 + part * span), "i32", 1, 1)
                    place = row * self.vectors + v
                    found[place] = self.dot(found[place], weights, e.splat(group, self.lanes))
        return found

    def parts(self, stored: Value) -> list[Value]:
        """Groups of codes in a byte each: those of 8 bits as they are, of 4 bits the low halves and the high ones."""
        if self.wide:
            return [stored ^ -0x7F7F7F80] if self.by_dot == "neon" else [stored]
        return [stored & 0x0F0F0F0F, stored.shift_right(4) & 0x0F0F0F0F]

    def dot(self, total: Value, weights: Value, group: Value) -> Value:
        """Unsigned weights times signed codes of a row, four products added in every lane."""
        e, lanes = self.e, self.lanes
        if self.by_dot:
            name = {"vnni": "llvm.x86.avx512.vpdpbusd.512", "neon": "llvm.aarch64.neon.sdot.v4i32.v16i8"}[self.by_dot]
            kind, bytes_of = f"<{lanes} x i32>", f"<{4 * lanes} x i8>"
            e.declarations.add(f"declare {kind} @{name}({kind}, {bytes_of}, {bytes_of})")
            a, b = (e.assign(f"bitcast {x.type} {x.name} to {bytes_of}", "i8", 4 * lanes) for x in (weights, group))
            return e.assign(f"call {kind} @{name}({kind} {total.name}, {bytes_of} {a.name}, {bytes_of} {b.name})",
                            "i32", lanes)
        if self.by_pairs:
            for a, b in zip(self.pairs(weights, False), self.pairs(group, True), strict=True):
                e.declarations.add(f"declare <{lanes} x i32> @llvm.x86.{self.by_pairs}({a.type}, {a.type})")
                total = total + e.assign(f"call <{lanes} x i32> @llvm.x86.{self.by_pairs}({a.type} {a.name}, {b.type} "
                                         f"{b.name})", "i32", lanes)
            return total
        for j in range(GROUP):
            a = (weights << (24 - 8 * j)).shift_right(24)
            total = total + a * (group << (24 - 8 * j)).shift_right(24, True)
        return total

    def pairs(self, groups: Value, signed: bool) -> list[Value]:
        """Bytes 0 and 2, then 1 and 3, as pairs of 16 bits."""
        lanes = 2 * groups.lanes
        halves = self.e.assign(f"bitcast {groups.type} {groups.name} to <{lanes} x i16>", "i16", lanes)
        return [(halves << 8).shift_right(8, signed), halves.shift_right(8, signed)]

    def store(self, sums: list[Value], row: Value) -> None:
        """A row's 16 results, or those that there are."""
        e, v = self.e, self.v
        line = e.offset(e.offset(self.result, "float", row * v["result_stride"]), "float", self.column)
        left = v["n"] - self.column
        for number, total in enumerate(sums):
            place, at = e.offset(line, "float", number * self.lanes), number * self.lanes
            if self.lanes == 1:
                with e.when(e.icmp("sgt", left, at)):
                    e.store(total, place)
                continue
            count = e.intrinsic("smax", left - at, e.constant(0, "i64", 1))
            e.store_some(total, place, e.first_lanes(count))
