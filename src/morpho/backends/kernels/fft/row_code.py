"""The function of a `RowFftKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.fft.butterflies import Complex, times
from morpho.backends.kernels.fft.fft import RowFftKernel
from morpho.backends.kernels.fft.fft_plan import passes, wide_lanes
from morpho.backends.kernels.fft.pass_code import (
    Read,
    Write,
    emit_pass,
    from_pairs,
    from_split,
    to_pairs,
    to_split,
)
from morpho.backends.kernels.fft.roots_code import call_root, fill_pass, once, root_function
from morpho.backends.kernels.loops.pairs import picked
from morpho.base.machine import Isa


def generate(kernel: RowFftKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `RowFftKernel`."""
    return RowFft(kernel, isa, name).module()


class RowFft:
    """State of the generator of row kernels."""

    def __init__(self, kernel: RowFftKernel, isa: Isa, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.element, self.width = scalars.memory_type(kernel.dtype), kernel.dtype.itemsize
        self.lanes = min(isa.lanes(kernel.dtype.itemsize), wide_lanes(kernel.dtype))
        self.attributes = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
        self.passes = passes(kernel.core, kernel.dtype)
        self.roots = sum(step.roots for step in self.passes)
        # Behind the roots of the passes: a chirp and the transform of its conjugate; then roots that take halves apart.
        self.chirp = self.roots
        self.halves = self.chirp + (kernel.points + kernel.round if kernel.round else 0)
        self.total = self.halves + (0 if kernel.kind == "complex" else kernel.points + 1)
        self.room = kernel.core + 2 * wide_lanes(kernel.dtype)  # numbers of an array in scratch
        self.e = Emitter(self.lanes)

    # -- the module ----------------------------------------------------------------------------------------------------
    def module(self) -> str:
        functions = [self.main()]
        if self.kernel.round:
            functions.append(self.core())
        functions.append(self.fill())
        functions.append(root_function(self.name, self.element))
        size = max(1, 2 * self.total)
        head = (f"@{self.name}.table = internal global [{size} x {self.element}] zeroinitializer, align 64\n"
                f"@{self.name}.ready = internal global i32 0, align 4\n")
        return head + without_repeats("\n".join(functions))

    def written(self, e: Emitter, head: str) -> str:
        e.line("ret i32 0" if "i32 @" in head else "ret void")
        return f"{head} nounwind {self.attributes} {{\nentry:\n{e.text()}\n}}\n" + "\n".join(sorted(e.declarations))

    def table(self, e: Emitter, start: int = 0) -> tuple[str, str]:
        """Addresses of the parts of the roots from `start` on."""
        base = f"@{self.name}.table"
        return e.offset(base, self.element, start), e.offset(base, self.element, self.total + start)

    def fill(self) -> str:
        """All roots, and for a convolution the transform of what it convolves with."""
        e = Emitter(1)
        table = self.table(e)
        for step in self.passes:
            fill_pass(e, self.name, self.element, step, self.kernel.core, table)
        if self.kernel.kind != "complex":
            halves = self.table(e, self.halves)
            with e.loop(0, self.kernel.points + 1) as loop:
                re, im = (e.offset(base, self.element, loop.index) for base in halves)
                call_root(e, self.name, loop.index, self.kernel.length, re, im)
        if self.kernel.round:
            self.fill_chirp(e, self.table(e, self.chirp))
        return self.written(e, f"define internal void @{self.name}.fill(ptr %scratch) noinline")

    def fill_chirp(self, e: Emitter, chirp: tuple[str, str]) -> None:
        """exp(-pi i k**2 / n), and the transform of its conjugate on both sides of zero, divided by the length."""
        n, around = self.kernel.points, self.kernel.round
        arrays = self.arrays(e)
        with e.loop(0, 2 * self.room) as loop:
            e.store(e.constant(0.0, self.element, 1), e.offset(arrays[0], self.element, loop.index))
        with e.loop(0, n) as loop:
            k = loop.index
            square = k * k
            rest = square - e.instruction("udiv", square, e.constant(2 * n, "i64", 1)) * (2 * n)
            re, im = (e.offset(base, self.element, k) for base in chirp)
            call_root(e, self.name, rest, 2 * n, re, im)
            one = e.load(re, self.element, 1), -e.load(im, self.element, 1)
            mirror = e.select(e.icmp("eq", k, 0), k, around - k)
            for index in (k, mirror):
                for value, base in zip(one, arrays[:2], strict=True):
                    e.store(value, e.offset(base, self.element, index))
        e.line(f"call void @{self.name}.core(ptr {', ptr '.join(arrays)})")
        found = arrays[2:] if len(self.passes) % 2 else arrays[:2]
        with e.loop(0, around) as loop:
            for source, target in zip(found, self.table(e, self.chirp + n), strict=True):
                value = e.load(e.offset(source, self.element, loop.index), self.element, 1)
                e.store(value * (1.0 / around), e.offset(target, self.element, loop.index))

    def arrays(self, e: Emitter) -> list[str]:
        """Two arrays of numbers in scratch, as four of parts."""
        return [e.offset("%scratch", self.element, n * self.room) for n in range(4)]

    def core(self) -> str:
        """A transform from two arrays of parts to themselves or, after an odd number of passes, to two others."""
        e = Emitter(self.lanes)
        names = ["%xr", "%xi", "%yr", "%yi"]
        arrays = [names[:2], names[2:]]
        table = self.table(e)
        for number, step in enumerate(self.passes):
            source, target = arrays[number % 2], arrays[1 - number % 2]
            emit_pass(e, step, self.element, from_split(e, self.element, *source),
                      to_split(e, self.element, *target), table)
        return self.written(e, f"define internal void @{self.name}.core(ptr {', ptr '.join(names)}) noinline")

    # -- rows ----------------------------------------------------------------------------------------------------------
    def main(self) -> str:
        e, kernel = self.e, self.kernel
        once(e, self.name, "%scratch")
        source, target = e.load_pointer("%buffers", 0), e.load_pointer("%buffers", 1)
        scale = None
        if kernel.scaled:
            bits = e.from_bits(e.load("%values", "i64", 1), "double")
            scale = e.splat(bits if self.element == "double" else e.convert("fptrunc", bits, self.element))
        sizes = {"complex": (2 * kernel.length, 2 * kernel.length), "real": (kernel.length, kernel.length + 2),
                 "half": (kernel.length + 2, kernel.length)}[kernel.kind]
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
            places = [e.offset(base, self.element, rows.index * size)
                      for base, size in zip((source, target), sizes, strict=True)]
            row = {"complex": self.complex_row, "real": self.real_row, "half": self.half_row}[kernel.kind]
            row(places[0], places[1], scale)
        return self.written(e, f"define i32 @{self.name}({SIGNATURE})")

    def free(self, arrays: list[str]) -> list[str]:
        """The array of the two in scratch that the end of a transform may write to."""
        if not self.kernel.round:
            return arrays[:2] if len(self.passes) % 2 else arrays[2:]
        return arrays[2:]

    def transform(self, read: Read, write: Write, arrays: list[str]) -> None:
        """All passes from one end to the other, by way of two arrays; the first one may be read from `arrays[2:]`."""
        e, table = self.e, self.table(self.e)
        if self.kernel.round:
            self.convolve(read, write, arrays)
            return
        halves = [arrays[:2], arrays[2:]]
        last = len(self.passes) - 1
        for number, step in enumerate(self.passes):
            source = read if number == 0 else from_split(e, self.element, *halves[1 - number % 2])
            target = write if number == last else to_split(e, self.element, *halves[number % 2])
            emit_pass(e, step, self.element, source, target, table)

    def complex_row(self, source: str, target: str, scale: Value | None) -> None:
        swapped = self.kernel.inverse
        self.transform(from_pairs(self.e, self.element, source, swapped),
                       to_pairs(self.e, self.element, target, swapped, scale), self.arrays(self.e))

    def counted(self, count: int) -> int:
        """Where the last vector of an array of so many numbers begins."""
        return count - self.lanes

    def reversed(self, value: Value) -> Value:
        return value if value.lanes == 1 else picked(self.e, value, range(value.lanes - 1, -1, -1))

    def mirrored(self, base: str, at: Value) -> Value:
        """Numbers of an array from index points - at on, backwards."""
        index = (self.kernel.points - self.lanes + 1) - at
        return self.reversed(self.e.load(self.e.offset(base, self.element, index), self.element))

    def real_row(self, source: str, target: str, scale: Value | None) -> None:
        """Even and odd numbers as the parts of complex ones: their transform, taken apart.

        X_k = (Z_k + Z'_h-k) / 2 - i w^k (Z_k - Z'_h-k) / 2, a prime standing for the conjugate."""
        e, arrays = self.e, self.arrays(self.e)
        last = self.free(arrays)
        self.transform(from_pairs(e, self.element, source, False), to_split(e, self.element, *last), arrays)
        for base in last:  # Z_h is Z_0
            e.store(e.load(base, self.element, 1), e.offset(base, self.element, self.kernel.points))
        write = to_pairs(e, self.element, target, False, scale)
        self.taken_apart(last, write, forward=True)

    def taken_apart(self, arrays: list[str], write: Write, forward: bool) -> None:
        e, count = self.e, self.kernel.points + (1 if forward else 0)
        table = self.table(e, self.halves)
        with e.loop(0, count, self.lanes) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(self.counted(count), "i64", 1))
            one = from_split(e, self.element, *arrays)(at)
            other = Complex(self.mirrored(arrays[0], at), -self.mirrored(arrays[1], at))
            w = Complex(*[e.load(e.offset(base, self.element, at), self.element) for base in table])
            even = Complex(one.re + other.re, one.im + other.im)
            odd = Complex(one.re - other.re, one.im - other.im)
            if forward:
                turned = times(e, odd, w)
                write(at, Complex((even.re + turned.im) * 0.5, (even.im - turned.re) * 0.5))
            else:
                turned = times(e, odd, Complex(w.re, -w.im))
                write(at, Complex(even.re - turned.im, even.im + turned.re))

    def half_row(self, source: str, target: str, scale: Value | None) -> None:
        """The way back: Z_k = X_k + X'_h-k + i w'^k (X_k - X'_h-k), whose transform back has the numbers as parts. The
        imaginary parts of the first and the last frequency do not count."""
        e, arrays, points = self.e, self.arrays(self.e), self.kernel.points
        read, write = from_pairs(e, self.element, source, False), to_split(e, self.element, *arrays[:2])
        with e.loop(0, points + 1, self.lanes) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(self.counted(points + 1), "i64", 1))
            write(at, read(at))
        for index in (0, points):
            e.store(e.constant(0.0, self.element, 1), e.offset(arrays[1], self.element, index))
        self.taken_apart(arrays[:2], to_split(e, self.element, *arrays[2:]), forward=False)
        # A transform back is one of exchanged parts.
        self.transform(from_split(e, self.element, arrays[3], arrays[2]),
                       to_pairs(e, self.element, target, True, scale), arrays)

    def each(self, count: int, body: Callable[[Value], None]) -> None:
        """Write `body` for vectors of numbers, and for single ones at the end."""
        e, whole = self.e, count // self.lanes * self.lanes
        with e.loop(0, whole, self.lanes) as vectors:
            body(vectors.index)
        if whole < count:
            e.lanes = 1
            with e.loop(whole, count) as ones:
                body(ones.index)
            e.lanes = self.lanes

    def convolve(self, read: Read, write: Write, arrays: list[str]) -> None:
        """Bluestein: j k = (j**2 + k**2 - (j - k)**2) / 2, so a transform is a convolution with a chirp."""
        e, n, around = self.e, self.kernel.points, self.kernel.round
        chirp = from_split(e, self.element, *self.table(e, self.chirp))
        spectrum = from_split(e, self.element, *self.table(e, self.chirp + n))
        put = to_split(e, self.element, *arrays[:2])
        self.each(n, lambda at: put(at, times(e, read(at), chirp(at))))
        with e.loop(0, 2) as part:  # zeros behind, up to the end of each array
            rest = e.offset(arrays[0], self.element, part.index * self.room + n)
            e.line(f"call void @llvm.memset.p0.i64(ptr {rest}, i8 0, i64 {(self.room - n) * self.width}, i1 false)")
        e.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        e.line(f"call void @{self.name}.core(ptr {', ptr '.join(arrays)})")
        found, other = (arrays[2:], arrays[:2]) if len(self.passes) % 2 else (arrays[:2], arrays[2:])
        get, fill = from_split(e, self.element, *found), to_split(e, self.element, *found)
        self.each(around, lambda at: fill(at, times(e, get(at), spectrum(at))))
        # Back is the transform of exchanged parts; it ends where the first one began.
        e.line(f"call void @{self.name}.core(ptr {found[1]}, ptr {found[0]}, ptr {other[1]}, ptr {other[0]})")
        last = from_split(e, self.element, *arrays[:2])
        self.each(n, lambda at: write(at, times(e, last(at), chirp(at))))


def without_repeats(text: str) -> str:
    """A module declares an intrinsic once."""
    seen: set[str] = set()
    lines = []
    for line in text.splitlines():
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines) + "\n"

