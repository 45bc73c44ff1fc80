"""The function of a `ColumnFftKernel`: a block of columns or of short rows at a time, each in a lane of its own.

A block goes to scratch, is transformed there by passes between two arrays of vectors, and goes back.
"""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.fft.butterflies import Complex, butterfly, times
from morpho.backends.kernels.fft.fft import ColumnFftKernel
from morpho.backends.kernels.fft.fft_plan import Pass, passes
from morpho.backends.kernels.fft.pass_code import from_pairs, to_pairs
from morpho.backends.kernels.fft.roots_code import fill_pass, once, root_function
from morpho.backends.kernels.fft.row_code import without_repeats
from morpho.base.machine import Isa


def generate(kernel: ColumnFftKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `ColumnFftKernel`."""
    return ColumnFft(kernel, isa, name).module()


class ColumnFft:
    """State of the generator of column kernels."""

    def __init__(self, kernel: ColumnFftKernel, isa: Isa, name: str) -> None:
        self.kernel, self.name, self.lanes = kernel, name, kernel.lanes
        self.element = scalars.memory_type(kernel.dtype)
        self.attributes = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
        self.passes = passes(kernel.length, kernel.dtype)
        self.total = sum(step.roots for step in self.passes)
        self.e = Emitter(self.lanes)

    def module(self) -> str:
        head = (f"@{self.name}.table = internal global [{max(1, 2 * self.total)} x {self.element}] zeroinitializer, "
                f"align 64\n@{self.name}.ready = internal global i32 0, align 4\n")
        return head + without_repeats("\n".join([self.main(), self.fill(), root_function(self.name, self.element)]))

    def table(self, e: Emitter) -> tuple[str, str]:
        base = f"@{self.name}.table"
        return e.offset(base, self.element, 0), e.offset(base, self.element, self.total)

    def fill(self) -> str:
        e = Emitter(1)
        for step in self.passes:
            fill_pass(e, self.name, self.element, step, self.kernel.length, self.table(e))
        e.line("ret void")
        text = defined(f"internal void @{self.name}.fill(ptr %scratch) noinline nounwind", e.text())
        return text + "\n".join(sorted(e.declarations))

    def main(self) -> str:
        e, kernel = self.e, self.kernel
        if self.total:
            once(e, self.name, "%scratch")
        self.source, self.target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        v = kernel.record.load(e)
        self.columns = v["columns"]
        self.scale = None
        if kernel.scaled:
            bits = e.from_bits(v["scale"], "double")
            self.scale = bits if self.element == "double" else e.convert("fptrunc", bits, self.element)
        size = kernel.length * self.lanes
        self.arrays = [e.offset("%scratch", self.element, n * size) for n in range(4)]
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            outer = e.instruction("udiv", rows.index, v["blocks"])
            first = (rows.index - outer * v["blocks"]) * self.lanes
            count = e.intrinsic("smin", self.columns - first, e.constant(self.lanes, "i64", 1))
            start = outer * self.columns * kernel.length + first if kernel.across else first * kernel.length
            self.move_block(start, count, self.arrays[:2], load=True)
            for number, step in enumerate(self.passes):
                halves = [self.arrays[:2], self.arrays[2:]]
                self.emit_pass(step, halves[number % 2], halves[1 - number % 2])
            found = self.arrays[2:] if len(self.passes) % 2 else self.arrays[:2]
            self.move_block(start, count, found, load=False)
        e.line("ret i32 0")
        text = defined(f"i32 @{self.name}({SIGNATURE}) nounwind {self.attributes}", e.text())
        return text + "\n".join(sorted(e.declarations))

    # -- between memory and scratch ------------------------------------------------------------------------------------
    def place(self, start: Value, index: Value, lane: Value | int) -> Value:
        """Where number `index` of a lane lies, in complex numbers."""
        if self.kernel.across:
            return start + index * self.columns + lane
        return start + index + lane * self.kernel.length

    def move_block(self, start: Value, count: Value, arrays: list[str], load: bool) -> None:
        e = self.e
        if self.lanes == 1 or (not self.kernel.across and self.kernel.length < self.lanes // 2):
            self.move_ones(start, count, arrays, load)
            return
        for whole in e.both(e.icmp("eq", count, self.lanes)):
            if not whole:
                self.move_ones(start, count, arrays, load)
                continue
            if not self.kernel.across:
                self.move_square(start, arrays, load)
                continue
            with e.loop(0, self.kernel.length) as loop:
                at, vector = self.place(start, loop.index, 0), loop.index * self.lanes
                if load:
                    value = from_pairs(e, self.element, self.source, self.kernel.inverse)(at)
                    self.put(arrays, vector, value)
                else:
                    scale = None if self.scale is None else e.splat(self.scale)
                    to_pairs(e, self.element, self.target, self.kernel.inverse, scale)(at, self.got(arrays, vector))

    def move_square(self, start: Value, arrays: list[str], load: bool) -> None:
        """As many rows as lanes, by squares of their parts turned in registers; the last square lies over part of the
        one before."""
        e, n, lanes, swapped = self.e, self.kernel.length, self.lanes, self.kernel.inverse
        base = self.source if load else self.target
        with e.loop(0, n, lanes // 2) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(n - lanes // 2, "i64", 1))
            places = [e.offset(base, self.element, (start + at + row * n) * 2) for row in range(lanes)]
            vectors = [(at + number) * lanes for number in range(lanes // 2)]
            if load:
                turned = transposed(e, [e.load(place, self.element) for place in places])
                for number, vector in enumerate(vectors):
                    pair = turned[2 * number:2 * number + 2]
                    self.put(arrays, vector, Complex(*(pair[::-1] if swapped else pair)))
            else:
                self.put_back(arrays, vectors, places)

    def put_back(self, arrays: list[str], vectors: list[Value], places: list[str]) -> None:
        e = self.e
        parts: list[Value] = []
        for vector in vectors:
            value = [x if self.scale is None else x * e.splat(self.scale) for x in self.got(arrays, vector)]
            parts += value[::-1] if self.kernel.inverse else value
        for place, line in zip(places, transposed(e, parts), strict=True):
            e.store(line, place)

    def move_ones(self, start: Value, count: Value, arrays: list[str], load: bool) -> None:
        """One by one. Lanes without a row are zero: what lay there might be slow to compute with."""
        e = self.e
        lanes, e.lanes = e.lanes, 1
        if load:
            with e.loop(count, lanes) as empty, e.loop(0, self.kernel.length) as loop:
                zero = e.constant(0.0, self.element)
                self.put(arrays, loop.index * lanes + empty.index, Complex(zero, zero))
        with e.loop(0, count) as lane, e.loop(0, self.kernel.length) as loop:
            at, one = self.place(start, loop.index, lane.index), loop.index * lanes + lane.index
            if load:
                self.put(arrays, one, from_pairs(e, self.element, self.source, self.kernel.inverse)(at))
            else:
                to_pairs(e, self.element, self.target, self.kernel.inverse, self.scale)(at, self.got(arrays, one))
        e.lanes = lanes

    def put(self, arrays: list[str], index: Value, value: Complex) -> None:
        for part, base in zip(value, arrays, strict=True):
            self.e.store(part, self.e.offset(base, self.element, index))

    def got(self, arrays: list[str], index: Value) -> Complex:
        return Complex(*[self.e.load(self.e.offset(base, self.element, index), self.element) for base in arrays])

    # -- passes --------------------------------------------------------------------------------------------------------
    def emit_pass(self, step: Pass, source: list[str], target: list[str]) -> None:
        e, radix, before, after = self.e, step.radix, step.before, step.after
        table = self.table(e)
        with e.loop(0, after) as outer:
            p = outer.index
            roots = []
            for k in range(1, radix) if step.roots else ():
                place = p * before + (step.start + (k - 1) * step.butterflies) if step.spread else \
                    p * (radix - 1) + (step.start + k - 1)
                roots.append(Complex(*[e.splat(e.load(e.offset(base, self.element, place), self.element, 1))
                                       for base in table]))
            with e.loop(0, before) as inner:
                q = inner.index
                found = butterfly(e, [self.got(source, (q + (p + k * after) * before) * self.lanes)
                                      for k in range(radix)])
                for k, w in enumerate(roots, 1):
                    found[k] = times(e, found[k], w)
                for k, value in enumerate(found):
                    self.put(target, (q + (p * radix + k) * before) * self.lanes, value)
