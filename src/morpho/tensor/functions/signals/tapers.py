"""Windows that pieces of a signal are weighted with. `periodic` ones are for Fourier transforms, others symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dtypes import as_dtype, float32
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.shapes import as_integer
from morpho.tensor.convert import unplaced
from morpho.tensor.core import Tensor


def _made(name: str, length: Any, periodic: bool, dtype: Any, shape: Any) -> Tensor:
    """A window of NumPy's, which are symmetric: a periodic one is that of one more without its last element."""
    count, target = as_integer(length, name, "the length"), as_dtype(dtype)
    if count < 0:
        raise fail(ArgumentError, name, f"a window of {count} elements cannot be made")
    if not target.is_float:
        raise fail(DTypeError, name, f"dtype {target} is not floating")
    values = np.ones(count) if count < 2 else shape(count + 1)[:-1] if periodic else shape(count)
    found = unplaced(np.asarray(values, np.float64))
    return found.astype(target) if target is not found.dtype else found


def hann_window(length: int, /, *, periodic: bool = True, dtype: Any = float32) -> Tensor:
    """A raised cosine.

    >>> mo.hann_window(4).numpy().round(3)
    array([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    return _made("hann_window", length, periodic, dtype, np.hanning)


def hamming_window(length: int, /, *, periodic: bool = True, dtype: Any = float32) -> Tensor:
    """A raised cosine on a step of 0.08.

    >>> mo.hamming_window(3, periodic=False).numpy().round(3)
    array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _made("hamming_window", length, periodic, dtype, np.hamming)


def blackman_window(length: int, /, *, periodic: bool = True, dtype: Any = float32) -> Tensor:
    """A sum of three cosines.

    >>> mo.blackman_window(4).numpy().round(3)
    array([-0.  ,  0.34,  1.  ,  0.34], dtype=float32)
    """
    return _made("blackman_window", length, periodic, dtype, np.blackman)


def bartlett_window(length: int, /, *, periodic: bool = True, dtype: Any = float32) -> Tensor:
    """A triangle.

    >>> mo.bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return _made("bartlett_window", length, periodic, dtype, np.bartlett)


def kaiser_window(length: int, /, *, beta: float = 12.0, periodic: bool = True, dtype: Any = float32) -> Tensor:
    """Kaiser's window, narrower for larger beta.

    >>> mo.kaiser_window(3, beta=0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    return _made("kaiser_window", length, periodic, dtype, lambda count: np.kaiser(count, float(beta)))
