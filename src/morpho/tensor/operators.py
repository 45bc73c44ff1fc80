"""Python's operators and the methods of `Tensor`, each the function of the same name."""

from __future__ import annotations

from typing import Any

from morpho.tensor import elementwise as ew
from morpho.tensor import index, move, products, reduce
from morpho.tensor.core import Tensor

_BINARY = {"add": ew.add, "sub": ew.subtract, "mul": ew.multiply, "truediv": ew.divide, "floordiv": ew.floor_divide,
           "mod": ew.remainder, "pow": ew.pow, "matmul": products.matmul, "and": ew.bitwise_and, "or": ew.bitwise_or,
           "xor": ew.bitwise_xor, "lshift": ew.bitwise_left_shift, "rshift": ew.bitwise_right_shift}
_COMPARE = {"eq": ew.equal, "ne": ew.not_equal, "lt": ew.less, "le": ew.less_equal, "gt": ew.greater,
            "ge": ew.greater_equal}
_UNARY = {"neg": ew.negative, "pos": ew.positive, "abs": ew.abs, "invert": ew.bitwise_invert}


def _operator(function: Any, swap: bool = False) -> Any:
    if swap:
        return lambda self, other: function(other, self)
    return lambda self, other: function(self, other)


def install() -> None:
    """Give `Tensor` its operators and methods."""
    for name, function in _BINARY.items():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(function, swap=True))
    for name, function in _COMPARE.items():
        setattr(Tensor, f"__{name}__", _operator(function))
    for name, function in _UNARY.items():
        setattr(Tensor, f"__{name}__", lambda self, function=function: function(self))
    for function in (reduce.sum, reduce.prod, reduce.mean, reduce.var, reduce.std, reduce.max, reduce.min, reduce.any,
                     reduce.all, reduce.argmax, reduce.argmin):
        setattr(Tensor, function.__name__, _reduction(function))
    setattr(Tensor, "__getitem__", lambda self, key: index.getitem(self, key))
    setattr(Tensor, "__setitem__", lambda self, key, value: index.setitem(self, key, value))
    setattr(Tensor, "reshape", lambda self, *shape: move.reshape(self, shape[0] if len(shape) == 1 else shape))
    setattr(Tensor, "astype", lambda self, dtype: ew.astype(self, dtype))
    setattr(Tensor, "T", property(_transposed, doc="A matrix with its axes exchanged."))
    setattr(Tensor, "mT", property(move.matrix_transpose, doc="The last two axes exchanged."))


def _reduction(function: Any) -> Any:
    def method(self: Tensor, axis: Any = None, keepdims: bool = False, **options: Any) -> Tensor:
        return function(self, axis=axis, keepdims=keepdims, **options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


def _transposed(self: Tensor) -> Tensor:
    return move.permute_dims(self, tuple(reversed(range(self.ndim))))
