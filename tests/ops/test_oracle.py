"""The oracle's own arithmetic: its two ways to an fma of float64, of which a machine needs one, agree."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest

EXTREMES = [0.0, -0.0, 1.0, -1.5, 5e-324, 2.2e-308, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 1 + 2.0**-52]


@pytest.mark.skipif(not oracle.HAS_QUAD, reason="no float here holds a product of two float64")
def test_both_ways_to_an_exact_fma_agree() -> None:
    a, b, c = (np.array(part) for part in zip(*itertools.product(EXTREMES, repeat=3), strict=True))
    with np.errstate(all="ignore"):
        found = np.array([oracle._exact_fma(*three) for three in zip(a, b, c, strict=True)])
        assert np.array_equal(oracle.fma(a, b, c), found, equal_nan=True)
        assert oracle._exact_fma(1e308, -10.0, np.inf) == np.inf
