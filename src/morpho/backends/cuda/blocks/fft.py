"""Fourier transforms by the whole grid: a launch for each pass, a thread for each butterfly.

Passes, roots and butterflies are the CPU's (`kernels/fft`), and so are the bits. Transforms of real numbers take two
halves apart behind a complex one, or join them before it. Lengths with large primes are convolutions (Bluestein).
Numbers lie with their parts side by side in every array; a transform back is one of exchanged parts.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import Launch, OwnKernel, Sizes, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.fft.butterflies import Complex, butterfly, times
from morpho.backends.kernels.fft.fft_plan import Pass, passes, round_length
from morpho.backends.kernels.fft.pass_code import from_pairs, to_pairs
from morpho.backends.kernels.fft.roots_code import call_root, root_function
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.dtypes import DType
from morpho.ir.node import Node
from morpho.ops.complex.fourier import radices
from morpho.ops.complex.parts import REAL_OF
from morpho.program.program import Step
from morpho.program.view import View

THREADS = 256
ITEMS, SCALE, NUMBERS = range(3)
COPY = Pass(1, 1, 1, False, 0)  # of a transform of one number, which is the number


@dataclass(frozen=True)
class Stage(OwnKernel):
    """Base of the launches: an item a thread. Buffers: source, table, target; numbers: items, bits of the scale."""

    dtype: DType  # of the parts

    role = "scan"
    flops = 40

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(max(1, -(-known(sizes.rows) // THREADS)), THREADS))

    def text(self) -> str:
        e, first = GridEmitter(), int(Header.SIZE)
        buffers = [e.address(first + number) for number in range(3)]
        item = e.ask("block") * THREADS + e.ask("thread")
        with e.when(e.icmp("slt", item, e.word(first + 3 + ITEMS))):
            self.write(e, item, *buffers)
        words = first + 3 + NUMBERS
        return entry("kernel_main", words, e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()

    @abstractmethod
    def write(self, e: GridEmitter, item: Value, source: str, table: str, target: str) -> None:
        """Write the code of one item."""

    @property
    def element(self) -> str:
        return scalars.memory_type(self.dtype)

    def scale(self, e: GridEmitter, scaled: bool) -> Value | None:
        if not scaled:
            return None
        bits = e.from_bits(e.word(int(Header.SIZE) + 3 + SCALE), "double")
        return bits if self.element == "double" else e.convert("fptrunc", bits, self.element)

    def at(self, e: GridEmitter, base: str, start: Value | int) -> str:
        return e.offset(base, self.element, start * 2)


def divided(e: GridEmitter, index: Value, by: int) -> tuple[Value, Value]:
    """Quotient and rest."""
    quotient = e.instruction("udiv", index, e.constant(by, "i64", 1)) if by != 1 else index
    return quotient, index - quotient * by


@dataclass(frozen=True)
class FillRoots(Stage):
    """The table: roots of the passes, then those that take halves apart, then a chirp."""

    core: int
    halves: int  # the length of a real transform, or 0
    chirp: int  # points of a convolution, or 0

    @property
    def parts(self) -> tuple[int, int, int]:
        """Where halves and chirp begin, and the end."""
        roots = sum(step.roots for step in passes(self.core, self.dtype))
        halves = roots + (self.halves // 2 + 1 if self.halves else 0)
        return roots, halves, halves + self.chirp

    def write(self, e: GridEmitter, item: Value, source: str, table: str, target: str) -> None:
        starts = self.parts

        def put(exponent: Value, order: int) -> None:
            place = self.at(e, target, item)
            call_root(e, "table", exponent, order, place, e.offset(place, self.element, 1))

        for step in passes(self.core, self.dtype):
            if step.roots:
                with e.when(self.inside(e, item, step.start, step.start + step.roots)):
                    if step.spread:
                        k, rest = divided(e, item - step.start, step.butterflies)
                        p, _ = divided(e, rest, step.before)
                    else:
                        p, k = divided(e, item - step.start, step.radix - 1)
                    put((k + 1) * p * step.before, self.core)
        if self.halves:
            with e.when(self.inside(e, item, starts[0], starts[1])):
                put(item - starts[0], self.halves)
        if self.chirp:
            with e.when(self.inside(e, item, starts[1], starts[2])):
                k = item - starts[1]
                put(divided(e, k * k, 2 * self.chirp)[1], 2 * self.chirp)

    def inside(self, e: GridEmitter, item: Value, first: int, end: int) -> Value:
        return e.icmp("sge", item, first) & e.icmp("slt", item, end)

    def text(self) -> str:
        return super().text() + root_function("table", self.element)


@dataclass(frozen=True)
class Butterflies(Stage):
    """One pass; the numbers of a transform lie `inner` apart."""

    step: Pass
    inner: int
    reads_exchanged: bool
    writes_exchanged: bool
    scaled: bool

    def write(self, e: GridEmitter, item: Value, source: str, table: str, target: str) -> None:
        step, inner = self.step, self.inner
        rest, column = divided(e, item, inner)
        outer, b = divided(e, rest, step.butterflies)
        p, q = divided(e, b, step.before)
        start = outer * (step.butterflies * step.radix * inner) + column
        read = from_pairs(e, self.element, source, self.reads_exchanged)
        write = to_pairs(e, self.element, target, self.writes_exchanged, self.scale(e, self.scaled))
        numbers = [read(start + (q + (p + k * step.after) * step.before) * inner) for k in range(step.radix)]
        found = butterfly(e, numbers) if step.radix > 1 else numbers
        root = from_pairs(e, self.element, table, False)
        for k in range(1, step.radix) if step.roots else ():
            place = b + (step.start + (k - 1) * step.butterflies) if step.spread else \
                p * (step.radix - 1) + (step.start + k - 1)
            found[k] = times(e, found[k], root(place))
        for k, value in enumerate(found):
            write(start + (q + (p * step.radix + k) * step.before) * inner, value)


@dataclass(frozen=True)
class Halves(Stage):
    """Take the transform of even and odd numbers apart, or join two halves for the way back."""

    points: int
    forward: bool
    start: int  # of its roots in the table
    scaled: bool

    def write(self, e: GridEmitter, item: Value, source: str, table: str, target: str) -> None:
        points, forward = self.points, self.forward
        line, at = divided(e, item, points + 1 if forward else points)
        base = from_pairs(e, self.element, self.at(e, source, line * (points if forward else points + 1)), False)

        def read(index: Value) -> Complex:
            """Number `points` of the transform is its first; imaginary parts of both ends of the other do not count."""
            value = base(e.select(e.icmp("eq", index, points), 0, index) if forward else index)
            ends = e.icmp("eq", index, 0) | e.icmp("eq", index, points)
            return value if forward else Complex(value.re, e.select(ends, 0.0, value.im))

        one, mirrored = read(at), read(points - at)
        other = Complex(mirrored.re, -mirrored.im)
        w = from_pairs(e, self.element, table, False)(at + self.start)
        even, odd = Complex(one.re + other.re, one.im + other.im), Complex(one.re - other.re, one.im - other.im)
        write = to_pairs(e, self.element, self.at(e, target, line * (points + 1 if forward else points)), False,
                         self.scale(e, self.scaled))
        if forward:
            turned = times(e, odd, w)
            write(at, Complex((even.re + turned.im) * 0.5, (even.im - turned.re) * 0.5))
        else:
            turned = times(e, odd, Complex(w.re, -w.im))
            write(at, Complex(even.re - turned.im, even.im + turned.re))


@dataclass(frozen=True)
class Chirp(Stage):
    """A step of a convolution of length `around`: `in` and `out` multiply a line by the chirp, `conjugate` writes what
    is convolved with, `spectrum` divides its transform, and `product` multiplies by that."""

    what: str
    points: int
    around: int
    start: int  # of the chirp in the table
    exchanged: bool
    scaled: bool

    def write(self, e: GridEmitter, item: Value, source: str, table: str, target: str) -> None:
        n, around = self.points, self.around
        line, at = divided(e, item, n if self.what == "out" else around)
        chirp = from_pairs(e, self.element, table, False)
        short, long = ([self.at(e, base, line * count) for base in (source, target)] for count in (n, around))
        zero = e.constant(0.0, self.element, 1)
        if self.what == "in":
            inside = e.icmp("slt", at, n)
            near = e.select(inside, at, 0)
            value = times(e, from_pairs(e, self.element, short[0], self.exchanged)(near), chirp(near + self.start))
            to_pairs(e, self.element, long[1], False, None)(
                at, Complex(*[e.select(inside, part, zero) for part in value]))
        elif self.what == "out":
            value = times(e, from_pairs(e, self.element, long[0], False)(at), chirp(at + self.start))
            to_pairs(e, self.element, short[1], self.exchanged, self.scale(e, self.scaled))(at, value)
        elif self.what == "conjugate":
            k = e.intrinsic("smin", at, around - at)
            inside = e.icmp("slt", k, n)
            one = chirp(e.select(inside, k, 0) + self.start)
            to_pairs(e, self.element, target, False, None)(
                at, Complex(e.select(inside, one.re, zero), e.select(inside, -one.im, zero)))
        elif self.what == "spectrum":
            value = from_pairs(e, self.element, source, False)(at)
            to_pairs(e, self.element, target, False, None)(at, Complex(*[part * (1.0 / around) for part in value]))
        else:
            value = times(e, from_pairs(e, self.element, long[0], False)(at), chirp(at))
            to_pairs(e, self.element, long[1], False, None)(at, value)


class Transform:
    """The launches of one node."""

    def __init__(self, low: Lowering, node: Node) -> None:
        self.low, self.node, self.dtype = low, node, REAL_OF[node.dtype] if node.dtype.is_complex else node.dtype
        self.bits = struct.unpack("<q", struct.pack("<d", node["scale"]))[0]
        self.scaled, self.table = node["scale"] != 1, whole_of(low, 1, self.dtype)

    def launch(self, stage: Stage, source: View, target: View, items: Size, table: View | None = None) -> View:
        views = (source, table or self.table, target)
        self.low.add(Step(stage, views, (2,), (items, self.bits), items, 1, "fft", self.node.origin,
                          choice="a launch a pass"))
        return target

    def core(self, source: View, n: int, outer: Size, inner: int, back: bool, target: View | None = None,
             scaled: bool = False) -> View:
        """All passes of transforms of n numbers, from `source` to `target`."""
        steps = passes(n, self.dtype) or (COPY,)
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            into = target if last and target is not None else whole_of(self.low, outer * n * inner, self.dtype)
            stage = Butterflies(self.dtype, step, inner, back and number == 0, back and last, scaled and last)
            source = self.launch(stage, source, into, outer * (step.butterflies * inner))
        return source

    def run(self, source: View, target: View) -> None:
        node = self.node
        n, axis, kind, back = (node[name] for name in ("length", "axis", "kind", "inverse"))
        shape = node.inputs[0].shape
        outer, inner = product(shape[:axis]), int(product(shape[axis + 1:]))
        points = n if kind == "complex" else n // 2
        around = 0 if radices(points) is not None else round_length(2 * points - 1)
        fill = FillRoots(self.dtype, around or points, 0 if kind == "complex" else n, points if around else 0)
        halves, chirp, end = fill.parts
        self.table = whole_of(self.low, max(1, end), self.dtype)
        if end:
            self.launch(fill, source, self.table, end)
        write_scaled = self.scaled and kind != "real"
        if kind == "half":
            joined = Halves(self.dtype, points, False, halves, False)
            source = self.launch(joined, source, whole_of(self.low, outer * points, self.dtype), outer * points)
            back = True
        into = whole_of(self.low, outer * points, self.dtype) if kind == "real" else target
        if around:
            self.convolved(source, into, (points, around, chirp), outer, back, write_scaled)
        else:
            self.core(source, points, outer, inner, back, into, write_scaled)
        if kind == "real":
            self.launch(Halves(self.dtype, points, True, halves, self.scaled), into, target, outer * (points + 1))

    def convolved(self, source: View, target: View, sizes: tuple[int, int, int], outer: Size, back: bool,
                  scaled: bool) -> None:
        """j k = (j**2 + k**2 - (j - k)**2) / 2, so a transform is a convolution with a chirp."""
        around, low, dtype = sizes[1], self.low, self.dtype

        def stage(what: str, read: View, items: Size, into: View | None = None, table: View | None = None,
                  exchanged: bool = False, last: bool = False) -> View:
            place = into or whole_of(low, items, dtype)
            return self.launch(Chirp(dtype, what, *sizes, exchanged, last), read, place, items, table)

        spectrum = self.core(stage("conjugate", source, around), around, 1, 1, False)
        spectrum = stage("spectrum", spectrum, around)
        line = self.core(stage("in", source, outer * around, exchanged=back), around, outer, 1, False)
        line = self.core(stage("product", line, outer * around, table=spectrum), around, outer, 1, True)
        stage("out", line, outer * sizes[0], target, exchanged=back, last=scaled)


def whole_of(low: Lowering, count: Size, dtype: DType) -> View:
    """Memory for complex numbers, as their parts."""
    return low.new_slot((count, 2), dtype)


def has_known_sizes(node: Node) -> bool:
    return all(isinstance(size, int) and size > 0 for size in node.inputs[0].shape)


def lower_fft(low: Lowering, node: Node) -> None:
    place: Any = low.view(node.inputs[0])
    place = place if place.is_contiguous else low.copied(place, node)
    target = low.new_slot(node.shape, node.dtype)
    Transform(low, node).run(place, target)
    low.views[node.serial] = [target]
