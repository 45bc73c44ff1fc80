"""Writes tests/tensor/special_values.json: special functions at some points, from mpmath in 50 digits.

    python -m benchmarks.special_values
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 50
RNG = np.random.default_rng(20)
TO = Path(__file__).resolve().parent.parent / "tests" / "tensor" / "special_values.json"


def spread(low: float, high: float, count: int = 24) -> list[float]:
    """Numbers of float32, so that they are the same in every dtype that the test takes."""
    return [float(np.float32(x)) for x in RNG.uniform(low, high, count)]


def powers(low: float, high: float, count: int = 8) -> list[float]:
    return [float(np.float32(10**x)) for x in RNG.uniform(low, high, count)]


def ndtri(p: Any) -> Any:
    if p > 0.5:
        return -ndtri(1 - p)
    return mp.findroot(lambda x: mp.log(mp.ncdf(x)) - mp.log(p), -mp.sqrt(-2 * mp.log(p)) if p < 0.2 else mp.mpf(0))


FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[float, ...]]]] = {
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), [(x,) for x in spread(0, 12) + powers(-6, 6) + spread(-3, 0, 6)]),
    "digamma": (mp.digamma, [(x,) for x in spread(0, 12) + powers(-6, 6) + spread(-3, 0, 6)]),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [(x,) for x in spread(-5, 8) + powers(-4, 4)]),
    "erfinv": (mp.erfinv, [(x,) for x in spread(-1, 1) + powers(-8, -1)]),
    "ndtr": (mp.ncdf, [(x,) for x in spread(-8, 8)]),
    "log_ndtr": (lambda x: mp.log(mp.ncdf(x)), [(x,) for x in spread(-30, 6)]),
    "ndtri": (ndtri, [(x,) for x in spread(0.001, 0.999) + powers(-30, -1)]),
    "i0": (lambda x: mp.besseli(0, x), [(x,) for x in spread(-20, 20)]),
    "i0e": (lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), [(x,) for x in spread(-20, 20) + powers(-4, 4)]),
    "i1": (lambda x: mp.besseli(1, x), [(x,) for x in spread(-20, 20)]),
    "i1e": (lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), [(x,) for x in spread(-20, 20) + powers(-4, 4)]),
    "bessel_j0": (lambda x: mp.besselj(0, x), [(x,) for x in spread(-30, 30)]),
    "bessel_j1": (lambda x: mp.besselj(1, x), [(x,) for x in spread(-30, 30)]),
    "bessel_y0": (lambda x: mp.bessely(0, x), [(x,) for x in spread(0.01, 30)]),
    "bessel_y1": (lambda x: mp.bessely(1, x), [(x,) for x in spread(0.01, 30)]),
    "zeta": (lambda s, q: mp.zeta(s, q), [*zip(spread(1.1, 9), spread(0.1, 12), strict=True)]),
    "gammainc": (lambda a, x: mp.gammainc(a, 0, x, regularized=True),
                 [*zip(spread(0.1, 12), spread(0.1, 12), strict=True),
                  *zip(spread(50, 120), spread(50, 120), strict=True)]),
    "gammaincc": (lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
                  [*zip(spread(0.1, 12), spread(0.1, 12), strict=True),
                   *zip(spread(50, 120), spread(50, 120), strict=True)]),
    "betainc": (lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
                [*zip(spread(0.1, 30), spread(0.1, 30), spread(0.01, 0.99), strict=True)]),
    "polygamma": (lambda n, x: mp.polygamma(int(n), x),
                  [*zip([1.0, 2.0, 3.0, 4.0] * 4, spread(0.1, 9, 16), strict=True), (1.0, -0.5), (1.0, -2.25)]),
}


def main() -> None:
    values = {name: [[*point, float(function(*[mp.mpf(x) for x in point]))] for point in points]
              for name, (function, points) in FUNCTIONS.items()}
    rows = ",\n".join(f' "{name}": {json.dumps(points)}' for name, points in values.items())
    TO.write_text("{\n" + rows + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
