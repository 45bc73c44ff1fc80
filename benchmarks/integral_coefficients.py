"""Writes the coefficients of the exponential, trigonometric and Fresnel integrals, of Dawson's function and of the
Bessel functions K: Chebyshev interpolation of the functions in mpmath, in 60 digits.

    python -m benchmarks.integral_coefficients > src/morpho/scipy/coefficients.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

from benchmarks.special_coefficients import chebyshev, on

mp.mp.dps = 60
EPS = mp.mpf(10) ** -18


def ein(x: Any) -> Any:
    """(Ei(x) - gamma - log|x|) / x: an entire function."""
    return mp.mpf(1) if x == 0 else mp.nsum(lambda k: x**(k - 1) / (k * mp.factorial(k)), [1, mp.inf], method="d")


def f_of(x: Any) -> Any:
    """The auxiliary f of the sine integral: -Im of E1(ix) exp(ix)."""
    return -mp.im(mp.e1(1j * x) * mp.exp(1j * x))


def g_of(x: Any) -> Any:
    return mp.re(mp.e1(1j * x) * mp.exp(1j * x))


def fresnel_tail(x: Any) -> tuple[Any, Any]:
    """(f, g) with S = 1/2 - f cos - g sin and C = 1/2 + f sin - g cos of pi x**2 / 2."""
    s, c = mp.mpf(1) / 2 - mp.fresnels(x), mp.mpf(1) / 2 - mp.fresnelc(x)
    angle = mp.pi * x * x / 2
    return s * mp.cos(angle) - c * mp.sin(angle), s * mp.sin(angle) + c * mp.cos(angle)


def dawson(x: Any) -> Any:
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def tail(function: Callable[[Any], Any], low: Any, power: int = 1) -> Callable[[Any], Any]:
    """A function of x from `low` on as one of u = (low / x)**power in 0..1; near 0 its limit is not needed exactly."""
    return on(0, 1, lambda u: function(mp.mpf(low) / mp.root(max(u, mp.mpf(10) ** -12), power)))


def k_small(order: int) -> Callable[[Any], Any]:
    """The entire part of K0, and of x K1, as a function of x**2."""
    def function(square: Any) -> Any:
        x = mp.sqrt(max(square, mp.mpf(10) ** -24))
        if order == 0:
            return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)
        return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))

    return on(0, 4, function)


ROWS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "EIN_LOW": (on(-2, 2, ein), 28), "EIN_HIGH": (on(2, 6, ein), 28),
    "E1_TAIL": (tail(lambda x: x * mp.exp(x) * mp.e1(x), 2), 44),
    "EI_6": (on(mp.mpf(1) / 12, mp.mpf(1) / 6, lambda u: mp.exp(-1 / u) * mp.ei(1 / u) / u), 36),
    "EI_12": (on(mp.mpf(1) / 24, mp.mpf(1) / 12, lambda u: mp.exp(-1 / u) * mp.ei(1 / u) / u), 40),
    "EI_24": (on(mp.mpf(10) ** -9, mp.mpf(1) / 24, lambda u: mp.exp(-1 / u) * mp.ei(1 / u) / u), 44),
    "SI_LOW": (on(0, 25, lambda t: mp.si(mp.sqrt(t)) / mp.sqrt(t) if t else mp.mpf(1)), 28),
    "CI_LOW": (on(0, 25, lambda t: (mp.ci(mp.sqrt(t)) - mp.euler - mp.log(t) / 2) / t if t else mp.mpf(-1) / 4), 28),
    "SI_F": (tail(lambda x: x * f_of(x), 5, 2), 40), "SI_G": (tail(lambda x: x * x * g_of(x), 5, 2), 40),
    "FRESNEL_S": (on(0, 8, lambda t: mp.fresnels(mp.root(t, 4)) / mp.root(t, 4) ** 3 if t > 1e-30 else mp.pi / 6), 28),
    "FRESNEL_C": (on(0, 8, lambda t: mp.fresnelc(mp.root(t, 4)) / mp.root(t, 4) if t > 1e-30 else mp.mpf(1)), 28),
    "FRESNEL_F": (tail(lambda x: x * fresnel_tail(x)[0], mp.root(8, 4), 4), 44),
    "FRESNEL_G": (tail(lambda x: x**3 * fresnel_tail(x)[1], mp.root(8, 4), 4), 44),
    "DAWSON_LOW": (on(0, 9, lambda t: dawson(mp.sqrt(t)) / mp.sqrt(t) if t > 1e-30 else mp.mpf(1)), 40),
    "DAWSON_MIDDLE": (on(9, 36, lambda t: dawson(mp.sqrt(t)) * mp.sqrt(t)), 48),
    "DAWSON_HIGH": (on(mp.mpf(10) ** -9, mp.mpf(1) / 36, lambda u: dawson(1 / mp.sqrt(u)) / mp.sqrt(u)), 40),
    "SPENCE": (on(mp.mpf(-1) / 2, mp.mpf(1) / 2, lambda z: mp.polylog(2, z) / z if abs(z) > 1e-30 else mp.mpf(1)), 32),
    "K0_LOW": (k_small(0), 20), "K1_LOW": (k_small(1), 20),
    "K0_TAIL": (tail(lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(0, x), 2), 40),
    "K1_TAIL": (tail(lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(1, x), 2), 40),
}


def main() -> None:
    print('"""Chebyshev coefficients of `morpho.scipy.integrals`, written by `python -m benchmarks.'
          'integral_coefficients`."""\n')
    for name, (function, degree) in ROWS.items():
        row = chebyshev(function, degree)
        size = max(abs(value) for value in row)
        while abs(row[-1]) < EPS * size:
            row.pop()
        print(f"{name} = (")
        texts = [f"{float(value)!r}," for value in reversed(row)]
        line = "   "
        for text in texts:
            if len(line) + 1 + len(text) > 119:
                print(line)
                line = "   "
            line += f" {text}"
        print(f"{line}\n)")


if __name__ == "__main__":
    main()
