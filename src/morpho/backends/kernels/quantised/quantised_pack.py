"""The function of a `QuantisedPackKernel`: rows of blocks into records of panels."""

from __future__ import annotations

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.quantised.quantised import QUANTISED_PACK, QuantisedPackKernel
from morpho.base.machine import Isa
from morpho.ops.neural.quantised import BLOCK, LAYOUTS

COLUMNS = 4  # of an in-register transpose


def generate(kernel: QuantisedPackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `QuantisedPackKernel`."""
    return PackCode(kernel, isa).module(name)


class PackCode:
    """State of the generator of quantised pack kernels."""

    def __init__(self, kernel: QuantisedPackKernel, isa: Isa) -> None:
        self.width, self.layout = kernel.width, LAYOUTS[kernel.kind]
        self.e = Emitter(1, isa.native_half)
        self.vectors = isa.vector_bits > 0
        self.header_bytes = self.layout.header_bytes
        self.span = BLOCK * self.layout.bits // 8  # bytes of codes in a block

    def module(self, name: str) -> str:
        e, layout = self.e, self.layout
        source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        self.v = v = QUANTISED_PACK.load(e)
        blocks = v["k"].shift_right(5)
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as panels:
            column = panels.index * self.width
            count = e.intrinsic("smin", v["n"] - column, e.constant(self.width, "i64", 1))
            first = e.offset(source, "i8", column * v["row_bytes"])
            with e.loop(0, blocks) as loop:
                record = e.offset(target, "i8", (panels.index * blocks + loop.index)
                                  * (layout.block_bytes * self.width))
                self.block(e.offset(first, "i8", loop.index * layout.block_bytes), record, count)
        e.line("ret i32 0")
        return defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n"

    def block(self, source: str, record: str, count: Value) -> None:
        """One block of `count` columns; the others are zeros."""
        e = self.e
        done = e.constant(0, "i64", 1)
        if self.vectors:
            done = count & -COLUMNS
            with e.loop(0, done, COLUMNS) as loop:
                self.four(source, record, loop.index)
        with e.loop(done, count) as loop:
            self.one(source, record, loop.index)
        with e.loop(count, self.width) as loop:
            self.one(None, record, loop.index)

    def column(self, source: str, column: Value) -> str:
        return self.e.offset(source, "i8", column * self.v["row_bytes"])

    def code(self, record: str, column: Value, number: Value | int) -> str:
        """Where byte `number` of a column's codes goes."""
        line = self.e.offset(record, "i8", column + self.header_bytes * self.width)
        return self.e.offset(line, "i8", number * self.width)

    def headers(self, source: str | None, record: str, column: Value) -> None:
        e = self.e
        kind = "i32" if self.layout.wide else "i16"
        for h in range(self.layout.groups * self.layout.headers):
            given = e.constant(0, kind, 1) if source is None else e.load(e.offset(source, kind, h), kind, 1, 1)
            e.store(given, e.offset(record, kind, column + h * self.width))

    def one(self, source: str | None, record: str, column: Value) -> None:
        """One column, or zeros."""
        e = self.e
        line = None if source is None else self.column(source, column)
        self.headers(line, record, column)
        with e.loop(0, self.span) as loop:
            given = e.constant(0, "i8", 1)
            if line is not None:
                given = e.load(e.offset(line, "i8", loop.index + self.header_bytes), "i8", 1)
            e.store(given, self.code(record, column, loop.index))

    def four(self, source: str, record: str, first: Value) -> None:
        """Four columns: their bytes side by side by two interleavings, then four bytes are stored at a time."""
        e, lines = self.e, []
        for number in range(COLUMNS):
            line = self.column(source, first + number)
            self.headers(line, record, first + number)
            lines.append(e.load(e.offset(line, "i8", self.header_bytes), "i8", self.span, 1))
        pairs = [self.as_elements(self.interleaved(lines[i], lines[i + 1]), "i16") for i in (0, 2)]
        words = self.as_elements(self.interleaved(*pairs), "i32")
        for number in range(self.span):
            e.store(e.assign(f"extractelement {words.type} {words.name}, i64 {number}", "i32", 1),
                    self.code(record, first, number), 1)

    def interleaved(self, a: Value, b: Value) -> Value:
        mask = ", ".join(f"i32 {i}, i32 {i + a.lanes}" for i in range(a.lanes))
        lanes = 2 * a.lanes
        return self.e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{lanes} x i32> <{mask}>",
                             a.element, lanes)

    def as_elements(self, x: Value, element: str) -> Value:
        """The same bits as elements of twice the size."""
        lanes = x.lanes // 2
        return self.e.assign(f"bitcast {x.type} {x.name} to <{lanes} x {element}>", element, lanes)
