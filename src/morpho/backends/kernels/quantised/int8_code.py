"""The functions of `Int8GemmKernel` and `Int8PackKernel`.

A group of four bytes is one i32 in registers. AArch64 with the dot-product extension and AVX-512 with VNNI multiply and
add a group in every lane by one instruction; other x86 splits a group into two pairs of 16 bits and adds their products
by `pmaddwd`; elsewhere the bytes are widened one by one. Dot products of AArch64 want operands of one sign, those of
VNNI of different ones: where they are not so, the left one is moved by 128 into the other range, and 128 times the sums
of the right columns is put right at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.backends.code.emit import Value
from morpho.backends.kernels.gemm.gemm_code import GemmCode
from morpho.backends.kernels.gemm.microkernel import MicroKernel
from morpho.backends.kernels.gemm.packing.pack_code import PanelCode
from morpho.backends.kernels.gemm.packing.row_packers import RowPacker
from morpho.backends.kernels.gemm.tiling import Register
from morpho.backends.kernels.quantised.int8 import GROUP, Int8GemmKernel, Int8PackKernel
from morpho.base.machine import Isa

PAIRS = {128: ("sse2.pmadd.wd", ""), 256: ("avx2.pmadd.wd", "+avx2"), 512: ("avx512.pmaddw.d.512", "+avx512bw")}


def generate(kernel: Int8GemmKernel | Int8PackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a product of bytes, or of the packing of its right operand."""
    if isinstance(kernel, Int8PackKernel):
        return Int8PackCode(kernel, isa).module(name)
    return Int8Code(kernel, isa).module(name)


def by_dot(isa: Isa) -> str:
    """The dot-product instructions by which groups are multiplied: `neon`, `vnni` or none."""
    features = isa.llvm_features.split(",")
    if isa.vector_bits == 128 and isa.architecture == "aarch64" and "+dotprod" in features:
        return "neon"
    return "vnni" if isa.vector_bits == 512 and "+avx512vnni" in features else ""


def is_moved(kernel: Int8GemmKernel, isa: Isa) -> bool:
    """Whether the left operand has the wrong sign for the dot product."""
    return {"neon": kernel.left_signed != kernel.right_signed,
            "vnni": kernel.left_signed == kernel.right_signed}.get(by_dot(isa), False)


def groups_of(count: Value) -> Value:
    return (count + (GROUP - 1)).shift_right(2)


class Int8MicroKernel(MicroKernel):
    """Sums of `height` rows x one panel over groups of k."""

    def __init__(self, kernel: Int8GemmKernel, height: int, register: Register, isa: Isa) -> None:
        super().__init__(kernel, height, register, isa)
        self.signed = (kernel.left_signed, kernel.right_signed)
        self.by_dot = by_dot(isa)
        self.moved = is_moved(kernel, isa)
        name, needed = PAIRS.get(isa.vector_bits, ("", ""))
        usable = not needed or needed in isa.llvm_features.split(",")
        self.by_pairs = name if isa.architecture == "x86_64" and usable else ""

    def write(self) -> str:
        e, vectors = self.e, self.register.vectors
        columns = [e.constant(0, "i32")] * vectors if self.moved else []  # sums of the right operand's columns
        found = self.chain(self.start() + columns, e.constant(0, "i64", 1),
                           groups_of(self.function.number("%count")), 1)
        sums = found[:self.height * vectors]
        if self.moved:
            extra = [total << 7 for total in found[len(sums):]]
            sums = [total - extra[i % vectors] if self.signed[0] else total + extra[i % vectors]
                    for i, total in enumerate(sums)]
        self.store(sums, "%tile")
        return self.function.text()

    def chain(self, sums: list[Value], first: Value, last: Value, step: int) -> list[Value]:
        """A group is one instruction of dot products, unrolled as ever, and many instructions elsewhere."""
        if self.by_dot:
            return super().chain(sums, first, last, step)
        with self.e.loop(first, last, step, carried=sums) as loop:
            left = self.left_values(loop.index, 1)
            loop.next(*self.multiply_add(list(loop.values), lambda row: left(0, row), loop.index))
        return loop.values

    def multiply_add(self, sums: list[Value], left: Callable[[int], Value], k: Value) -> list[Value]:
        e, vectors, lanes = self.e, self.register.vectors, self.register.lanes
        panel = e.offset("%b", "i32", k * self.register.width)
        right = [e.load(e.offset(panel, "i32", v * lanes), "i32") for v in range(vectors)]
        if self.by_dot:
            ones = e.constant(0x01010101, "i32")
            lines = [left(row) for row in range(self.height)] + [ones] * self.moved
            return [self.dot(total, right[i % vectors], lines[i // vectors]) for i, total in enumerate(sums)]
        split = self.pairs if self.by_pairs else self.widened
        rights = [split(value, self.signed[1]) for value in right]
        for row in range(self.height):
            line = split(left(row), self.signed[0])
            for v in range(vectors):
                for a, b in zip(line, rights[v], strict=True):
                    place = row * vectors + v
                    sums[place] = sums[place] + (self.pair_products(a, b) if self.by_pairs else a * b)
        return sums

    def dot(self, total: Value, a: Value, b: Value) -> Value:
        """Groups of the right operand times groups of the left one, added."""
        if self.by_dot == "vnni":
            return self.mixed_dot(total, *((b, a) if self.signed[1] else (a, b)))
        e, name = self.e, f"llvm.aarch64.neon.{'s' if self.signed[1] else 'u'}dot.v4i32.v16i8"
        e.declarations.add(f"declare <4 x i32> @{name}(<4 x i32>, <16 x i8>, <16 x i8>)")
        given = [e.assign(f"bitcast {x.type} {x.name} to <16 x i8>", "i8", 16) for x in (a, b)]
        return e.assign(f"call <4 x i32> @{name}(<4 x i32> {total.name}, <16 x i8> {given[0].name}, "
                        f"<16 x i8> {given[1].name})", "i32", 4)

    def mixed_dot(self, total: Value, unsigned: Value, signed: Value) -> Value:
        e, name = self.e, "llvm.x86.avx512.vpdpbusd.512"
        e.declarations.add(f"declare <16 x i32> @{name}(<16 x i32>, <64 x i8>, <64 x i8>)")
        given = [e.assign(f"bitcast {x.type} {x.name} to <64 x i8>", "i8", 64) for x in (unsigned, signed)]
        return e.assign(f"call <16 x i32> @{name}(<16 x i32> {total.name}, <64 x i8> {given[0].name}, "
                        f"<64 x i8> {given[1].name})", "i32", 16)

    def pairs(self, groups: Value, signed: bool) -> list[Value]:
        """Bytes 0 and 2, then 1 and 3, as pairs of 16 bits."""
        lanes = 2 * groups.lanes
        halves = self.e.assign(f"bitcast {groups.type} {groups.name} to <{lanes} x i16>", "i16", lanes)
        return [(halves << 8).shift_right(8, signed), halves.shift_right(8, signed)]

    def pair_products(self, a: Value, b: Value) -> Value:
        e, lanes = self.e, self.register.lanes
        e.declarations.add(f"declare <{lanes} x i32> @llvm.x86.{self.by_pairs}({a.type}, {b.type})")
        return e.assign(f"call <{lanes} x i32> @llvm.x86.{self.by_pairs}({a.type} {a.name}, {b.type} {b.name})",
                        "i32", lanes)

    @staticmethod
    def widened(groups: Value, signed: bool) -> list[Value]:
        """The four bytes as 32 bits each."""
        return [(groups << (24 - 8 * j)).shift_right(24, signed) for j in range(GROUP)]


class ByteRowPacker(RowPacker):
    """packN(source, m step, k step, count, target): N rows as [group of k][N][4]."""

    def __init__(self, kernel: Int8GemmKernel, height: int, isa: Isa) -> None:
        super().__init__(kernel, height, isa)
        self.memory = "i8"
        self.moved = is_moved(kernel, isa)  # by 128

    def write(self) -> str:
        e, count = self.e, self.function.number("%count")
        whole = count & -GROUP
        with e.loop(0, whole, GROUP) as loop:
            for row in range(self.height):
                self.group(row, loop.index)
        with e.when(e.icmp("ne", whole, count)):  # the last values of k, then zeros
            for row in range(self.height):
                e.store(e.constant(0, "i32", 1), self.target(row, whole))
                with e.loop(whole, count) as rest:
                    byte = self.loaded(row, rest.index, "i8")
                    e.store(byte, e.offset(self.target(row, whole), "i8", rest.index - whole))
        return self.function.text()

    def loaded(self, row: int, k: Value, element: str) -> Value:
        found = self.e.load(self.source(row, k), element, 1, 1)
        return found ^ (-0x80 if element == "i8" else -0x7F7F7F80) if self.moved else found

    def target(self, row: int, k: Value) -> str:
        return self.e.offset("%target", "i8", k * self.height + GROUP * row)

    def group(self, row: int, k: Value) -> None:
        e = self.e
        if self.left == "rows":
            e.store(self.loaded(row, k, "i32"), self.target(row, k))
            return
        for j in range(GROUP):
            e.store(self.loaded(row, k + j, "i8"), e.offset(self.target(row, k), "i8", j))


class Int8Code(GemmCode):
    """State of the generator of int8 kernels."""

    packs_columns = False  # rows are packed one panel at a time
    values_per_step = GROUP

    kernel: Int8GemmKernel

    def __init__(self, kernel: Int8GemmKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.memory = "i8"

    def parts(self) -> list[Any]:
        heights = self.register.heights
        return [*(Int8MicroKernel(self.kernel, h, self.register, self.isa) for h in heights),
                *(ByteRowPacker(self.kernel, h, self.isa) for h in heights)]

    def panel(self, batch: Value, number: Value, start: Value, depth: Value) -> str:
        e, v = self.e, self.v
        first = e.offset(self.b, "i8", self.right(batch))
        return e.offset(first, "i32", (number * groups_of(v["k"]) + start.shift_right(2)) * self.register.width)

    def packed_rows(self, row: Value, depth: Value) -> str:
        return self.e.offset(self.rows_at, "i8", row * self.v["depth"])  # a multiple of 4, at least `depth`


class Int8PackCode(PanelCode):
    """State of the generator of int8 kernels."""

    def __init__(self, kernel: Int8PackKernel, isa: Isa) -> None:
        super().__init__(kernel.width, "i8", isa)
        self.right = kernel.right
        self.fast = kernel.right == "rows" or (kernel.right == "columns" and isa.vector_bits > 0)

    def panel(self, number: Value, left: Value) -> None:
        e, groups = self.e, groups_of(self.v["k"])
        self.target = e.offset(self.target, "i32", number * self.width * groups)
        count = e.intrinsic("smin", left, e.constant(self.width, "i64", 1))
        with e.when(e.icmp("sgt", count, 0)):
            done = e.constant(0, "i64", 1)
            if self.fast:
                done = e.select(e.icmp("eq", count, self.width), self.v["k"].shift_right(2), done)
                with e.loop(0, done) as loop:
                    self.whole_group(loop.index)
            with e.loop(done, groups) as loop:
                self.part_group(loop.index, count)

    def place(self, k: Value, column: Value | int) -> str:
        return self.e.offset(self.source, "i8", k * self.v["b_k"] + self.v["b_n"] * column)

    def whole_group(self, group: Value) -> None:
        """Four values of k of all columns."""
        e, line = self.e, self.e.offset(self.target, "i32", group * self.width)
        if self.right == "rows":
            for column in range(self.width):
                e.store(e.load(self.place(group * GROUP, column), "i32", 1, 1), e.offset(line, "i32", column))
            return
        parts = [e.convert("zext", e.load(self.place(group * GROUP + j, 0), "i8", self.width), "i32")
                 for j in range(GROUP)]
        e.store(parts[0] | parts[1] << 8 | parts[2] << 16 | parts[3] << 24, line)

    def part_group(self, group: Value, count: Value) -> None:
        """Byte by byte, zeros past the last value of k and the last column."""
        e = self.e
        first = group * GROUP
        last = e.intrinsic("smin", self.v["k"] - first, e.constant(GROUP, "i64", 1))
        with e.loop(0, self.width) as columns:
            target = e.offset(self.target, "i32", group * self.width + columns.index)
            e.store(e.constant(0, "i32", 1), target)
            with e.loop(0, e.select(e.icmp("slt", columns.index, count), last, 0)) as loop:
                byte = e.load(self.place(first + loop.index, columns.index), "i8", 1)
                e.store(byte, e.offset(target, "i8", loop.index))
