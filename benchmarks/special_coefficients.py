"""Writes the coefficients of `mo.special`: Chebyshev interpolation of the functions in mpmath, in 60 digits.

    python -m benchmarks.special_coefficients > src/morpho/ops/special_functions/coefficients.py

Each row is a function on an interval, as powers or as Chebyshev polynomials of t in -1..1, from the highest down. The
interpolation at Chebyshev's points is within a few per cent of the best polynomial of its degree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 60


def chebyshev(function: Callable[[Any], Any], degree: int) -> list[Any]:
    """Coefficients of T0, T1, ... of a function of t in -1..1."""
    count = 2 * (degree + 1)
    points = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]
    values = [function(t) for t in points]
    found = []
    for n in range(degree + 1):
        total = mp.fsum(v * mp.cos(n * mp.pi * (k + mp.mpf(1) / 2) / count) for k, v in enumerate(values))
        found.append(total * (1 if n == 0 else 2) / count)
    return found


def powers(coefficients: list[Any]) -> list[Any]:
    """The same polynomial in powers of t, from the constant term up."""
    before, now = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * len(coefficients)
    for n, c in enumerate(coefficients):
        row = before if n == 0 else now
        for k, value in enumerate(row):
            total[k] += c * value
        if n >= 1:
            following = [mp.mpf(0), *[2 * value for value in now]]
            for k, value in enumerate(before):
                following[k] -= value
            before, now = now, following
    return total


def on(low: Any, high: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of x in low..high as one of t in -1..1."""
    low, high = mp.mpf(low), mp.mpf(high)
    return lambda t: function((high + low) / 2 + (high - low) / 2 * t)


def zeros(function: Callable[[Any], Any], guesses: list[float]) -> list[Any]:
    return [mp.findroot(function, guess) for guess in guesses]


J0 = zeros(lambda x: mp.besselj(0, x), [2.4, 5.5])
J1 = zeros(lambda x: mp.besselj(1, x), [3.8, 7.0])
PSI = mp.findroot(mp.digamma, 1.46)


def limit(function: Callable[[Any], Any], x: Any, at: Any) -> Any:
    """A quotient at x; at its removable singularity the value beside it."""
    step = mp.mpf(10) ** -25
    return function(x) if abs(x - at) > step else function(at + step)


def lgamma_over(shift: int) -> Callable[[Any], Any]:
    """lgamma(shift + y) / y."""
    return lambda y: limit(lambda u: mp.loggamma(shift + u) / u, y, mp.mpf(0))


def bessel_parts(order: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """P and Q x of J = sqrt(2 / (pi x)) (P cos(x - a) - Q sin(x - a)) in u = (8 / x)**2."""

    def parts(u: Any) -> tuple[Any, Any]:
        u = max(u, mp.mpf(10) ** -12)
        x = 8 / mp.sqrt(u)
        angle = x - (2 * order + 1) * mp.pi / 4
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        return j * mp.cos(angle) + y * mp.sin(angle), (y * mp.cos(angle) - j * mp.sin(angle)) * x

    return lambda u: parts(u)[0], lambda u: parts(u)[1]


def table() -> list[tuple[str, str, list[Any]]]:
    """Name, what it is, and the coefficients from the highest down."""
    def power(name: str, what: str, low: Any, high: Any, function: Callable[[Any], Any], degree: int) -> Any:
        return name, what, powers(chebyshev(on(low, high, function), degree))[::-1]

    def sums(name: str, what: str, low: Any, high: Any, function: Callable[[Any], Any], degree: int) -> Any:
        return name, what, chebyshev(on(low, high, function), degree)[::-1]

    p0, q0 = bessel_parts(0)
    p1, q1 = bessel_parts(1)

    def y_rest(order: int, x: Any) -> Any:
        """What Y is beside 2 / pi log(x) J (and -2 / (pi x) for order 1)."""
        x = max(x, mp.mpf(10) ** -20)
        found = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return found if order == 0 else (found + 2 / (mp.pi * x)) / x

    return [
        power("LGAMMA_1", "lgamma(1 + t / 2) / (t / 2)", -0.5, 0.5, lgamma_over(1), 30),
        power("LGAMMA_2", "lgamma(2 + t / 2) / (t / 2)", -0.5, 0.5, lgamma_over(2), 20),
        power("DIGAMMA", "digamma(x) / (x - root), x = 1.5 + t / 2", 1, 2,
              lambda x: limit(lambda u: mp.digamma(u) / (u - PSI), x, PSI), 23),
        sums("ERFCX", "(1 + 2 x) erfcx(x), (x - 3.75) / (x + 3.75) = t", -1, 1,
             lambda t: mp.mpf(1) * (lambda x: (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x))(
                 mp.mpf("3.75") * (1 + t) / (1 - t)) if t < mp.mpf("0.9999") else 2 / mp.sqrt(mp.pi) + 0 * t, 28),
        sums("I0_SMALL", "exp(-x) I0(x), x = 4 + 4 t", 0, 8, lambda x: mp.exp(-x) * mp.besseli(0, x), 30),
        sums("I0_LARGE", "sqrt(x) exp(-x) I0(x), 8 / x = (1 + t) / 2", 0, 1,
             lambda u: (lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(0, x))(8 / max(u, mp.mpf(10) ** -6)), 26),
        sums("I1_SMALL", "exp(-x) I1(x) / x, x = 4 + 4 t", 0, 8,
             lambda x: mp.exp(-x) * (mp.besseli(1, x) / x if x > mp.mpf(10) ** -20 else mp.mpf(1) / 2), 30),
        sums("I1_LARGE", "sqrt(x) exp(-x) I1(x), 8 / x = (1 + t) / 2", 0, 1,
             lambda u: (lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x))(8 / max(u, mp.mpf(10) ** -6)), 26),
        power("J0", "J0(x) / ((x**2 - r1**2) (x**2 - r2**2)), x**2 = 32 + 32 t", 0, 64,
              lambda u: _without(mp.besselj(0, mp.sqrt(u)), u, J0, 0), 17),
        power("J1", "J1(x) / (x (x**2 - r1**2) (x**2 - r2**2)), x**2 = 32 + 32 t", 0, 64,
              lambda u: _without(mp.besselj(1, mp.sqrt(u)), u, J1, 1), 17),
        power("Y0", "Y0(x) - 2 / pi log(x) J0(x), x**2 = 32 + 32 t", 0, 64, lambda u: y_rest(0, mp.sqrt(u)), 20),
        power("Y1", "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, x**2 = 32 + 32 t", 0, 64,
              lambda u: y_rest(1, mp.sqrt(u)), 20),
        power("P0", "P of order 0, (8 / x)**2 = (1 + t) / 2", 0, 1, p0, 16),
        power("Q0", "Q x of order 0", 0, 1, q0, 16),
        power("P1", "P of order 1", 0, 1, p1, 16),
        power("Q1", "Q x of order 1", 0, 1, q1, 16),
        power("ERFINV_MIDDLE", "erfinv(x) / x in w = -log(1 - x**2), w = 2.5 + 2.5 t", 0, 5,
              lambda w: _erfinv_ratio(max(w, mp.mpf(10) ** -20)), 12),
        power("ERFINV_TAIL", "y / s, erfc(y) (2 - erfc(y)) = exp(-s**2), in 1 / s of 0.036..0.55", mp.mpf("0.036"),
              mp.mpf("0.55"), lambda u: _erfinv_tail(1 / u) * u, 14),
    ]


def _without(value: Any, square: Any, roots: list[Any], order: int) -> Any:
    """A Bessel function without its zeros."""
    square = max(square, mp.mpf(10) ** -40)
    x = mp.sqrt(square)
    if any(abs(x - root) < mp.mpf(10) ** -20 for root in roots):
        return _without(mp.besselj(order, x + mp.mpf(10) ** -15), (x + mp.mpf(10) ** -15) ** 2, roots, order)
    value = mp.besselj(order, x)
    return value / ((square - roots[0] ** 2) * (square - roots[1] ** 2)) / (x if order else 1)


def _erfinv_ratio(w: Any) -> Any:
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def _erfinv_tail(s: Any) -> Any:
    """y with (1 - x)(1 + x) = exp(-s**2), x = erf(y)."""
    rest = mp.exp(-s * s)  # 1 - x**2
    small = rest / (1 + mp.sqrt(1 - rest))  # 1 - x
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(small), s * mp.mpf("0.93"))


def main() -> None:
    print('"""Coefficients, from the highest down: written by `python -m benchmarks.special_coefficients`."""\n')
    pairs = {"PSI_ROOT": [PSI], "J0_ROOTS": J0, "J1_ROOTS": J1}
    for name, roots in pairs.items():
        print(f"{name} = (  # each as a number and the rest of it")
        for root in roots:
            print(f"    ({float(root)!r}, {float(root - mp.mpf(float(root)))!r}),")
        print(")")
    for name, what, values in table():
        print(f"# {what}\n{name} = (")
        numbers = [repr(float(value)) for value in values]
        for start in range(0, len(numbers), 4):
            print("    " + ", ".join(numbers[start:start + 4]) + ",")
        print(")")


if __name__ == "__main__":
    main()
