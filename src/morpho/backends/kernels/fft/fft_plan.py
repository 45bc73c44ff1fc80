"""The passes of a transform: which radices, in which order, and where each pass finds its roots of unity.

A pass of radix r on n numbers (Stockham's autosort form) reads x[q + s (p + k m)] and writes y[q + s (r p + k)] for
p < m, q < s, k < r, with s the product of the radices before it and m = n / (r s). What it computes does not depend on
how lanes run, so that a row alone and a row of a batch have the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dtypes import DType, float32
from morpho.ops.complex.fourier import radices

LEAST_ROUND = 128  # of the transforms that Bluestein's way is made of


@dataclass(frozen=True)
class Pass:
    """One pass. `spread`: its roots lie in memory once for every number, as whole vectors of them differ."""

    radix: int
    before: int  # product of the radices of earlier passes (s)
    after: int  # and of later ones (m)
    spread: bool
    start: int  # of its roots in the table

    @property
    def butterflies(self) -> int:
        return self.before * self.after

    @property
    def roots(self) -> int:
        """How many the table holds for it."""
        if self.after == 1:
            return 0
        return (self.radix - 1) * (self.butterflies if self.spread else self.after)


def wide_lanes(dtype: DType) -> int:
    """The most lanes of any vector: where a pass changes its form is the same on every machine."""
    return 16 if dtype is float32 else 8


def passes(n: int, dtype: DType) -> tuple[Pass, ...]:
    """The passes of a transform of n numbers, whose prime factors are small."""
    chosen = radices(n)
    assert chosen is not None
    found: list[Pass] = []
    before, start = 1, 0
    for radix in chosen:
        found.append(Pass(radix, before, n // before // radix, before < wide_lanes(dtype), start))
        start += found[-1].roots
        before *= radix
    return tuple(found)


def fits_rows(n: int, dtype: DType) -> bool:
    """Whether a transform is long enough for lanes that run along it."""
    chosen = radices(n)
    return chosen is not None and len(chosen) > 1 and n // max(chosen) >= wide_lanes(dtype)


def round_length(least: int) -> int:
    """The smallest length of the kind 2**a or 3, 5, 9 or 15 times that, from `least` on.

    >>> round_length(20013), round_length(3)
    (20480, 128)
    """
    least = max(least, LEAST_ROUND)
    return min(factor << max(0, (-(-least // factor) - 1).bit_length()) for factor in (1, 3, 5, 9, 15))
