"""The function of a `RowFftKernel`."""

from __future__ import annotations

from morpho.backends.cpu.codegen import scalars
from morpho.backends.cpu.codegen.emit import Emitter, Value
from morpho.backends.cpu.codegen.kernel_abi import SIGNATURE
from morpho.backends.cpu.fft.butterflies import Complex, times
from morpho.backends.cpu.fft.fft import RowFftKernel
from morpho.backends.cpu.fft.fft_plan import passes, wide_lanes
from morpho.backends.cpu.fft.pass_code import (
    Read,
    Write,
    emit_pass,
    from_pairs,
    from_split,
    to_pairs,
    to_split,
)
from morpho.backends.cpu.fft.roots_code import call_root, fill_pass, once, root_function
from morpho.backends.cpu.loops.pairs import picked
from morpho.base.machine import Isa


def generate(kernel: RowFftKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `RowFftKernel`."""
    return RowFft(kernel, isa, name).module()


class RowFft:
    """The generator's state while it writes one kernel."""

    def __init__(self, kernel: RowFftKernel, isa: Isa, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.element = scalars.memory_type(kernel.dtype)
        self.lanes = min(isa.lanes(kernel.dtype.itemsize), wide_lanes(kernel.dtype))
        self.attributes = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
        self.passes = passes(kernel.core, kernel.dtype)
        self.roots = sum(step.roots for step in self.passes)
        # Behind the roots of the passes: those that take halves apart; or a chirp, and the transform of its conjugate.
        self.extra = self.roots
        self.total = self.roots + {"complex": 0, "real": kernel.core + 1, "half": kernel.core + 1}[kernel.kind]
        if kernel.round:
            self.total = self.roots + kernel.length + kernel.round
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
        extra = self.table(e, self.extra)
        if self.kernel.kind != "complex":
            with e.loop(0, self.kernel.core + 1) as loop:
                re, im = (e.offset(base, self.element, loop.index) for base in extra)
                call_root(e, self.name, loop.index, self.kernel.length, re, im)
        if self.kernel.round:
            self.fill_chirp(e, extra)
        return self.written(e, f"define internal void @{self.name}.fill(ptr %scratch) noinline")

    def fill_chirp(self, e: Emitter, extra: tuple[str, str]) -> None:
        """exp(-pi i k**2 / n), and the transform of its conjugate on both sides of zero, divided by the length."""
        n, around = self.kernel.length, self.kernel.round
        arrays = self.arrays(e)
        with e.loop(0, 2 * self.room) as loop:
            e.store(e.constant(0.0, self.element, 1), e.offset(arrays[0], self.element, loop.index))
        with e.loop(0, n) as loop:
            k = loop.index
            square = k * k
            rest = square - e.instruction("udiv", square, e.constant(2 * n, "i64", 1)) * (2 * n)
            re, im = (e.offset(base, self.element, k) for base in extra)
            call_root(e, self.name, rest, 2 * n, re, im)
            one = e.load(re, self.element, 1), -e.load(im, self.element, 1)
            mirror = e.select(e.icmp("eq", k, 0), k, around - k)
            for index in (k, mirror):
                for value, base in zip(one, arrays[:2], strict=True):
                    e.store(value, e.offset(base, self.element, index))
        e.line(f"call void @{self.name}.core(ptr {', ptr '.join(arrays)})")
        found = arrays[2:] if len(self.passes) % 2 else arrays[:2]
        with e.loop(0, around) as loop:
            for source, target in zip(found, self.table(e, self.extra + n), strict=True):
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
            if kernel.round:
                self.convolve(places[0], places[1], scale)
            else:
                {"complex": self.complex_row, "real": self.real_row, "half": self.half_row}[kernel.kind](
                    places[0], places[1], scale)
        return self.written(e, f"define i32 @{self.name}({SIGNATURE})")

    def transform(self, read: Read, write: Write, arrays: list[str]) -> None:
        """All passes from one end to the other, by way of two arrays."""
        e, table = self.e, self.table(self.e)
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
        """Numbers of an array from index core - at on, backwards."""
        index = (self.kernel.core - self.lanes + 1) - at
        return self.reversed(self.e.load(self.e.offset(base, self.element, index), self.element))

    def real_row(self, source: str, target: str, scale: Value | None) -> None:
        """Even and odd numbers as the parts of complex ones: their transform, taken apart.

        X_k = (Z_k + Z'_h-k) / 2 - i w^k (Z_k - Z'_h-k) / 2, a prime standing for the conjugate."""
        e, arrays = self.e, self.arrays(self.e)
        last = arrays[:2] if len(self.passes) % 2 else arrays[2:]
        self.transform(from_pairs(e, self.element, source, False), to_split(e, self.element, *last), arrays)
        for base in last:  # Z_h is Z_0
            e.store(e.load(base, self.element, 1), e.offset(base, self.element, self.kernel.core))
        write = to_pairs(e, self.element, target, False, scale)
        self.taken_apart(last, write, forward=True)

    def taken_apart(self, arrays: list[str], write: Write, forward: bool) -> None:
        e, count = self.e, self.kernel.core + (1 if forward else 0)
        table = self.table(e, self.extra)
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
        e, arrays, core = self.e, self.arrays(self.e), self.kernel.core
        read, write = from_pairs(e, self.element, source, False), to_split(e, self.element, *arrays[:2])
        with e.loop(0, core + 1, self.lanes) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(self.counted(core + 1), "i64", 1))
            write(at, read(at))
        for index in (0, core):
            e.store(e.constant(0.0, self.element, 1), e.offset(arrays[1], self.element, index))
        self.taken_apart(arrays[:2], to_split(e, self.element, *arrays[2:]), forward=False)
        # A transform back is one of exchanged parts.
        self.transform(from_split(e, self.element, arrays[3], arrays[2]),
                       to_pairs(e, self.element, target, True, scale), arrays)

    def convolve(self, source: str, target: str, scale: Value | None) -> None:
        """Bluestein: n k = (n**2 + k**2 - (n - k)**2) / 2, so a transform is a convolution with a chirp."""
        e, kernel, arrays = self.e, self.kernel, self.arrays(self.e)
        n, around = kernel.length, kernel.round
        chirp, spectrum = self.table(e, self.extra), self.table(e, self.extra + n)
        zero = e.constant(0.0, self.element)
        with e.loop(0, around, self.lanes) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(self.counted(around), "i64", 1))
            to_split(e, self.element, *arrays[:2])(at, Complex(zero, zero))

        def each(count: int, body: object) -> None:
            whole = count // self.lanes * self.lanes
            with e.loop(0, whole, self.lanes) as vectors:
                body(vectors.index)  # type: ignore[operator]
            if whole < count:
                lanes, e.lanes = e.lanes, 1
                with e.loop(whole, count) as ones:
                    body(ones.index)  # type: ignore[operator]
                e.lanes = lanes

        def load(index: Value) -> None:
            x = from_pairs(e, self.element, source, kernel.inverse)(index)
            to_split(e, self.element, *arrays[:2])(index, times(e, x, from_split(e, self.element, *chirp)(index)))

        each(n, load)
        e.line(f"call void @{self.name}.core(ptr {', ptr '.join(arrays)})")
        if len(self.passes) % 2:
            arrays = [*arrays[2:], *arrays[:2]]
        with e.loop(0, around, self.lanes) as loop:
            at = e.intrinsic("smin", loop.index, e.constant(self.counted(around), "i64", 1))
            x = from_split(e, self.element, *arrays[:2])(at)
            to_split(e, self.element, *arrays[2:])(at, times(e, x, from_split(e, self.element, *spectrum)(at)))
        # Back: the parts are exchanged.
        back = [arrays[3], arrays[2], arrays[1], arrays[0]]
        e.line(f"call void @{self.name}.core(ptr {', ptr '.join(back)})")
        im, re = back[2:] if len(self.passes) % 2 else back[:2]

        def store(index: Value) -> None:
            x = from_split(e, self.element, re, im)(index)
            factor = None if scale is None else scale if e.lanes > 1 else _first(e, scale)
            to_pairs(e, self.element, target, kernel.inverse, factor)(
                index, times(e, x, from_split(e, self.element, *chirp)(index)))

        each(n, store)


def _first(e: Emitter, value: Value) -> Value:
    if value.lanes == 1:
        return value
    return e.assign(f"extractelement {value.type} {value.name}, i64 0", value.element, 1)


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

