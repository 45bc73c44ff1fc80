"""Writes the polynomials of special functions in float32 arithmetic (`backends/code/vector_math/special_float.py`).

    python -m benchmarks.special_single > src/morpho/backends/code/vector_math/single_coefficients.py

Each is the best polynomial of its degree for relative errors, by Lawson's iteration: least squares whose weights grow
where the error is large. Needs SciPy (`pip install -e '.[bench]'`). Errors go to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

POINTS, ROUNDS = 400, 80
MIDDLE = 4.0  # of -log(1 - x**2): up to there erfinv(x) / x is a polynomial
FARTHEST = 104.0  # of -log(4 p (1 - p)): beyond the least float32
Array = Any
NDTRI_FIRST = 1.35 / 2**0.5


def points(low: float, high: float) -> Array:
    """Points of an interval, denser at its ends."""
    return (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * np.arange(POINTS) / (POINTS - 1))


def fitted(t: Array, values: Array, scale: Array, degree: int) -> tuple[Array, float]:
    """Coefficients from the highest power down, and the largest error relative to `scale`."""
    middle, half = (t[0] + t[-1]) / 2, (t[-1] - t[0]) / 2
    basis = np.polynomial.chebyshev.chebvander((t - middle) / half, degree)
    weights, best, least = np.full(len(t), 1 / len(t)), np.zeros(degree + 1), np.inf
    for _ in range(ROUNDS):
        root = np.sqrt(weights) / scale
        found = np.linalg.lstsq(basis * root[:, None], values * root, rcond=None)[0]
        errors = np.abs(basis @ found - values) / scale
        if errors.max() < least:
            best, least = found, float(errors.max())
        weights = weights * (errors / errors.max() + 1e-3)
        weights /= weights.sum()
    series = np.polynomial.Chebyshev(best, domain=[t[0], t[-1]])
    return series.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef[::-1], least


def inverse_error(w: Array) -> tuple[Array, Array]:
    """y and x with x = erf(y) and 1 - x**2 = exp(-w)."""
    from scipy.special import erfcinv, erfinv

    x = np.sqrt(-np.expm1(-w))
    return np.where(x < 0.5, erfinv(x), erfcinv(np.exp(-w) / (1 + x))), x


END = float(np.float32(1 / (4 * np.pi**0.5)))  # (1 + t / 4) erfcx(t) far out


def quotient(function: Callable[[Array], Array], top: float, end: float, centre: float) -> tuple[Array, float]:
    """Q in z = 4 / (t + 4), where the function is z (end + z Q)."""
    z = points(4 / (top + 4), 4 / 4.45)
    whole = function(4 / z - 4) / z
    return fitted(z - centre, (whole - end) / z, whole / z, 10)


def ratio(w: Array, slope: float) -> tuple[Array, float]:
    """(erfinv(x) / x - its limit) / w in w = -log(1 - x**2)."""
    y, x = inverse_error(w)
    return fitted(w, (y / x - slope) / w, y / x / w, 8)


def table() -> list[tuple[str, str, tuple[Array, float]]]:
    from scipy.special import erfcx

    near = ratio(points(1e-6, MIDDLE), np.sqrt(np.pi) / 2)
    s = points(MIDDLE**0.5, 16.7**0.5)
    y, x = inverse_error(s * s)
    beside = fitted(s - 2.0, y / x, y / x, 11)
    u = points(FARTHEST**-0.5, MIDDLE**-0.5)
    y, _ = inverse_error(1 / u**2)
    far = fitted(u - 0.27, y * u - NDTRI_FIRST, y * u, 12)
    return [
        ("ERFINV_SLOPE", "(erfinv(x) / x - sqrt(pi) / 2) / w in w = -log(1 - x**2) in 0..4", near),
        ("ERFINV_FAR", "erfinv(x) / x in sqrt(w) - 2, w in 4..16.7", beside),
        ("NDTRI_FAR", "y / sqrt(w) - 1.35 / sqrt(2) in 1 / sqrt(w) - 0.27, erf(y)**2 = 1 - exp(-w), w in 4..104", far),
        ("ERFC_TAIL", "Q in z - 0.66, z = 4 / (t + 4), erfc(t) = exp(-t**2) z (END + z Q), t in 0.45..10.1",
         quotient(lambda t: erfcx(t), 10.1, END, 0.66)),
        ("NDTR_TAIL", "Q in z - 0.64, 2 ndtr(-t) = exp(-t**2 / 2) z (END + z Q), t in 0.45..14.3",
         quotient(lambda t: erfcx(t * np.sqrt(0.5)), 14.3, float(np.float32(END * 2**0.5)), 0.64)),
        ("LOGIT_MIDDLE", "(2 atanh(t) - 2 t) / t**3 in t**2, t in 0..0.5", logit_middle()),
    ]


def logit_middle() -> tuple[Array, float]:
    square = points(1e-3, 0.2505)
    t = np.sqrt(square)
    return fitted(square, (2 * np.arctanh(t) - 2 * t) / t**3, 2 * np.arctanh(t) / t**3, 6)


def main() -> None:
    print('"""Polynomials from the highest power down: written by `python -m benchmarks.special_single`."""\n')
    for name, what, (numbers, error) in table():
        print(f"# {what}; relative error 2**{np.log2(error):.1f}\n{name} = (")
        texts = [f"{float(number):.12g}" for number in numbers]
        for start in range(0, len(texts), 5):
            print("    " + ", ".join(texts[start:start + 5]) + ",")
        print(")")
        print(name, f"2**{np.log2(error):.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
