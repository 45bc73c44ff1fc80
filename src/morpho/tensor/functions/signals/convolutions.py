"""Lines of numbers convolved and correlated, as NumPy names it; `mo.conv1d` has channels and batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.tensor.convert import following
from morpho.tensor.core import Tensor
from morpho.tensor.functions.elementwise import conj, imag, real
from morpho.tensor.functions.move import flip, pad
from morpho.tensor.functions.neural.convolution import conv1d
from morpho.tensor.functions.products.products import matmul
from morpho.tensor.functions.searching.search import take
from morpho.tensor.operands import promoted

MODES = ("full", "same", "valid")


def convolve(a: Any, v: Any, /, *, mode: str = "full") -> Tensor:
    """The convolution of two lines: sums of a[n - k] v[k] wherever they overlap ("full"), in the middle as many as the
    longer line has ("same"), or where all of the shorter one lies inside ("valid").

    >>> mo.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).tolist()
    [0.0, 1.0, 2.5, 4.0, 1.5]
    """
    first, second = _lines("convolve", a, v, mode)
    if first.shape[0] < second.shape[0]:
        first, second = second, first
    return _slid(first, flip(second), mode)


def correlate(a: Any, v: Any, /, *, mode: str = "valid") -> Tensor:
    """The correlation of two lines: sums of a[n + k] with the conjugate of v[k], for the same modes as `convolve`.

    >>> mo.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], mode="same").tolist()
    [2.0, 3.5, 3.0]
    """
    first, second = _lines("correlate", a, v, mode)
    second = conj(second) if second.dtype.is_complex else second
    if first.shape[0] >= second.shape[0]:
        return _slid(first, second, mode)
    return flip(_slid(second, first, mode))


def _lines(name: str, a: Any, v: Any, mode: str) -> tuple[Tensor, Tensor]:
    first, second = (Tensor.of_node(node) for node in promoted(name, a, v))
    if mode not in MODES:
        raise fail(ArgumentError, name, f"mode {mode!r} is unknown", "use full, same or valid")
    if len(first.shape) != 1 or len(second.shape) != 1:
        raise fail(ShapeError, name, f"shapes {first.shape} and {second.shape} are not two lines",
                   "mo.conv1d takes batches and channels")
    if not all(isinstance(line.shape[0], int) and line.shape[0] > 0 for line in (first, second)):
        raise fail(ShapeError, name, "an empty line, or one of dynamic length, is not taken")
    return first, second


def _slid(line: Tensor, window: Tensor, mode: str) -> Tensor:
    """A window, not longer than the line, slid over it."""
    if line.dtype.is_complex:
        (a, b), (c, d) = ((real(x), imag(x)) for x in (line, window))
        return _slid(a, c, mode) - _slid(b, d, mode) + (_slid(a, d, mode) + _slid(b, c, mode)) * 1j
    if not line.dtype.is_inexact:
        return _slid_exactly(line, window, mode)
    width = int(window.shape[0])
    before = {"full": width - 1, "same": width // 2, "valid": 0}[mode]
    after = {"full": width - 1, "same": width - 1 - width // 2, "valid": 0}[mode]
    return conv1d(line[None, None], window[None, None], padding=((before, after),))[0, 0]


def _slid_exactly(line: Tensor, window: Tensor, mode: str) -> Tensor:
    """The same of integers and truth values: products of all windows as a matrix."""
    width = int(window.shape[0])
    ends = {"full": (width - 1, width - 1), "same": (width // 2, width - 1 - width // 2), "valid": (0, 0)}[mode]
    padded = pad(line, (ends,))
    places = np.arange(int(padded.shape[0]) - width + 1)[:, None] + np.arange(width)
    return matmul(take(padded, following(places.ravel()), axis=0).reshape(places.shape), window)
