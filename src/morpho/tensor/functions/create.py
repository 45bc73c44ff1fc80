"""Making tensors by formula: constants, ranges, grids, triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.backends.registry import HOST
from morpho.base.checks import shown
from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import DType, as_dtype, bool_, float64, promote
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_sizes, broadcast, check_shape
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant, expand, reshape
from morpho.runtime.memory.buffer import allocate
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.device import creates
from morpho.tensor.operands import as_node
from morpho.tensor.recorded import recorded
from morpho.tensor.scalars import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT, is_scalar, rounded, scalar_node


# -- by formula ------------------------------------------------------------------------------------------------------
def _filled(shape: Any, value: Any, dtype: DType, operation: str) -> Tensor:
    sizes = as_sizes(shape, operation, dtype.itemsize)
    return Tensor.of_node(expand(scalar_node(value, dtype, operation), sizes))


@creates
@recorded
def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor with one value everywhere, or with values that broadcast to its shape.

    >>> mo.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int64)
    """
    if is_scalar(fill_value):
        kinds = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
        return _filled(shape, fill_value, as_dtype(dtype) if dtype is not None else kinds[type(fill_value)], "full")
    node = as_node(fill_value, "full")
    node = node if dtype is None else cast(node, as_dtype(dtype))
    sizes = as_sizes(shape, "full", node.dtype.itemsize)
    if broadcast("full", node.shape, sizes) != sizes:
        raise fail(ShapeError, "full", f"values of shape {node.shape} do not broadcast to {sizes}")
    return Tensor.of_node(expand(node, sizes))


@creates
@recorded
def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros, float32 unless a dtype is given.

    >>> mo.zeros(3, dtype=mo.int32)
    Tensor([0, 0, 0], dtype=int32)
    """
    return _filled(shape, 0, as_dtype(dtype or DEFAULT_FLOAT), "zeros")


@creates
@recorded
def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones, float32 unless a dtype is given.

    >>> mo.ones((2, 2))
    Tensor([[1., 1.],
            [1., 1.]], dtype=float32)
    """
    return _filled(shape, 1, as_dtype(dtype or DEFAULT_FLOAT), "ones")


@creates
def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory with undefined contents, for `out=`; float32 unless a dtype is given.

    >>> target = mo.empty(3)
    >>> mo.compile(lambda x: x + 1)(mo.ones(3), out=target)
    Tensor([2., 2., 2.], dtype=float32)
    """
    target = as_dtype(dtype or DEFAULT_FLOAT)
    return Tensor.of_buffer(allocate(as_sizes(shape, "empty", target.itemsize), target))  # type: ignore[arg-type]


def _like(x: Any, dtype: Any, operation: str) -> tuple[Shape, DType]:
    """Shape and dtype of a tensor, or of what becomes one."""
    found = x if isinstance(x, Tensor) else as_node(x, operation)
    return found.shape, found.dtype if dtype is None else as_dtype(dtype)


def _where(x: Any, device: Any) -> Any:
    """The device that is asked for, else that of x where it is not the usual one."""
    return x.device if device is None and isinstance(x, Tensor) and x.device != HOST else device


@recorded
def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros with the shape and dtype of x.

    >>> mo.zeros_like(mo.asarray([1, 2]))
    Tensor([0, 0], dtype=int64)
    """
    shape, target = _like(x, dtype, "zeros_like")
    return zeros(shape, dtype=target, device=_where(x, device))


@recorded
def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones with the shape and dtype of x.

    >>> mo.ones_like([1, 2]).dtype
    int64
    """
    shape, target = _like(x, dtype, "ones_like")
    return ones(shape, dtype=target, device=_where(x, device))


@recorded
def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value with the shape and dtype of x.

    >>> mo.full_like(mo.ones(3), 0.5)
    Tensor([0.5, 0.5, 0.5], dtype=float32)
    """
    shape, target = _like(x, dtype, "full_like")
    return full(shape, fill_value, dtype=target, device=_where(x, device))


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory with undefined contents, with the shape and dtype of x.

    >>> mo.empty_like(mo.ones((2, 3))).shape
    (2, 3)
    """
    shape, target = _like(x, dtype, "empty_like")
    return empty(shape, dtype=target, device=_where(x, device))


@creates
@recorded
def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, ... up to but without stop. Without a dtype it is that of the tensors and NumPy numbers
    among the three; of Python numbers alone int64, or float32 if one is a float. Steps with a fraction do not go with
    an integer dtype: libraries round them at different places.

    >>> mo.arange(mo.asarray(3, dtype="int32")).dtype
    int32
    """
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, Dim) for v in (start, stop, step)):
        if isinstance(stop, Dim) and start == 0 and step == 1:  # as many numbers as a dynamic dimension has
            target = as_dtype(dtype) if dtype is not None else DEFAULT_INT
            return Tensor.of_node(build("iota", shape=(stop,), axis=0, dtype=target))
        raise fail(ArgumentError, "arange", "a dynamic size goes only with start 0 and step 1",
                   "multiply and add to mo.arange(n) instead")
    given = start, stop, step
    start, stop, step = (_number(v, "arange", what) for v, what in zip(given, ("start", "stop", "step"), strict=True))
    if step == 0:
        raise fail(ArgumentError, "arange", "the step is 0")
    target = _common_dtype(given) if dtype is None else as_dtype(dtype)
    _check_whole_steps(start, step, target)
    length = _steps(start, stop, step)
    if dtype is None and length:
        _check_ends(start, start + step * (length - 1), target)
    return Tensor.of_node(_ramp(start, step, length, target))


def _check_whole_steps(start: Any, step: Any, target: DType) -> None:
    """NumPy rounds start and start + step and goes on by their difference, which gives numbers outside of the range."""
    for what, number in (("start", start), ("step", step)):
        if target.is_integer and isinstance(number, float) and math.isfinite(number) and not number.is_integer():
            raise fail(ValueFault, "arange", f"the {what} {number} is no number of {target}",
                       f"round the numbers yourself: mo.floor(mo.arange(...)).astype('{target}')")


def _check_ends(first: Any, last: Any, target: DType) -> None:
    """Refuse numbers that the dtype of a bound does not hold."""
    if target.is_integer:
        info = np.iinfo(target.numpy)
        held = all(info.min <= number <= info.max for number in (first, last))
    else:
        held = all(math.isfinite(rounded(float(number), target)) for number in (first, last))
    if not held:
        raise fail(ValueFault, "arange", f"numbers from {shown(first)} to {shown(last)} do not fit {target}",
                   "give a dtype")


def _common_dtype(numbers: Sequence[Any]) -> DType:
    """That of the tensors and NumPy numbers among them, which Python's follow unless they have a fraction."""
    found: DType | None = None
    for number in numbers:
        if isinstance(number, Tensor | np.ndarray | np.generic):
            own = as_dtype(number.dtype)
            found = own if found is None else promote(found, own, "arange")
    fraction = any(type(number) is float for number in numbers)
    if found is None or found is bool_ or (fraction and found.is_integer):
        return DEFAULT_FLOAT if fraction else DEFAULT_INT
    return found


def _steps(start: Any, stop: Any, step: Any) -> int:
    """How many numbers `arange` makes; the quotient of integers is exact, whatever their size."""
    try:
        whole = all(isinstance(v, int) for v in (start, stop, step))
        length = max(0, -((start - stop) // step) if whole else math.ceil((stop - start) / step))
    except (OverflowError, ValueError):  # an infinity, NaN, or an integer that is no float
        raise fail(ValueFault, "arange", f"the way from {shown(start)} to {shown(stop)} by {shown(step)} has no finite "
                                         "number of steps") from None
    check_shape((length,), "arange", 8)  # computed in 64 bits
    if whole and length and not all(-1 << 63 <= v < 1 << 63 for v in (start, start + step * (length - 1))):
        raise fail(ValueFault, "arange", f"numbers from {start} to {stop} do not fit int64")
    return length  # type: ignore[no-any-return]


def _number(value: Any, operation: str, what: str) -> int | float:
    """A real Python number, from NumPy's scalars and 0-dimensional tensors too."""
    if isinstance(value, np.generic | Tensor | np.ndarray):
        if value.ndim:
            raise fail(ShapeError, operation, f"a tensor of shape {tuple(value.shape)} is not a single number")
        value = value.item()
    if not isinstance(value, int | float):
        raise fail(ArgumentError, operation, f"{what} {shown(value)} is not a real number")
    return value


def _ramp(start: Any, step: Any, length: int, target: DType) -> Node:
    """start + step * index, in int64 or float64, then converted once."""
    whole = isinstance(start, int) and isinstance(step, int)
    wide = DEFAULT_INT if whole and not target.is_float else float64
    index = build("iota", shape=(length,), axis=0, dtype=wide)
    if step != 1 and length > 1:  # a step that is not taken may be of any size
        index = build("multiply", index, expand(constant(step, wide), (length,)))
    if start != 0:
        index = build("add", index, expand(constant(start, wide), (length,)))
    return _whole(index, target)


def _whole(node: Node, target: DType) -> Node:
    """Converted once; fractions go down to the integer below, as in NumPy's linspace, where a cast alone would take
    them towards zero."""
    return cast(build("floor", node) if target.is_integer and node.dtype.is_float else node, target)


@creates
@recorded
def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
             endpoint: bool = True) -> Tensor:
    """`num` evenly spaced numbers from start to stop, the end included unless told otherwise. Those of an integer dtype
    are rounded down.

    >>> mo.linspace(-1, 1, 5, dtype="int32").tolist()
    [-1, -1, 0, 0, 1]
    >>> mo.linspace(0.0, 1.0, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num = as_integer(num, "linspace", "num")
    if num < 0:
        raise fail(ArgumentError, "linspace", f"{num} numbers cannot be made")
    check_shape((num,), "linspace", 8)
    target = as_dtype(dtype) if dtype is not None else DEFAULT_FLOAT
    if target.is_complex or isinstance(start, complex) or isinstance(stop, complex):
        return asarray(np.linspace(start, stop, num, endpoint=endpoint).astype((target if target.is_complex else
                                                                              DEFAULT_COMPLEX).numpy))
    start, stop = float(_number(start, "linspace", "start")), float(_number(stop, "linspace", "stop"))
    gaps = num - 1 if endpoint else num
    step = (stop - start) / gaps if gaps > 0 else 0.0
    node = _ramp(start, step, num, float64)
    if endpoint and num > 1:  # the last one is exactly `stop`
        index = build("iota", shape=(num,), axis=0, dtype=DEFAULT_INT)
        last = build("equal", index, expand(constant(num - 1, DEFAULT_INT), (num,)))
        node = build("where", last, expand(constant(stop, float64), (num,)), node)
    return Tensor.of_node(_whole(node, target))


@creates
@recorded
def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on a diagonal, zeros elsewhere.

    >>> mo.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    shape, k = as_sizes((n_rows, n_rows if n_cols is None else n_cols), "eye", 8), as_integer(k, "eye", "k")
    rows, columns = (build("iota", shape=shape, axis=axis, dtype=DEFAULT_INT) for axis in (0, 1))
    shifted = build("add", rows, expand(constant(k, DEFAULT_INT), shape)) if k else rows
    return Tensor.of_node(cast(build("equal", columns, shifted), as_dtype(dtype or DEFAULT_FLOAT)))


def _triangle(name: str, x: Any, k: int, comparison: str) -> Tensor:
    node, k = as_node(x, name), as_integer(k, name, "k")
    if len(node.shape) < 2:
        raise fail(ShapeError, name, f"shape {node.shape} is not a matrix")
    square = node.shape[-2:]
    rows, columns = (build("iota", shape=square, axis=axis, dtype=DEFAULT_INT) for axis in (0, 1))
    shifted = build("add", rows, expand(constant(k, DEFAULT_INT), square)) if k else rows
    kept = expand(build(comparison, columns, shifted), node.shape)
    return Tensor.of_node(build("where", kept, node, expand(scalar_node(0, node.dtype, name), node.shape)))


@recorded
def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices, up to diagonal k; zeros elsewhere.

    >>> mo.tril(mo.ones((3, 3)))
    Tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]], dtype=float32)
    """
    return _triangle("tril", x, k, "less_equal")


@recorded
def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices, from diagonal k; zeros elsewhere.

    >>> mo.triu(mo.ones((3, 3)), k=1)
    Tensor([[0., 1., 1.],
            [0., 0., 1.],
            [0., 0., 0.]], dtype=float32)
    """
    return _triangle("triu", x, k, "greater_equal")


@recorded
def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid from the coordinates along its axes, without a copy.

    >>> mo.meshgrid(mo.asarray([1, 2, 3]), mo.asarray([4, 5]))[0].shape
    (2, 3)
    """
    if indexing not in ("xy", "ij"):
        raise fail(ArgumentError, "meshgrid", f"indexing {indexing!r} is unknown", "use 'xy' or 'ij'")
    nodes = [as_node(array, "meshgrid") for array in arrays]
    if any(len(node.shape) > 1 for node in nodes):
        raise fail(ShapeError, "meshgrid", f"shapes {[node.shape for node in nodes]} are not all vectors")
    if any(node.dtype is not nodes[0].dtype for node in nodes):
        raise fail(DTypeError, "meshgrid", f"dtypes {[node.dtype for node in nodes]} differ", "use astype")
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[0], order[1] = 1, 0
    sizes = [node.shape[0] if node.shape else 1 for node in nodes]
    shape = tuple(sizes[i] for i in order)
    grids = []
    for number, node in enumerate(nodes):
        line = tuple(sizes[number] if i == number else 1 for i in order)
        grids.append(Tensor.of_node(expand(reshape(node, line), shape)))
    return grids
