"""QR by Householder's reflections: x -> x - tau v (v . x), with v = 1 at the pivot, as LAPACK has them."""

from __future__ import annotations

from morpho.backends.code.emit import BITS, Value
from morpho.backends.kernels.linalg.frame import Frame, Index, Panel, add_multiple, masked
from morpho.backends.kernels.linalg.matrix import LANES


def largest(f: Frame, panel: Panel, rows: int) -> Value:
    """The largest size of an element; not finite where one is not, and NaN where one is."""
    e = f.e
    none = [f.number(0.0, LANES)] * (panel.width // LANES)
    with e.loop(0, rows, carried=none) as loop:
        loop.next(*[e.maximum(e.absolute(x), old) for x, old in zip(panel.row(loop.index), loop.values, strict=True)])
    found, *others = loop.values
    for other in others:
        found = e.maximum(found, other)
    return fold(f, found, e.maximum)


def fold(f: Frame, x: Value, join: object = None) -> Value:
    """The lanes of a vector together, by halves: lane i with lane i + 4, 2, 1."""
    e, half = f.e, LANES // 2
    while half:
        mask = ", ".join(f"i32 {half + i if i < half else i}" for i in range(LANES))
        kind = x.type
        other = e.assign(f"shufflevector {kind} {x.name}, {kind} poison, <{LANES} x i32> <{mask}>", x.element, LANES)
        x = x + other if join is None else join(x, other)  # type: ignore[operator]
        half //= 2
    return e.assign(f"extractelement {x.type} {x.name}, i64 0", x.element, 1)


def power_of_two(f: Frame, size: Value) -> tuple[Value, Value]:
    """Power of two that scales a matrix exactly so that its largest element lies in [1, 2), and its inverse."""
    e = f.e
    bits = BITS[f.element]
    fraction, most = (23, 254) if bits == 32 else (52, 2046)
    field = e.bits(size).shift_right(fraction)
    least = e.constant(1, field.element, 1)
    field = e.select(e.icmp("ult", field, least), least, field)
    limit = e.constant(most - 1, field.element, 1)
    field = e.select(e.icmp("ugt", field, limit), limit, field)
    return e.from_bits((most - field) << fraction, f.element), e.from_bits(field << fraction, f.element)


def scale(f: Frame, panel: Panel, rows: int, factor: Value) -> None:
    """Every element times a number."""
    wide = f.e.splat(factor, LANES)
    with f.e.loop(0, rows) as loop:
        panel.put_row([x * wide for x in panel.row(loop.index)], loop.index)


def reflect(f: Frame, target: Panel, vectors: Panel, k: Value, tau: Value, rows: int,
            masks: list[Value] | None = None) -> None:
    """The reflection of step k on the rows of `target` from k on, whose parts below the pivot lie in column k."""
    e = f.e
    top = target.row(k)
    with e.loop(k + 1, rows, carried=top) as loop:
        loop.next(*add_multiple(e, vectors.get(loop.index, k), target.row(loop.index), loop.values))
    along = loop.values

    def put(factor: Value, old: list[Value], row: Index) -> None:
        new = add_multiple(e, factor, along, old)
        target.put_row(new if masks is None else masked(e, masks, new, old), row)

    put(-tau, top, k)
    with e.loop(k + 1, rows) as rest:
        put(-(tau * vectors.get(rest.index, k)), target.row(rest.index), rest.index)


def factorise(f: Frame, a: Panel, taus: Panel, rows: int, columns: int) -> None:
    """R above the diagonal of a and on it, the reflections below. A column is scaled by a power of two while its
    reflection is found: squares neither overflow nor lose digits, however small what is left of it."""
    e = f.e
    with e.loop(0, min(rows, columns)) as steps:
        k = steps.index
        with e.loop(k, rows, carried=[f.number(0.0)]) as below:
            below.next(e.maximum(below.values[0], e.absolute(a.get(below.index, k))))
        factor, undo = power_of_two(f, below.values[0])
        with e.loop(k + 1, rows, carried=[f.number(0.0)]) as below:
            x = a.get(below.index, k) * factor
            below.next(e.fma(x, x, below.values[0]))
        rest, alpha = below.values[0], a.get(k, k) * factor
        none = e.fcmp("oeq", rest, 0.0)
        beta = -e.copysign(e.square_root(e.fma(alpha, alpha, rest)), alpha)
        beta = e.select(none, alpha, beta)
        tau = e.select(none, f.number(0.0), (beta - alpha) / beta)
        whole = e.select(none, f.number(1.0), alpha - beta)
        with e.loop(k + 1, rows) as below:
            a.put(a.get(below.index, k) * factor / whole, below.index, k)
        taus.put(tau, 0, k)
        reflect(f, a, a, k, tau, rows, a.columns_after(k))
        a.put(beta * undo, k, k)


def form_q(f: Frame, q: Panel, a: Panel, taus: Panel, shape: tuple[int, int], steps: int) -> None:
    """The first columns of the product of the reflections, from the last one on."""
    rows, columns = shape
    q.identity(rows, columns)
    with f.e.loop(0, steps) as loop:
        k = steps - 1 - loop.index
        reflect(f, q, a, k, taus.get(0, k), rows)


def qr(f: Frame) -> None:
    """x = Q R."""
    e, kernel = f.e, f.kernel
    rows, columns = kernel.rows, kernel.columns
    inner = rows if "complete" in kernel.options else min(rows, columns)
    a, taus, q = f.panel(rows, columns), f.panel(1, max(rows, columns)), f.panel(rows, inner)
    a.clear(rows)
    with e.loop(0, rows) as i, e.loop(0, columns) as j:
        a.put(f.load(0, i.index, j.index), i.index, j.index)
    factorise(f, a, taus, rows, columns)
    form_q(f, q, a, taus, (rows, inner), min(rows, columns))
    with e.loop(0, rows) as i, e.loop(0, inner) as j:
        f.store(q.get(i.index, j.index), 1, i.index, j.index)
    with e.loop(0, inner) as i, e.loop(0, columns) as j:
        value = a.get(i.index, j.index)
        f.store(e.select(e.icmp("sgt", i.index, j.index), 0.0, value), 2, i.index, j.index)
