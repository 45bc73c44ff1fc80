"""The passes of a transform as code, over numbers that someone reads and writes: lanes along a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.fft.butterflies import Complex, butterfly, times
from morpho.backends.kernels.fft.fft_plan import Pass
from morpho.backends.kernels.loops.pairs import joined, picked

Read = Callable[[Value], Complex]  # a vector of numbers from an index on
Write = Callable[[Value, Complex], None]
Table = tuple[str, str]  # addresses of the parts of the roots


def from_split(e: Emitter, element: str, re: str, im: str) -> Read:
    """Numbers whose parts lie in two arrays."""
    return lambda index: Complex(*[e.load(e.offset(base, element, index), element) for base in (re, im)])


def to_split(e: Emitter, element: str, re: str, im: str) -> Write:
    def write(index: Value, value: Complex) -> None:
        for part, base in zip(value, (re, im), strict=True):
            e.store(part, e.offset(base, element, index))

    return write


def from_pairs(e: Emitter, element: str, base: str, swapped: bool) -> Read:
    """Numbers whose parts lie side by side; `swapped` for transforms back: they are those of exchanged parts."""

    def read(index: Value) -> Complex:
        both = e.load(e.offset(base, element, index * 2), element, 2 * e.lanes)
        if e.lanes == 1:
            parts = [e.assign(f"extractelement {both.type} {both.name}, i64 {n}", element, 1) for n in (0, 1)]
        else:
            parts = [picked(e, both, range(n, 2 * e.lanes, 2)) for n in (0, 1)]
        return Complex(*(parts[::-1] if swapped else parts))

    return read


def to_pairs(e: Emitter, element: str, base: str, swapped: bool, scale: Value | None) -> Write:
    def write(index: Value, value: Complex) -> None:
        factor = _first(e, scale) if scale is not None and e.lanes == 1 else scale
        parts = [part if factor is None else part * factor for part in value]
        first, second = parts[::-1] if swapped else parts
        place = e.offset(base, element, index * 2)
        if e.lanes == 1:
            e.store(first, place)
            e.store(second, e.offset(place, element, 1))
        else:
            e.store(joined(e, first, second), place)

    return write


def _first(e: Emitter, value: Value) -> Value:
    """One lane of a number that is the same in all."""
    return value if value.lanes == 1 else e.assign(f"extractelement {value.type} {value.name}, i64 0", value.element, 1)


def emit_pass(e: Emitter, step: Pass, element: str, read: Read, write: Write, table: Table) -> None:
    """One pass over all numbers."""
    if step.spread:
        _spread_pass(e, step, element, read, write, table)
    else:
        _plain_pass(e, step, element, read, write, table)


def _spread_pass(e: Emitter, step: Pass, element: str, read: Read, write: Write, table: Table) -> None:
    """Lanes along all butterflies. The last vector lies over part of the one before: it writes the same numbers."""
    count, radix = step.butterflies, step.radix
    with e.loop(0, count, e.lanes) as loop:
        at = e.intrinsic("smin", loop.index, e.constant(count - e.lanes, "i64", 1))
        found = butterfly(e, [read(at + k * count) for k in range(radix)])
        if step.roots:
            for k in range(1, radix):
                place = at + (step.start + (k - 1) * count)
                found[k] = times(e, found[k], Complex(*[e.load(e.offset(base, element, place), element)
                                                        for base in table]))
        if e.lanes % step.before == 0:
            parts = [_interleaved(e, [one[n] for one in found], step.before) for n in (0, 1)]
            for number, value in enumerate(zip(*parts, strict=True)):
                write(at * radix + number * e.lanes, Complex(*value))
        else:
            _one_by_one(e, step, at, found, write)


def _one_by_one(e: Emitter, step: Pass, at: Value, found: Sequence[Complex], write: Write) -> None:
    """Each number to a place of its own, where runs of them do not fit a vector."""
    lanes, e.lanes = e.lanes, 1
    for lane in range(lanes):
        index = at + lane
        p = e.instruction("udiv", index, e.constant(step.before, "i64", 1))
        first = (p * step.radix) * step.before + (index - p * step.before)
        for k, value in enumerate(found):
            one = [e.assign(f"extractelement {v.type} {v.name}, i64 {lane}", v.element, 1) if lanes > 1 else v
                   for v in value]
            write(first + k * step.before, Complex(*one))
    e.lanes = lanes


def _plain_pass(e: Emitter, step: Pass, element: str, read: Read, write: Write, table: Table) -> None:
    """Lanes along the numbers that have one root."""
    radix, before, after = step.radix, step.before, step.after
    with e.loop(0, after) as outer:
        p = outer.index
        roots = []
        for k in range(1, radix) if step.roots else ():
            place = p * (radix - 1) + (step.start + k - 1)
            roots.append(Complex(*[e.splat(e.load(e.offset(base, element, place), element, 1)) for base in table]))
        with e.loop(0, before, e.lanes) as inner:
            at = e.intrinsic("smin", inner.index, e.constant(before - e.lanes, "i64", 1))
            found = butterfly(e, [read(at + (p + k * after) * before) for k in range(radix)])
            for k, w in enumerate(roots, 1):
                found[k] = times(e, found[k], w)
            for k, value in enumerate(found):
                write(at + (p * radix + k) * before, value)


def _interleaved(e: Emitter, vectors: Sequence[Value], run: int) -> list[Value]:
    """Vectors of which runs follow each other by turns, as vectors in order."""
    lanes, count = vectors[0].lanes, len(vectors)
    if run >= lanes:
        return list(vectors)
    if count & (count - 1) == 0 and (count.bit_length() - 1) * count < count * (min(count, lanes // run) - 1):
        return _zipped(e, [[vector] for vector in vectors], run)
    found = []
    for number in range(count):
        wanted = []
        for lane in range(lanes):
            p, rest = divmod(number * lanes + lane, run * count)
            wanted.append((rest // run, p * run + rest % run))
        found.append(_gathered(e, vectors, wanted))
    return found


def _gathered(e: Emitter, vectors: Sequence[Value], wanted: Sequence[tuple[int, int]]) -> Value:
    """A vector whose lanes are (vector, lane) of others, by shuffles of two at a time."""
    sources = sorted({source for source, _ in wanted})
    first, *others = sources
    lanes = len(wanted)
    value, done = vectors[first], {first}
    order = [lane if source == first else 0 for source, lane in wanted]
    if not others:
        return picked(e, value, order)
    for other in others:
        mask = []
        for position, (source, lane) in enumerate(wanted):
            if source == other:
                mask.append(lanes + lane)
            elif source in done:
                mask.append(order[position] if len(done) == 1 else position)
            else:
                mask.append(0)
        text = ", ".join(f"i32 {lane}" for lane in mask)
        two = vectors[other]
        value = e.assign(f"shufflevector {value.type} {value.name}, {two.type} {two.name}, <{lanes} x i32> <{text}>",
                         value.element, lanes)
        done.add(other)
    return value


def _zipped(e: Emitter, sequences: list[list[Value]], run: int) -> list[Value]:
    """Sequences of vectors joined run by run: those half apart first, so that the order comes out right."""
    while len(sequences) > 1:
        half = len(sequences) // 2
        sequences = [_zip_two(e, sequences[k], sequences[k + half], run) for k in range(half)]
    return sequences[0]


def _zip_two(e: Emitter, one: Sequence[Value], other: Sequence[Value], run: int) -> list[Value]:
    found = []
    lanes = one[0].lanes
    for a, b in zip(one, other, strict=True):
        order = [source * lanes + start + lane for start in range(0, lanes, run) for source in (0, 1)
                 for lane in range(run)]
        for part in (order[:lanes], order[lanes:]):
            text = ", ".join(f"i32 {lane}" for lane in part)
            found.append(e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{lanes} x i32> <{text}>",
                                  a.element, lanes))
    return found
