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
