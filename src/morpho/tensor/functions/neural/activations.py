"""Activations and normalisations; each is one kernel on the CPU and has the same bits however it is called."""

from __future__ import annotations

from typing import Any

from morpho.base.checks import check_numbers
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.shapes import normalise_axes
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, reshape
from morpho.tensor.autodiff.grad_mode import detached
from morpho.tensor.autodiff.precision import in_class, widened
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import reduce
from morpho.tensor.functions.reduce import finished
from morpho.tensor.operands import as_node, broadcasted, promoted
from morpho.tensor.recorded import recorded


def _float(name: str, x: Any) -> Node:
    return promoted(name, x, floating=True)[0]


def _apply(name: str, x: Any) -> Tensor:
    node = _float(name, x)
    return Tensor.of_node(build(name, in_class(name, node)))


@recorded
def relu(x: Any, /) -> Tensor:
    """max(x, 0); NaN stays NaN. The slope at 0 is 0.

    >>> mo.relu([-1.0, 2.0])
    Tensor([0., 2.], dtype=float32)
    """
    # Not `maximum`, which gives half of the slope to each of two equal numbers; a pass makes it one.
    x, zero = broadcasted("relu", *promoted("relu", x, 0))
    if x.dtype.is_complex:
        raise fail(DTypeError, "relu", f"dtype {x.dtype} has no order", "take real() or abs() first")
    return Tensor.of_node(build("where", build("less_equal", x, zero), zero, x))


@recorded
def leaky_relu(x: Any, /, slope: float = 0.01) -> Tensor:
    """x where positive, slope * x elsewhere.

    >>> mo.leaky_relu([-1.0, 2.0], 0.1)
    Tensor([-0.1,  2. ], dtype=float32)
    """
    x = Tensor.of_node(_float("leaky_relu", x))
    return ew.where(ew.greater(x, 0), x, x * slope)


@recorded
def elu(x: Any, /, alpha: float = 1.0) -> Tensor:
    """x where positive, alpha * (exp(x) - 1) elsewhere.

    >>> mo.elu([-1.0, 0.0, 2.0])
    Tensor([-0.63212055,  0.        ,  2.        ], dtype=float32)
    """
    x = Tensor.of_node(_float("elu", x))
    positive = ew.greater(x, 0)
    below = ew.where(positive, 0, x)  # the slope of expm1 would overflow where it does not count
    return ew.where(positive, x, ew.multiply(ew.expm1(below), alpha))


@recorded
def selu(x: Any, /) -> Tensor:
    """The self-normalising elu with its two fixed constants.

    >>> mo.selu([-1.0, 0.0, 1.0])
    Tensor([-1.1113307,  0.       ,  1.050701 ], dtype=float32)
    """
    return ew.multiply(elu(x, 1.6732632423543772), 1.0507009873554805)


sigmoid, silu, mish, softplus = (ew.of_record(name) for name in ("sigmoid", "silu", "mish", "softplus"))


@recorded
def gelu(x: Any, /, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x, exact by default; `approximate="tanh"` for the tanh formula.

    >>> mo.gelu([-1.0, 0.0, 1.0])
    Tensor([-0.15865526,  0.        ,  0.8413447 ], dtype=float32)
    """
    if approximate not in ("none", "tanh"):
        raise fail(ArgumentError, "gelu", f"approximate={approximate!r} is unknown", "use 'none' or 'tanh'")
    return _apply("gelu" if approximate == "none" else "gelu_tanh", x)


def _rows(name: str, x: Any, axis: Any, *others: Any, **attributes: Any) -> Node:
    node = widened(_float(name, x))
    axes = normalise_axes(axis, len(node.shape), name)
    if not axes:
        raise fail(ArgumentError, name, "a 0-dimensional tensor has no axis to normalise" if not node.shape else
                   f"axis={axis!r} names no axis to normalise")
    inputs = [cast(_float(name, other), node.dtype) for other in others]
    return build(name, node, *inputs, axes=axes, **attributes)


def _normalised(name: str, x: Any, axis: Any) -> Tensor:
    """A number is a line of one, along its axis 0 or -1."""
    node = as_node(x, name)
    if node.shape or axis not in (0, -1):
        return Tensor.of_node(_rows(name, x, axis))
    return Tensor.of_node(reshape(_rows(name, Tensor.of_node(reshape(node, (1,))), 0), ()))


@recorded
def softmax(x: Any, /, axis: Any = -1) -> Tensor:
    """exp(x) divided by its sum along an axis.

    >>> mo.softmax([0.0, 0.0, mo.inf * -1])
    Tensor([0.5, 0.5, 0. ], dtype=float32)
    """
    return _normalised("softmax", x, axis)


@recorded
def log_softmax(x: Any, /, axis: Any = -1) -> Tensor:
    """The logarithm of softmax, without its loss of precision.

    >>> mo.log_softmax([0.0, 0.0])
    Tensor([-0.6931472, -0.6931472], dtype=float32)
    """
    return _normalised("log_softmax", x, axis)


@recorded
def logsumexp(x: Any, /, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along an axis, without overflow; -inf of no elements.

    >>> import morpho as mo
    >>> mo.logsumexp(mo.zeros((2, 0)), axis=1).numpy()
    array([-inf, -inf], dtype=float32)
    """
    number = as_node(x, "logsumexp")
    if number.dtype.is_complex:
        value = Tensor.of_node(number)
        most = reduce.max(Tensor.of_node(detached(ew.real(value).node)), axis=axis, keepdims=True)
        most = ew.where(ew.isfinite(most), most, 0.0)
        total = ew.log(reduce.sum(ew.exp(value - most), axis=axis, keepdims=True)) + most
        return total if keepdims else reduce.sum(total, axis=axis)
    if not number.shape and axis in (None, 0, -1, (0,), (-1,)):
        return finished("logsumexp", _float("logsumexp", x), (), keepdims)
    node = _rows("logsumexp", x, axis)
    return finished("logsumexp", node, node["axes"], keepdims)


@recorded
def layer_norm(x: Any, /, weight: Any = None, bias: Any = None, eps: float = 1e-5, axis: Any = -1) -> Tensor:
    """(x - mean) / sqrt(variance + eps) along an axis, times `weight`, plus `bias`, where given.

    >>> mo.layer_norm([1.0, 2.0, 3.0]).numpy().round(4)
    array([-1.2247,  0.    ,  1.2247], dtype=float32)
    """
    if weight is None and bias is not None:
        raise fail(ArgumentError, "layer_norm", "a bias without a weight is not taken", "pass ones as the weight")
    check_numbers("layer_norm", 0, eps=eps)
    others = [t for t in (weight, bias) if t is not None]
    return Tensor.of_node(_rows("layer_norm", x, axis, *others, eps=float(eps)))


@recorded
def rms_norm(x: Any, /, weight: Any = None, eps: float = 1e-5, axis: Any = -1) -> Tensor:
    """x / sqrt(mean of squares + eps) along an axis, times `weight` where given.

    >>> mo.rms_norm([3.0, 4.0]).numpy().round(4)
    array([0.8485, 1.1314], dtype=float32)
    """
    check_numbers("rms_norm", 0, eps=eps)
    return Tensor.of_node(_rows("rms_norm", x, axis, *([] if weight is None else [weight]), eps=float(eps)))


