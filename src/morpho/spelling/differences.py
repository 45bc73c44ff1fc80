"""Names that NumPy and PyTorch both have and answer differently: NumPy's meaning holds, and each difference is a line
here.

A result counts as NumPy's meaning where NumPy's own call gives the same; `is_numpys` makes that call. So no line
can hide a wrong result.

>>> from morpho.spelling.differences import DIFFERENCES
>>> DIFFERENCES["std"]
'divides by n; correction= chooses'
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo

DIFFERENCES = {
    "equal": "a result for each element; mo.array_equal is PyTorch's", "put": "writes to its tensor",
    "select": "a choice among several arrays; x.select(dim, index) is PyTorch's",
    "median": "the mean of two in the middle, as NumPy; the lower one with dim=",
    "nanmedian": "the mean of two in the middle, as NumPy; the lower one with dim=",
    "std": "divides by n; correction= chooses", "var": "divides by n; correction= chooses",
    "tril_indices": "(n, k, m); PyTorch's are (row, col, offset)",
    "triu_indices": "(n, k, m); PyTorch's are (row, col, offset)",
    "cumsum": "a number has a running sum of shape (1,)", "cumprod": "a number has a running product of shape (1,)",
    "linspace": "integers are rounded down, not towards zero", "arange": "the count of numbers is exact",
    "heaviside": "floats, of integers too", "histogram": "counts are integers", "bincount": "counts are integers",
    "nonzero": "an index for each axis; as_tuple=False is PyTorch's", "tensordot": "axes of one size",
    "max": "the second argument is an axis; mo.maximum compares two", "square": "int8 of truth values",
    "min": "the second argument is an axis; mo.minimum compares two", "meshgrid": 'indexing="xy" unless given',
    "linalg.solve": "only a line is a vector", "unfold": "nn.functional's; x.unfold is the method",
    "repeat": "each element several times; mo.tile is PyTorch's",
    "sort": "the sorted elements alone; with dim= the pair",
    "polygamma": "NaN below zero, as SciPy", "special.polygamma": "NaN below zero, as SciPy",
    "transpose": "the order of all axes; mo.swapaxes exchanges two",
    "transpose_copy": "the order of all axes; mo.swapaxes exchanges two",
    "histogramdd": "counts are float64",
}
# PyTorch's keywords in NumPy's words, for the call that is compared.
KEYWORDS = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof", "unbiased": "ddof", "input": "a",
            "weight": "weights"}


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    result = np.array(x)
    np.put(result, index, source)
    return result


def _polygamma(n: Any, x: Any) -> Any:
    import scipy.special

    return scipy.special.polygamma(n, x)


OWN: dict[str, Callable[..., Any]] = {  # calls that NumPy or SciPy has under another name, or of another form
    "put": _put, "polygamma": _polygamma, "special.polygamma": lambda n, x=None: _polygamma(n, x),
    "transpose_copy": np.transpose,
    "searchsorted": lambda a, v, right=False, side=None, **rest: _searched(a, v, "right" if right else side or "left"),
}


def _searched(lines: Any, values: Any, side: Any) -> Any:
    if np.ndim(lines) == 1:
        return np.searchsorted(lines, values, side)
    width = np.shape(values)[-1]
    rows = zip(np.reshape(lines, (-1, lines.shape[-1])), np.reshape(values, (-1, width)), strict=True)
    return np.reshape([np.searchsorted(line, value, side) for line, value in rows], np.shape(values))


def is_numpys(name: str, args: Any, options: Any, result: Any) -> bool:
    """Whether NumPy's own function of the name, or SciPy's, gives this result for the same arguments."""
    function = OWN.get(name)
    if function is None:
        function = functools.reduce(lambda place, part: getattr(place, part, None), name.split("."), np)  # type: ignore
    if not callable(function):
        return False
    named = options if name in OWN else {KEYWORDS.get(key, key): value for key, value in options.items()}
    try:
        with np.errstate(all="ignore"):
            wanted = function(*args, **named)
    except Exception:
        return False
    return _same(result, wanted)


def _same(result: Any, wanted: Any) -> bool:
    if isinstance(result, tuple | list):
        return isinstance(wanted, tuple | list) and len(result) == len(wanted) and all(map(_same, result, wanted))
    one = result.numpy() if isinstance(result, mo.Tensor) else np.asarray(result)
    other = np.asarray(wanted)
    return one.shape == other.shape and np.allclose(one, other, rtol=2e-4, atol=2e-4, equal_nan=True)
