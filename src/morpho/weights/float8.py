"""Floats of 8 bits in files: what each byte means. They become float32 when they are read, exactly."""

from __future__ import annotations

from functools import cache

import numpy as np

KINDS = {"F8_E4M3": (3, 7, False), "F8_E5M2": (2, 15, True)}  # bits of the fraction, bias, whether it has infinities


@cache
def table(kind: str) -> np.ndarray:
    """The value of each of the 256 bytes, in float32.

    >>> from morpho.weights.float8 import table
    >>> table("F8_E4M3")[[0x38, 0x7E, 0x80]], table("F8_E5M2")[[0x3C, 0x7C]]
    (array([  1., 448.,  -0.], dtype=float32), array([ 1., inf], dtype=float32))
    """
    bits, bias, infinite = KINDS[kind]
    codes = np.arange(256)
    exponents, fractions = (codes & 127) >> bits, codes & ((1 << bits) - 1)
    top = (1 << (7 - bits)) - 1
    normal = (1 + fractions / (1 << bits)) * 2.0 ** (exponents - bias)
    found = np.where(exponents == 0, fractions / (1 << bits) * 2.0 ** (1 - bias), normal)
    if infinite:
        found = np.where(exponents == top, np.where(fractions == 0, np.inf, np.nan), found)
    else:
        found = np.where((exponents == top) & (fractions == (1 << bits) - 1), np.nan, found)
    return np.where(codes & 128, -found, found).astype(np.float32)
