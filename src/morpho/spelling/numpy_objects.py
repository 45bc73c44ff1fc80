"""NumPy's names for what is no arithmetic: iteration over indices, text forms of numbers, `poly1d`, `np.polynomial`,
`np.lib`, `np.typing`.

What `np.polynomial` and `np.lib.stride_tricks` compute is computed by NumPy when the line runs: tensors go in, and
tensors come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.spelling.numpy_functions import array, asanyarray

binary_repr, base_repr, ndindex = np.binary_repr, np.base_repr, np.ndindex
format_float_positional, format_float_scientific = np.format_float_positional, np.format_float_scientific
ScalarType, typecodes = np.ScalarType, np.typecodes
typing = SimpleNamespace(NDArray=Any, ArrayLike=Any, DTypeLike=Any)
asfortranarray = asanyarray
little_endian = np.little_endian


def plain(value: Any) -> Any:
    """Arrays in place of tensors."""
    if isinstance(value, mo.Tensor):
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return value


def tensors(value: Any) -> Any:
    """Tensors in place of arrays."""
    if isinstance(value, np.ndarray | np.generic):
        return mo.asarray(value)
    return type(value)(map(tensors, value)) if type(value) in (list, tuple) else value


def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> mo.Tensor:
    return array(a, dtype=dtype)


def ndenumerate(arr: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Indices with their elements, which are read now."""
    return iter(np.ndenumerate(plain(mo.asarray(arr))))


def nditer(op: Any, flags: Any = None, op_flags: Any = None, **settings: Any) -> Any:
    """NumPy's iterator, to be read: elements are written by `x[index] = value`."""
    if op_flags is not None and any("write" in str(flag) for flag in np.ravel(np.asarray(op_flags, dtype=object))):
        raise fail(ArgumentError, "nditer", "a tensor is not written through an iterator",
                   "write x[...] = f(x), or x[index] = value in a loop over mo.ndindex(x.shape)")
    return np.nditer(plain(op), *([] if flags is None else [flags]), **settings)


class broadcast:
    """The common shape of arrays."""

    def __init__(self, *args: Any) -> None:
        self.shape = np.broadcast_shapes(*[tuple(mo.asarray(one).shape) for one in args])
        self.ndim = self.nd = len(self.shape)
        self.size = int(np.prod(self.shape))


class poly1d:
    """A polynomial by its coefficients, from the highest power down: called, added, multiplied, differentiated.

    >>> p = mo.poly1d([1, 2, 3])
    >>> float(p(2)), p.deriv()(1.0).item(), p.order
    (11.0, 4.0, 2)
    """

    def __init__(self, c_or_r: Any, r: bool = False, variable: str | None = None) -> None:
        source = np.poly1d(plain(c_or_r.c if isinstance(c_or_r, poly1d) else c_or_r), r, variable)
        self._own = source

    @property
    def c(self) -> mo.Tensor:
        return mo.asarray(self._own.c)

    coef = coefficients = coeffs = c

    @property
    def r(self) -> mo.Tensor:
        return mo.asarray(self._own.r)

    roots = r

    @property
    def order(self) -> int:
        return int(self._own.order)

    o = order

    @property
    def variable(self) -> str:
        return self._own.variable

    def __call__(self, val: Any) -> Any:
        if isinstance(val, poly1d):
            return poly1d(self._own(val._own).c)
        return mo.polyval(self.c, mo.asarray(val))

    def deriv(self, m: int = 1) -> poly1d:
        return poly1d(self._own.deriv(m).c)

    def integ(self, m: int = 1, k: Any = 0) -> poly1d:
        return poly1d(self._own.integ(m, k).c)

    def _with(self, name: str, other: Any) -> Any:
        value = getattr(self._own, name)(other._own if isinstance(other, poly1d) else plain(other))
        if isinstance(value, tuple):
            return tuple(poly1d(one.c) for one in value)
        return poly1d(value.c) if isinstance(value, np.poly1d) else value

    def __add__(self, other: Any) -> Any:
        return self._with("__add__", other)

    def __sub__(self, other: Any) -> Any:
        return self._with("__sub__", other)

    def __mul__(self, other: Any) -> Any:
        return self._with("__mul__", other)

    def __truediv__(self, other: Any) -> Any:
        return self._with("__truediv__", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Any:
        return self._with("__rsub__", other)

    def __neg__(self) -> poly1d:
        return poly1d(-self._own.c)

    def __pow__(self, power: int) -> Any:
        return poly1d((self._own ** power).c)

    def __getitem__(self, power: int) -> Any:
        return self._own[power]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, poly1d) and bool(self._own == other._own)

    def __hash__(self) -> int:
        return hash(self._own.c.tobytes())

    def __len__(self) -> int:
        return self.order

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own.c)

    def __array__(self, *args: Any, **settings: Any) -> Any:
        return np.asarray(self._own.c)

    def __str__(self) -> str:
        return str(self._own)

    def __repr__(self) -> str:
        return repr(self._own)


class _ByNumPy:
    """A module of NumPy whose functions take and give tensors."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return _ByNumPy(value)
        if isinstance(value, type) or not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            made = value(*[plain(one) for one in args], **{key: plain(one) for key, one in options.items()})
            return tensors(made)

        call.__name__ = name
        call.__doc__ = value.__doc__
        return call

    def __dir__(self) -> Sequence[str]:
        return dir(self._module)


def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, **settings: Any) -> mo.Tensor:
    """Windows along axes, in new axes at the end; copies, as tensors are values."""
    x = mo.asarray(x)
    shape = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) != len(shape):
        raise fail(ArgumentError, "sliding_window_view", f"{len(shape)} sizes for {len(axes)} axes")
    for one, size in zip(axes, shape, strict=True):
        count = x.shape[one] - size + 1
        if count < 1:
            raise fail(ArgumentError, "sliding_window_view", f"a window of {size} is larger than axis {one}")
        places = mo.arange(count)[:, None] + mo.arange(size)[None, :]
        one %= x.ndim
        rows = mo.reshape(mo.take(x, mo.ravel(places), axis=one), (*x.shape[:one], count, size, *x.shape[one + 1:]))
        x = mo.moveaxis(rows, one + 1, -1)
    return x


polynomial = _ByNumPy(np.polynomial)
lib = SimpleNamespace(stride_tricks=SimpleNamespace(sliding_window_view=sliding_window_view,
                                                    broadcast_to=mo.broadcast_to,
                                                    broadcast_arrays=mo.broadcast_arrays))
