"""Python's operators and the methods of `Tensor`, each the function of the same name."""

from __future__ import annotations

import numbers
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Dim
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.tensor import namespace, protocols, recorded, recording, stepwise
from morpho.tensor.autodiff import autograd
from morpho.tensor.autodiff.grad_mode import Tracked, tracing
from morpho.tensor.convert import following, has_buffer
from morpho.tensor.core import Tensor, before_first_run
from morpho.tensor.eager import load_driver, rows
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import move, reduce
from morpho.tensor.functions.indexing import index
from morpho.tensor.functions.indexing.at import At
from morpho.tensor.functions.indexing.parts import remembered
from morpho.tensor.functions.products import products
from morpho.tensor.interop import interop, transfer
from morpho.tensor.interop.buffer_slot import Slot, is_needed
from morpho.tensor.interop.on_device import cuda_array_interface
from morpho.tensor.tools.callers import use_of_result, wants_pair
from morpho.tensor.tools.foreign_calls import hinted
from morpho.tensor.tools.foreign_names import tensor_attribute, tensor_names

_slots: list[Slot] = []  # for the life of the process
_BINARY = {"add": ew.add, "sub": ew.subtract, "mul": ew.multiply, "truediv": ew.divide, "floordiv": ew.floor_divide,
           "mod": ew.remainder, "pow": ew.pow, "matmul": products.matmul, "and": ew.bitwise_and, "or": ew.bitwise_or,
           "xor": ew.bitwise_xor, "lshift": ew.bitwise_left_shift, "rshift": ew.bitwise_right_shift}
_COMPARE = {"eq": ew.equal, "ne": ew.not_equal, "lt": ew.less, "le": ew.less_equal, "gt": ew.greater,
            "ge": ew.greater_equal}
_UNARY = {"neg": ew.negative, "pos": ew.positive, "abs": ew.abs, "invert": ew.bitwise_invert}
_REDUCTIONS = (reduce.sum, reduce.prod, reduce.mean, reduce.var, reduce.std, reduce.max, reduce.min, reduce.any,
               reduce.all, reduce.argmax, reduce.argmin)


def install() -> None:
    """Give `Tensor` its operators and methods."""
    for name, function in _BINARY.items():
        setattr(Tensor, f"__{name}__", _operator(function, f"__r{name}__"))
        setattr(Tensor, f"__r{name}__", _swapped(function))
        setattr(Tensor, f"__i{name}__", _in_place(function))
    for name, function in _COMPARE.items():
        setattr(Tensor, f"__{name}__", _comparison(function) if name in ("eq", "ne") else _operator(function))
    for name, function in _UNARY.items():  # type: ignore[assignment]
        setattr(Tensor, f"__{name}__", _unary(function))
    for function in _REDUCTIONS:  # type: ignore[assignment]
        setattr(Tensor, function.__name__, _reduction(function))
    for function in (reduce.max, reduce.min):  # type: ignore[assignment]
        setattr(Tensor, function.__name__, _extreme(function))
    for name, attribute in {**_ATTRIBUTES, **autograd.METHODS}.items():
        setattr(Tensor, name, attribute)
    recording.set_tensor(Tensor, _load_compiler)
    recorded.set_tensor(Tensor, following)
    stepwise.install()
    before_first_run.append(_load_compiler)
    load_driver.append(_load_driver)
    if is_needed():
        _slots.append(Slot(Tensor))


def _load_compiler() -> None:
    """The driver is told where things lie inside tensors and compiled functions when this module is loaded."""
    import morpho.tensor.jit.compile  # noqa: F401


def _load_driver() -> None:
    """Native code for what was done in Python so far, such as `x[i]`."""
    _load_compiler()
    from morpho.backends.driver.executable import native

    native()


def _operator(function: Any, reflected: str = "") -> Any:
    """Let an operand that is no array use its own operator for tensors; without one, raise."""

    def operate(self: Tensor, other: Any) -> Any:
        if type(other) not in _NUMBERS and reflected and hasattr(type(other), reflected) and not _is_array(other):
            return NotImplemented
        return function(self, other)

    return operate


def _swapped(function: Any) -> Any:
    return lambda self, other: function(other, self)


def _comparison(function: Any) -> Any:
    """A tensor is not equal to what is no array, such as None: one truth value, as of any two objects."""

    def compare(self: Tensor, other: Any) -> Any:
        if type(other) not in _NUMBERS and not _is_array(other):
            return NotImplemented
        return function(self, other)

    return compare


_NUMBERS = frozenset({Tensor, bool, int, float, complex, np.ndarray})


def _is_array(value: Any) -> bool:
    """Whether a value becomes a tensor, as far as its type says."""
    if isinstance(value, str | bytes) or getattr(type(value), "__array_ufunc__", value) is None:
        return False  # text, and what asks to be left its own operators, as NumPy has it
    if isinstance(value, Tensor | Dim | numbers.Number | np.generic | Sequence | deque):
        return True
    try:
        known = any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__"))
    except Exception:  # of an object that answers no question
        return False
    return known or has_buffer(value)


def _unary(function: Any) -> Any:
    return lambda self: function(self)


def _in_place(function: Any) -> Any:
    """`x += y` makes a new value and binds the name to it; like NumPy's, it changes neither dtype nor shape. A leaf
    that collects a gradient, inside `no_grad`, is assigned the value and stays the leaf, as PyTorch's."""

    def operate(self: Tensor, other: Any) -> Tensor:
        result = function(self, other)
        if result.dtype is not self.dtype and result.dtype.kind == self.dtype.kind:  # NumPy's casting "same_kind"
            result = ew.astype(result, self.dtype)
        if result.dtype is not self.dtype:
            raise fail(DTypeError, function.__name__, f"an in-place operation on {self.dtype} gives {result.dtype}",
                       "write x = x + y, or convert with astype")
        if result.shape != self.shape:
            raise fail(ShapeError, function.__name__, f"an in-place operation on shape {self.shape} gives "
                                                      f"{result.shape}", "write x = x + y")
        if tracing.gradients_off and isinstance(track := getattr(self, "_track", None), Tracked) and track.wanted:
            index.setitem(self, ..., result)
            return self
        return result  # type: ignore[no-any-return]

    return operate


def _reduction(function: Any) -> Any:
    asked = hinted(function)

    def method(self: Tensor, axis: Any = None, keepdims: bool = False, *places: Any, **options: Any) -> Any:
        if not options and not places and (keepdims is False or keepdims is True):
            return function(self) if axis is None and not keepdims else function(self, axis=axis, keepdims=keepdims)
        if keepdims is None and not places:
            raise fail(ArgumentError, function.__name__, "keepdims is None, not True or False",
                       "several axes are a tuple: axis=(0, 1)")
        if places or not isinstance(keepdims, bool | np.bool_):
            return asked(self, axis, keepdims, *places, **options)
        given = {name: value for name, value in options.items() if value is not None}  # np.sum(t) passes out=None
        if axis is not None:
            given["axis"] = axis
        if keepdims is not False:
            given["keepdims"] = keepdims
        return asked(self, **given)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


def _extreme(function: Any) -> Any:
    plain, asked = _reduction(function), hinted(function)

    def method(self: Tensor, *places: Any, **options: Any) -> Any:
        if places and len(places) < 3 and not options and (use := use_of_result(sys._getframe(1))) \
                and wants_pair(function.__name__, use, self.shape, places[0]):
            return asked(self, dim=places[0], keepdim=places[1:] == (True,))
        return plain(self, *places, **options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


def _data(self: Tensor) -> Tensor:
    from morpho.tensor.state.variable import data_of

    return data_of(self)


def _assign_data(self: Tensor, value: Any) -> None:
    from morpho.tensor.state.variable import assign_data

    assign_data(self, value)


def _transposed(self: Tensor) -> Tensor:
    return move.permute_dims(self, tuple(reversed(range(self.ndim))))


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if not self.shape:
        raise fail(ArgumentError, "iter", "a 0-dimensional tensor has nothing to iterate over")
    found = rows(self) if type(self) is Tensor else None
    return iter(move.unstack(self) if found is None else found)


def _reshape(self: Tensor, *shape: Any, **options: Any) -> Tensor:
    """The same elements in another shape."""
    if options:
        sizes = shape[0] if len(shape) == 1 else shape
        return _ask_reshape(self, *([sizes] if shape else []), **options)  # type: ignore[no-any-return]
    return move.reshape(self, shape[0] if len(shape) == 1 else shape)


_ask_reshape = hinted(move.reshape)


def _astype(self: Tensor, dtype: Any, *, copy: bool = True) -> Tensor:
    """The elements converted to another dtype."""
    return ew.astype(self, dtype, copy=copy)


_ATTRIBUTES: dict[str, Any] = {
    "__getattr__": tensor_attribute,
    "__dir__": tensor_names,
    "__getitem__": index.getitem,
    "data": property(_data, _assign_data, doc="The value without its gradient; what is assigned to it is assigned to "
                                              "the tensor. (NumPy's buffer is memoryview(x).)"),
    "__setitem__": index.setitem,
    "__iter__": _iterate,
    "__array_namespace__": namespace.array_namespace,
    "__array_priority__": 1000,  # numpy_array + tensor asks the tensor
    "__array__": interop.array,
    "__array_interface__": property(interop.array_interface),
    "__jax_array__": interop.jax_array,
    "__buffer__": interop.buffer,
    "__dlpack__": interop.dlpack,
    "__dlpack_device__": interop.dlpack_device,
    "__cuda_array_interface__": property(cuda_array_interface),
    "to_device": transfer.to_device,
    "to": transfer.to,
    "reshape": remembered(_reshape),
    "astype": _astype,
    "__round__": protocols.rounded,
    "__divmod__": protocols.divided,
    "__rdivmod__": protocols.divides,
    "__contains__": protocols.contains,
    "__format__": protocols.formatted,
    "__reduce_ex__": protocols.reduced,
    "_repr_html_": protocols.as_html,
    "at": property(At, doc="Regions to be changed, as values: `x.at[key].add(v)` is x with v added at the key."),
    "T": property(remembered(_transposed), doc="The axes in reverse order; `mT` exchanges the last two."),
    "mT": property(remembered(move.matrix_transpose), doc="The last two axes exchanged."),
}
