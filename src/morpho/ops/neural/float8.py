"""Floats of 8 bits: what each byte means, by the names that safetensors files have for them.

They are held in files and in blocks of quantised weights; arithmetic is in float32, which holds all of them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Float8:
    """`bits` of the fraction, the exponent's bias, and what the largest codes are: infinities and NaN as IEEE 754 has
    them ("ieee"), one NaN with all bits set ("fn"), or numbers, and NaN where -0.0 would be ("fnuz")."""

    bits: int
    bias: int
    ends: str


KINDS = {"F8_E4M3": Float8(3, 7, "fn"), "F8_E5M2": Float8(2, 15, "ieee"),
         "F8_E4M3FNUZ": Float8(3, 8, "fnuz"), "F8_E5M2FNUZ": Float8(2, 16, "fnuz")}
POWERS = "F8_E8M0"  # an exponent alone, as the scales of MX formats are: no weights are of it


@cache
def table(kind: str) -> np.ndarray:
    """The value of each of the 256 bytes, in float32.

    >>> from morpho.ops.neural.float8 import table
    >>> table("F8_E4M3")[[0x38, 0x7E, 0x80]], table("F8_E5M2")[[0x3C, 0x7C]]
    (array([  1., 448.,  -0.], dtype=float32), array([ 1., inf], dtype=float32))
    >>> table("F8_E4M3FNUZ")[[0x40, 0x7F, 0x80]]
    array([  1., 240.,  nan], dtype=float32)
    >>> table("F8_E8M0")[[126, 127, 128, 255]]
    array([0.5, 1. , 2. , nan], dtype=float32)
    """
    if kind == POWERS:
        return np.append(np.exp2(np.arange(255) - 127.0), np.nan).astype(np.float32)
    form = KINDS[kind]
    codes, ones = np.arange(256), (1 << form.bits) - 1
    exponents, fractions = (codes & 127) >> form.bits, codes & ones
    top = (1 << (7 - form.bits)) - 1
    normal = (1 + fractions / (ones + 1)) * 2.0 ** (exponents - form.bias)
    found = np.where(exponents == 0, fractions / (ones + 1) * 2.0 ** (1 - form.bias), normal)
    if form.ends == "ieee":
        found = np.where(exponents == top, np.where(fractions == 0, np.inf, np.nan), found)
    elif form.ends == "fn":
        found = np.where((exponents == top) & (fractions == ones), np.nan, found)
    found = np.where(codes & 128, -found, found)
    return (np.where(codes == 128, np.nan, found) if form.ends == "fnuz" else found).astype(np.float32)
