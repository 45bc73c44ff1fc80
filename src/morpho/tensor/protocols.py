"""Protocols of a tensor for Python, notebooks and other processes: `round`, `divmod`, `in`, formats,
HTML, pickling by value."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import as_integer
from morpho.runtime.memory.buffer import borrow
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.reduce import any as any_

MOST_CELLS = 400  # of a table; larger tensors are shown as text


def rounded(self: Tensor, digits: Any = None) -> Any:
    """`round(x)`, `round(x, 2)`: of a 0-dimensional tensor a Python number, as of any number; else a tensor."""
    if self.ndim == 0:
        return round(self.item(), digits)
    places = 0 if digits is None else as_integer(digits, "round", "digits")
    if places == 0 or (places > 0 and not self.dtype.is_float):
        return ew.round(self)
    factor = 10.0 ** places
    return ew.divide(ew.round(ew.multiply(self, factor)), factor)


def divided(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    """`divmod(x, y)`: x // y and x % y."""
    return ew.floor_divide(self, other), ew.remainder(self, other)


def divides(self: Tensor, other: Any) -> tuple[Tensor, Tensor]:
    return ew.floor_divide(other, self), ew.remainder(other, self)


def contains(self: Tensor, value: Any) -> bool:
    """`value in x`: whether any element equals it."""
    found = ew.equal(self, value)
    return bool(any_(found))


def formatted(self: Tensor, specification: str) -> str:
    """`f"{x:.2f}"`: each element by the specification; of a 0-dimensional tensor its number."""
    if not specification:
        return str(self)
    try:
        if self.ndim == 0:
            return format(self.item(), specification)
        return np.array2string(self._values(), separator=", ", threshold=200,
                               formatter={"all": lambda value: format(value.item(), specification)})  # type: ignore[arg-type]
    except ValueError as error:
        raise fail(ArgumentError, "format", f"{specification!r} does not format {self.dtype} elements ({error})",
                   'write f"{x:.2f}" for floats, f"{x:d}" for integers') from None


def as_html(self: Tensor) -> str:
    """A table in a notebook, for up to two axes and a few hundred elements; else the text."""
    if not 1 <= self.ndim <= 2 or self.size > MOST_CELLS:
        return f"<pre>{html.escape(str(self))}</pre>"
    rows = self._values().reshape(-1, self.shape[-1])
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table>{cells}</table><small>{self.dtype} {self.shape}</small>"


# -- other processes -------------------------------------------------------------------------------------------------
def reduced(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """A tensor by value, through NumPy's own reduction: for `multiprocessing`, `joblib` and caches. Models and weights
    go into files of weights instead, which nobody runs."""
    if type(self) is not Tensor:
        raise fail(ArgumentError, "pickle", f"a {type(self).__name__} is not pickled",
                   "save a model with mo.weights.save(path, model.state_dict()), read it with mo.weights.load(path); "
                   "x.detach() can be pickled")
    return restored, (np.array(self.elements().numpy()), self.dtype)


def restored(array: np.ndarray, dtype: DType) -> Tensor:
    """The tensor of an array that came from another process or file; its memory is the tensor's."""
    if not isinstance(array, np.ndarray) or array.dtype != as_dtype(dtype).numpy:
        raise fail(ArgumentError, "pickle", "these are not the elements of a tensor")
    return Tensor.of_buffer(borrow(array if array.flags.c_contiguous else array.copy(), as_dtype(dtype)))
