"""The oracle's own arithmetic: an fma of float64 where no wider float holds the product of two."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest

HUGE, TINY, NEXT = 1.7e308, 5e-324, 1 + 2.0**-52


@pytest.mark.parametrize("a, b, c, wanted", [
    (HUGE, -10.0, math.inf, math.inf), (HUGE, 10.0, -math.inf, -math.inf),  # the product is a number
    (math.inf, 0.0, 1.0, math.nan), (math.inf, 1.0, -math.inf, math.nan), (math.nan, 1.0, math.inf, math.nan),
    (math.inf, -2.0, 3.0, -math.inf), (1.0, 2.0, math.nan, math.nan),
    (HUGE, 2.0, 0.0, math.inf), (HUGE, 2.0, -HUGE, HUGE), (HUGE, -2.0, 0.0, -math.inf),
    (NEXT, NEXT, -(1 + 2.0**-51), 2.0**-104),  # what a product alone would lose
    (TINY, 0.5, 0.0, 0.0), (TINY, 0.5, TINY, 2 * TINY), (1.0, -1.0, 1.0, 0.0), (0.0, -1.0, 0.0, 0.0)])
def test_the_exact_fma(a: float, b: float, c: float, wanted: float) -> None:
    with np.errstate(all="ignore"):
        for found in (oracle._exact_fma(a, b, c), oracle.fma(*(np.array([part]) for part in (a, b, c)))[0]):
            assert found == wanted or (math.isnan(found) and math.isnan(wanted))


@pytest.mark.skipif(oracle.HAS_QUAD, reason="a wider float holds the product")
def test_the_fma_of_parts_is_exact(rng: np.random.Generator) -> None:
    """Sums that cancel, ties and their neighbours, addends far below and far above."""
    a, b, c = rng.normal(size=(3, 3000)) * np.exp2(rng.integers(-30, 30, (3, 3000)))
    c[:600] = -(a * b)[:600] * (1 + rng.integers(-3, 4, 600) * 2.0**-52)
    a[600:1200], b[600:1200] = rng.integers(2**52, 2**53, 600), 1 + rng.integers(1, 4, 600) / 2
    c[600:1200] = rng.choice([-1, 1], 600) * np.exp2(rng.integers(-80, 3, 600))
    c[1200:1800] = (a * b)[1200:1800] * np.exp2(rng.integers(-110, 110, 600))
    c[1800:1900], a[1900:2000], b[2000:2100] = 0, 0, 1e300
    total, known = oracle._fma_of_parts(a, b, c)
    with np.errstate(all="ignore"):
        exact = np.array([oracle._exact_fma(*row) for row in zip(a, b, c, strict=True)])
    assert known.mean() > 0.8 and np.array_equal(total[known], exact[known])
    assert np.array_equal(oracle.fma(a, b, c), exact)
