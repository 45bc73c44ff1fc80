"""Roots of unity: a table in the memory of the kernel, filled by the first call.

Each is computed in float64 from its exponent, a whole number, within 0.7 of a last place, by steps that round alike
everywhere; float32 ones are rounded from those. Two threads that come first at once write the same numbers.
"""

from __future__ import annotations

import math

from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.kernels.fft.fft_plan import Pass

_QUARTER = (math.pi / 4, 3.061616997868383e-17)  # pi / 4 as two numbers
_SINE = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, 0, -1)]
_COSINE = [(-1) ** k / math.factorial(2 * k) for k in range(9, 1, -1)]


def root_function(name: str, element: str) -> str:
    """`name.root(exponent, n, re, im)` writes exp(-2 pi i exponent / n)."""
    e = Emitter(1)
    exponent, n = e.argument("%exponent", "i64", 1), e.argument("%n", "i64", 1)
    eighths = exponent * 8
    octant = e.instruction("udiv", eighths, n)
    rest = eighths - octant * n
    mirrored = e.icmp("ne", octant & 1, 0)
    part = e.convert("sitofp", e.select(mirrored, n - rest, rest), "double")
    whole = e.convert("sitofp", n, "double")
    # The angle up to pi / 4 as two numbers, and its square.
    ratio = part / whole
    low_ratio = e.fma(-ratio, whole, part) / whole
    x = ratio * _QUARTER[0]
    low = e.fma(ratio, _QUARTER[0], -x) + (ratio * _QUARTER[1] + low_ratio * _QUARTER[0])
    u = x * x
    low_u = e.fma(x, x, -u) + x * low * 2.0
    sine = x + (low + x * (u * e.polynomial(u, _SINE)))
    half = u * 0.5
    first = 1.0 - half
    cosine = first + ((1.0 - first) - half + (u * u * e.polynomial(u, _COSINE) - low_u * 0.5))
    turned = e.icmp("ne", (octant + 1) & 2, 0)
    re, im = e.select(turned, sine, cosine), e.select(turned, cosine, sine)
    re = e.select(e.icmp("ne", (octant + 2) & 4, 0), -re, re)
    im = e.select(e.icmp("ult", octant, 4), -im, im)
    for value, place in ((re, "%re"), (im, "%im")):
        e.store(value if element == "double" else e.convert("fptrunc", value, element), place)
    e.line("ret void")
    head = f"internal void @{name}.root(i64 %exponent, i64 %n, ptr %re, ptr %im) noinline nounwind"
    return (defined(head, e.text()) + "\n".join(sorted(e.declarations)) + "\n")


def call_root(e: Emitter, name: str, exponent: Value, n: int, re: str, im: str) -> None:
    e.line(f"call void @{name}.root(i64 {exponent.name}, i64 {n}, ptr {re}, ptr {im})")


def fill_pass(e: Emitter, name: str, element: str, step: Pass, n: int, table: tuple[str, str]) -> None:
    """The roots of one pass: of butterfly p and number k the one with exponent p k s."""
    if not step.roots:
        return
    with e.loop(0, step.roots) as loop:
        if step.spread:
            k = e.instruction("udiv", loop.index, e.constant(step.butterflies, "i64", 1))
            p = e.instruction("udiv", loop.index - k * step.butterflies, e.constant(step.before, "i64", 1))
        else:
            p = e.instruction("udiv", loop.index, e.constant(step.radix - 1, "i64", 1))
            k = loop.index - p * (step.radix - 1)
        re, im = (e.offset(base, element, loop.index + step.start) for base in table)
        call_root(e, name, (k + 1) * p * step.before, n, re, im)


def once(e: Emitter, name: str, argument: str) -> None:
    """Call `name.fill` unless that was done."""
    ready = e.assign(f"load atomic i32, ptr @{name}.ready acquire, align 4", "i32", 1)
    with e.when(e.icmp("eq", ready, 0)):
        e.line(f"call void @{name}.fill(ptr {argument})")
        e.line(f"store atomic i32 1, ptr @{name}.ready release, align 4")
