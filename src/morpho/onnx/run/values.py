"""Values that flow along the edges of a graph, and the two ways of computing with them.

A value is static (a NumPy array, known while the graph is traced: constants, shapes and what is computed from them) or
traced (a `Tensor`). Operators are written once: `space(a, b)` is NumPy where all operands are static, and Morpho
otherwise. Sizes that are symbols (`mo.Dim`) stand in arrays of objects, and NumPy's arithmetic works on those too.
A sequence is a list, an absent input None, an empty optional `EMPTY`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import DType, as_dtype
from morpho.onnx.proto.dtypes import BFLOAT16, ElementType, type_of_array
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.model import Constant
from morpho.onnx.proto.tensors import MOST_ELEMENTS
from morpho.onnx.run.coded import Coded, from_array
from morpho.tensor.convert import owned
from morpho.tensor.core import Tensor

Array = np.ndarray[Any, Any]
MOST_STATIC = 1 << 12  # elements: what is larger is no shape, and is computed by compiled code
MOST_STATIC_FLOATS = 64


class Empty:
    """An optional without an element."""

    def __repr__(self) -> str:
        return "EMPTY"


EMPTY = Empty()


class NeedsValue(Exception):
    """An operator asks for the value of something that is only traced."""

    def __init__(self, value: Any, what: str) -> None:
        super().__init__(what)
        self.value, self.what = value, what
        self.sources: frozenset[str] | None = None  # inputs of the model that it depends on


def is_static(*values: Any) -> bool:
    """Whether all are NumPy arrays; absent ones do not matter."""
    return all(value is None or isinstance(value, np.ndarray) for value in values)


def space(*values: Any) -> Any:
    """NumPy for static operands, else Morpho; both speak the Array API."""
    return np if is_static(*values) else mo


def is_symbolic(array: Array) -> bool:
    """Whether an array holds sizes that are symbols."""
    return array.dtype == object and any(isinstance(item, mo.Dim) for item in array.reshape(-1).tolist())


def is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "OUST" and not is_symbolic(value)


def tensor(value: Any) -> Any:
    """A value as a traced one: a constant of the graph."""
    if isinstance(value, np.ndarray):
        if is_text(value):
            raise refuse("a text is given where numbers are computed with")
        if value.dtype == object:
            return mo.stack([mo.asarray(item) for item in value.reshape(-1).tolist()]).reshape(value.shape)
        return owned(value)
    return value


def dtype_of(value: Any) -> DType:
    """The dtype of a static or traced value."""
    if isinstance(value, Tensor):
        return value.dtype
    return mo.int64 if value.dtype == object else as_dtype(value.dtype)


def scalar(number: Any, like: Any) -> Any:
    """A number in the dtype of a value, and of its kind."""
    dtype = dtype_of(like)
    if isinstance(like, np.ndarray):
        return np.asarray(number, dtype.numpy)
    return mo.asarray(number, dtype=dtype)


def cast(value: Any, dtype: DType) -> Any:
    """Another dtype."""
    if isinstance(value, np.ndarray) and dtype is not mo.bfloat16:
        if value.dtype == object:
            if dtype in (mo.int64, mo.int32):
                return value
            return mo.astype(tensor(value), dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            return value.astype(dtype.numpy)
    value = tensor(value)
    return value if value.dtype is dtype else mo.astype(value, dtype)


def sizes(shape: Any) -> Array:
    """A shape as a static array; of objects where a size is a symbol."""
    if all(isinstance(size, int) for size in shape):
        return np.asarray([*shape], np.int64)
    made = np.empty(len(shape), object)
    made[:] = [*shape]
    return made


def whole(array: Array) -> list[Any]:
    """The numbers of a static array of sizes, symbols among them."""
    return [item if isinstance(item, mo.Dim) else int(item) for item in np.asarray(array).reshape(-1).tolist()]


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are equal; an error where one is a symbol and its bounds do not tell. `==` tells whether they
    are the same polynomial, which is no answer: a symbol may be 1."""
    return not bool(a - b)


def bounded(shape: Any, op: str) -> tuple[Any, ...]:
    """A shape that a model asks for, if it is one: sizes are not negative and their product is bounded."""
    known = [size for size in shape if isinstance(size, int)]
    if any(size < 0 for size in known):
        raise refuse(f"{op} asks for the shape {tuple(shape)}, with a negative size")
    if len(known) > 64 or math.prod(known) > MOST_ELEMENTS:
        raise refuse(f"{op} asks for a tensor of {math.prod(known):.3g} elements, more than {MOST_ELEMENTS}")
    return tuple(shape)


def of_constant(constant: Constant) -> Any:
    """A constant of the file: static where it may be a shape, or part of one, else a tensor with memory of its own,
    which nobody writes: what is made of it alone, such as packed weights, is made once."""
    array, kind = constant.array, constant.kind
    if kind.dtype is None:
        return array if kind.name == "string" else Coded(array, kind)
    if kind is BFLOAT16:
        return bfloat16(array)
    most = MOST_STATIC_FLOATS if kind.dtype.is_inexact else MOST_STATIC
    return array if array.size <= most else owned(array)


def bfloat16(bits: Array) -> Tensor:
    """A tensor of bfloat16 from its bits."""
    wide = mo.asarray((bits.astype(np.uint32) << 16).view(np.float32))
    return mo.astype(wide, mo.bfloat16)


def of_argument(value: Any) -> Any:
    """An argument of a call: a tensor, an array, a number, a text, or a list of them for a sequence."""
    if value is None or isinstance(value, Tensor | Coded | Empty):
        return value
    if isinstance(value, list | tuple):
        return [of_argument(item) for item in value]
    array = np.asarray(value)
    if array.dtype.kind in "US":
        array = array.astype(str).astype(object)
    kind = type_of_array(array)
    if kind is BFLOAT16:
        return bfloat16(array.view(np.uint16))
    if kind.dtype is None and kind.name != "string":
        return from_array(array, kind)
    return array


def element_type_of(value: Any) -> ElementType:
    """The ONNX type of a value."""
    from morpho.onnx.proto.dtypes import OF_DTYPE, STRING

    if isinstance(value, Coded):
        return value.kind
    if is_text(value):
        return STRING
    return OF_DTYPE[dtype_of(value)]
