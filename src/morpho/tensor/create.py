"""Making tensors: from NumPy and buffers without a copy, from Python numbers, and by formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Shape
from morpho.base.dtypes import BY_NUMPY, DType, as_dtype, bfloat16, bool_, float64
from morpho.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError, ValueFault, fail
from morpho.base.shapes import as_shape
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, constant, expand, reshape
from morpho.runtime.buffer import allocate, borrow, view_memory
from morpho.tensor.core import Tensor
from morpho.tensor.operands import (
    DEFAULT_COMPLEX,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    as_node,
    is_scalar,
    promoted,
    scalar_node,
)


def check_device(device: Any, operation: str) -> None:
    """Only the CPU here; anything else is an error that says so."""
    if device not in (None, "cpu"):
        raise fail(DeviceError, operation, f"device {device!r} is not there", "the devices are: cpu")


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of anything array-like. NumPy arrays and buffers are borrowed: no byte is copied, their owner is kept
    alive, they are read when the graph runs and never written. `copy=True` copies now; `copy=False` refuses to.

    >>> x = np.arange(3.0)
    >>> mo.asarray(x).numpy().ctypes.data == x.ctypes.data
    True
    """
    if type(obj) is np.ndarray and dtype is None and device is None and not copy and is_plain(obj):
        return Tensor.of_buffer(borrow(obj, BY_NUMPY[obj.dtype]))
    check_device(device, "asarray")
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        found = obj
    elif not isinstance(obj, np.ndarray | np.generic) and hasattr(obj, "__dlpack__"):
        from morpho.tensor.interop import from_dlpack

        found = from_dlpack(obj)
    else:
        found = _from_foreign(obj, wanted, copy)
    if wanted is not None and found.dtype is not wanted:
        if copy is False:
            raise fail(ValueFault, "asarray", f"{found.dtype} does not become {wanted} without a copy")
        return Tensor.of_node(cast(found.node, wanted))
    if copy and (isinstance(obj, Tensor) or not found.is_realised or not found._layout[4]):  # type: ignore[index]
        return _copied(found)
    return found


def is_plain(array: np.ndarray) -> bool:
    """Whether an array can be borrowed as it is: of a dtype that tensors have, in this machine's order of bytes,
    contiguous."""
    return array.dtype in BY_NUMPY and array.flags.c_contiguous and array.flags.aligned


def _from_foreign(obj: Any, wanted: DType | None, copy: bool | None) -> Tensor:
    borrowed = isinstance(obj, np.ndarray | memoryview | bytearray | bytes) or hasattr(obj, "__array_interface__")
    number = isinstance(obj, bool | int | float | complex) and not isinstance(obj, np.generic)  # np.float64 is a float
    if number or (not borrowed and not hasattr(obj, "__array__") and not _has_buffer(obj)):
        if copy is False:
            raise fail(ValueFault, "asarray", f"a {type(obj).__name__} does not become a tensor without a copy")
        return _from_python(obj, wanted)
    array = np.asarray(obj)
    found = _dtype_of(array)
    if found is bfloat16:
        array = array.view(np.uint16)
    usable = array.flags.aligned and array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides)
    if not usable or isinstance(obj, np.generic):
        if copy is False:
            raise fail(ValueFault, "asarray", "unaligned or foreign-endian memory cannot be borrowed")
        array = np.array(array.astype(array.dtype.newbyteorder("=")))
    return Tensor.of_buffer(borrow(array, found))


def _has_buffer(obj: Any) -> bool:
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _dtype_of(array: np.ndarray) -> DType:
    try:
        return as_dtype(array.dtype.newbyteorder("=") if array.dtype.kind in "iufc" else array.dtype)
    except DTypeError:
        raise fail(DTypeError, "asarray", f"NumPy dtype {array.dtype} has no tensor dtype",
                   "convert it with .astype first") from None


def _from_python(obj: Any, wanted: DType | None) -> Tensor:
    """Numbers and nested sequences: floats become float32, integers int64 unless a dtype is given."""
    if _holds_tensors(obj):
        from morpho.tensor.move import stack

        return stack([asarray(item) for item in obj])
    try:
        array = np.asarray(obj)
    except ValueError as error:
        raise fail(ArgumentError, "asarray", f"the nested sequences do not form an array ({error})") from error
    if array.dtype.kind not in "biufc":
        raise fail(DTypeError, "asarray", f"{type(obj).__name__} does not become a tensor")
    defaults = {"f": DEFAULT_FLOAT, "c": DEFAULT_COMPLEX, "i": DEFAULT_INT, "u": DEFAULT_INT}
    target = wanted or defaults.get(array.dtype.kind) or as_dtype(array.dtype)
    if array.dtype.kind in "iu" and target.is_integer and array.size:
        info = np.iinfo(target.numpy)
        if array.min() < info.min or array.max() > info.max:
            raise fail(DTypeError, "asarray", f"numbers from {array.min()} to {array.max()} do not fit {target}")
    return Tensor.of_buffer(_stored(array, target))


def _holds_tensors(obj: Any) -> bool:
    return isinstance(obj, list | tuple) and any(isinstance(item, Tensor) or _holds_tensors(item) for item in obj)


def _stored(array: np.ndarray, dtype: DType) -> Any:
    from morpho.backends.reference import encode
    from morpho.ops.special import reference_cast, round_bfloat16

    buffer = allocate(array.shape, dtype)
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            converted = encode(round_bfloat16(array.astype(np.float32)), dtype)
        else:
            converted = np.asarray(reference_cast({"dtype": dtype}, array)).astype(dtype.numpy)
    if array.size:
        np.copyto(view_memory(buffer.storage, buffer.address, buffer.shape, buffer.strides, dtype), converted)
    return buffer


def _copied(tensor: Tensor) -> Tensor:
    """The same elements in memory of their own, now."""
    made = Tensor.of_node(build("copy", tensor.node))
    return made.realise()


# -- by formula ------------------------------------------------------------------------------------------------------
def _sizes(shape: Any, operation: str) -> Shape:
    sizes = as_shape(shape, operation)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise fail(ArgumentError, operation, f"shape {sizes} has a negative size")
    return sizes


def _filled(shape: Any, value: Any, dtype: DType, operation: str) -> Tensor:
    sizes = _sizes(shape, operation)
    return Tensor.of_node(expand(scalar_node(value, dtype, operation), sizes))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor with one value everywhere: a Python number, or a 0-dimensional tensor."""
    check_device(device, "full")
    if is_scalar(fill_value):
        kinds = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
        return _filled(shape, fill_value, as_dtype(dtype) if dtype is not None else kinds[type(fill_value)], "full")
    node = as_node(fill_value, "full")
    if node.shape != ():
        raise fail(ShapeError, "full", f"a tensor of shape {node.shape} is not one value", "use broadcast_to")
    return Tensor.of_node(expand(node if dtype is None else cast(node, as_dtype(dtype)), _sizes(shape, "full")))


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros, float32 unless a dtype is given."""
    check_device(device, "zeros")
    return _filled(shape, 0, as_dtype(dtype or DEFAULT_FLOAT), "zeros")


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones, float32 unless a dtype is given."""
    check_device(device, "ones")
    return _filled(shape, 1, as_dtype(dtype or DEFAULT_FLOAT), "ones")


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory with undefined contents, for `out=`; float32 unless a dtype is given."""
    check_device(device, "empty")
    sizes = _sizes(shape, "empty")
    return Tensor.of_buffer(allocate(sizes, as_dtype(dtype or DEFAULT_FLOAT)))  # type: ignore[arg-type]


def _like(x: Tensor, dtype: Any) -> DType:
    return x.dtype if dtype is None else as_dtype(dtype)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros with the shape and dtype of x."""
    return zeros(x.shape, dtype=_like(x, dtype), device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones with the shape and dtype of x."""
    return ones(x.shape, dtype=_like(x, dtype), device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value with the shape and dtype of x."""
    return full(x.shape, fill_value, dtype=_like(x, dtype), device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Memory with undefined contents, with the shape and dtype of x."""
    return empty(x.shape, dtype=_like(x, dtype), device=device)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, ... up to but without stop. Without a dtype it is that of the tensors and NumPy numbers
    among the three; of Python numbers alone int64, or float32 if one is a float.

    >>> mo.arange(mo.asarray(3, dtype="int32")).dtype
    int32
    """
    check_device(device, "arange")
    if stop is None:
        start, stop = 0, start
    if any(isinstance(v, Dim) for v in (start, stop, step)):
        if isinstance(stop, Dim) and start == 0 and step == 1:  # as many numbers as a dynamic dimension has
            target = as_dtype(dtype) if dtype is not None else DEFAULT_INT
            return Tensor.of_node(build("iota", shape=(stop,), axis=0, dtype=target))
        raise fail(ArgumentError, "arange", "a dynamic size goes only with start 0 and step 1",
                   "multiply and add to mo.arange(n) instead")
    target = promoted("arange", start, stop, step)[0].dtype if dtype is None else as_dtype(dtype)
    target = DEFAULT_INT if dtype is None and target is bool_ else target
    start, stop, step = (_number(v) for v in (start, stop, step))
    if step == 0:
        raise fail(ArgumentError, "arange", "the step is 0")
    length = max(0, math.ceil((stop - start) / step))
    return Tensor.of_node(_ramp(start, step, length, target))


def _number(value: Any) -> Any:
    """What may be a 0-dimensional tensor or array, as a Python number."""
    if not isinstance(value, Tensor | np.ndarray | np.generic):
        return value
    if value.ndim:
        raise fail(ShapeError, "arange", f"a tensor of shape {tuple(value.shape)} is not a single number")
    return value.item()


def _ramp(start: Any, step: Any, length: int, target: DType) -> Node:
    """start + step * index, in int64 or float64, then converted once."""
    whole = isinstance(start, int) and isinstance(step, int)
    wide = DEFAULT_INT if whole and not target.is_float else float64
    index = build("iota", shape=(length,), axis=0, dtype=wide)
    if step != 1:
        index = build("multiply", index, expand(constant(step, wide), (length,)))
    if start != 0:
        index = build("add", index, expand(constant(start, wide), (length,)))
    return cast(index, target)


def linspace(start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
             endpoint: bool = True) -> Tensor:
    """`num` evenly spaced numbers from start to stop, the end included unless told otherwise."""
    check_device(device, "linspace")
    if num < 0:
        raise fail(ArgumentError, "linspace", f"{num} numbers cannot be made")
    target = as_dtype(dtype) if dtype is not None else DEFAULT_FLOAT
    if target.is_complex or isinstance(start, complex) or isinstance(stop, complex):
        return asarray(np.linspace(start, stop, num, endpoint=endpoint).astype((target if target.is_complex else
                                                                              DEFAULT_COMPLEX).numpy))
    gaps = num - 1 if endpoint else num
    step = (float(stop) - float(start)) / gaps if gaps > 0 else 0.0
    node = _ramp(float(start), step, num, float64)
    if endpoint and num > 1:  # the last one is exactly `stop`
        index = build("iota", shape=(num,), axis=0, dtype=DEFAULT_INT)
        last = build("equal", index, expand(constant(num - 1, DEFAULT_INT), (num,)))
        node = build("where", last, expand(constant(float(stop), float64), (num,)), node)
    return Tensor.of_node(cast(node, target))


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    check_device(device, "eye")
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    rows, columns = (build("iota", shape=shape, axis=axis, dtype=DEFAULT_INT) for axis in (0, 1))
    shifted = build("add", rows, expand(constant(k, DEFAULT_INT), shape)) if k else rows
    return Tensor.of_node(cast(build("equal", columns, shifted), as_dtype(dtype or DEFAULT_FLOAT)))


def _triangle(name: str, x: Any, k: int, comparison: str) -> Tensor:
    node = as_node(x, name)
    if len(node.shape) < 2:
        raise fail(ShapeError, name, f"shape {node.shape} is not a matrix")
    square = node.shape[-2:]
    rows, columns = (build("iota", shape=square, axis=axis, dtype=DEFAULT_INT) for axis in (0, 1))
    shifted = build("add", rows, expand(constant(k, DEFAULT_INT), square)) if k else rows
    kept = expand(build(comparison, columns, shifted), node.shape)
    return Tensor.of_node(build("where", kept, node, expand(scalar_node(0, node.dtype, name), node.shape)))


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices, up to diagonal k; zeros elsewhere."""
    return _triangle("tril", x, k, "less_equal")


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices, from diagonal k; zeros elsewhere."""
    return _triangle("triu", x, k, "greater_equal")


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
