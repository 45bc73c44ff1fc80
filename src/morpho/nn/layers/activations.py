"""Activations as modules, each one the function of the same name, and gated units, which have weights of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.checks import check_numbers, check_sizes, check_whole
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


class _Activation(Module):
    """A function of one tensor with settings that are the module's attributes."""

    function: Callable[..., Any]

    def __init__(self, inplace: bool = False) -> None:
        if not isinstance(inplace, bool):
            name = type(self).__name__
            raise fail(ArgumentError, name, f"inplace={inplace!r} is not True or False",
                       f"write {name}()(x) to call one" if isinstance(inplace, mo.Tensor) else f"write {name}()")
        self.inplace = inplace  # the input keeps its value all the same

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        return type(self).function(x, **self._settings())  # type: ignore[no-any-return]

    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "inplace"}

    def describe(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self._settings().items())


class _Plain(_Activation):
    """An activation without settings."""

    def __init__(self) -> None:
        pass


def _named(name: str, function: Callable[..., Any], text: str, kind: type[Module] = _Activation) -> type[Module]:
    """A module class for a function of one tensor."""
    text += f"\n\n    >>> mo.nn.{name}()(mo.asarray([0.0])).shape\n    (1,)\n    "
    return type(name, (kind,), {"function": staticmethod(function), "__doc__": text, "__module__": __name__})


# Pieces chosen by where x lies: nothing is multiplied by 0 at an infinity, NaN stays NaN, and at the corners the slope
# is that of the outer piece, as in PyTorch.
def _pieces(x: mo.Tensor, low: float, high: float, below: Any, between: Any, above: Any) -> mo.Tensor:
    return mo.where(x <= low, below, mo.where(x >= high, above, between))


def _hardswish(x: mo.Tensor) -> mo.Tensor:
    inside = _pieces(x, -3, 3, 0.0, x, 0.0)  # where it does not count its square would overflow, and its slope be NaN
    return _pieces(x, -3, 3, -0.0, inside * (inside + 3) / 6, x)


def _hardsigmoid(x: mo.Tensor) -> mo.Tensor:
    return _pieces(x, -3, 3, 0.0, (x + 3) / 6, 1.0)


ReLU = _named("ReLU", mo.relu, "max(x, 0).")
ReLU6 = _named("ReLU6", lambda x: _pieces(x, 0, 6, 0.0, x, 6.0), "x between 0 and 6.")
SELU = _named("SELU", mo.selu, "The self-normalising ELU.")
SiLU = _named("SiLU", mo.silu, "x * sigmoid(x).")
Mish = _named("Mish", mo.mish, "x * tanh(softplus(x)).")
Sigmoid = _named("Sigmoid", mo.sigmoid, "1 / (1 + exp(-x)).", _Plain)
LogSigmoid = _named("LogSigmoid", lambda x: -mo.softplus(-x), "log(sigmoid(x)), without its loss of precision.", _Plain)
Tanh = _named("Tanh", mo.tanh, "The hyperbolic tangent.", _Plain)
Softplus = _named("Softplus", mo.softplus, "log(1 + exp(x)).", _Plain)
Hardswish = _named("Hardswish", _hardswish, "x * clip(x + 3, 0, 6) / 6.")
Hardsigmoid = _named("Hardsigmoid", _hardsigmoid, "clip(x + 3, 0, 6) / 6.")


class GELU(_Activation):
    """x times the normal distribution function of x: exact, or by tanh.

    >>> mo.nn.GELU()(mo.asarray([0.0])).numpy()
    array([0.], dtype=float32)
    """

    function = staticmethod(mo.gelu)

    def __init__(self, approximate: str = "none") -> None:
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            raise fail(ArgumentError, "GELU", "approximate is neither 'none' nor 'tanh'",
                       "write GELU()(x) to call one" if isinstance(approximate, mo.Tensor) else "write GELU()")
        self.approximate = approximate

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"


class LeakyReLU(_Activation):
    """x where positive, negative_slope * x elsewhere.

    >>> mo.nn.LeakyReLU(0.5)(mo.asarray([-1.0, 1.0])).numpy()
    array([-0.5,  1. ], dtype=float32)
    """

    function = staticmethod(lambda x, negative_slope: mo.leaky_relu(x, slope=negative_slope))

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        check_numbers("LeakyReLU", negative_slope=negative_slope)
        self.negative_slope, self.inplace = float(negative_slope), inplace


class PReLU(Module):
    """x where positive, weight * x elsewhere, with a trained weight: one for all, or one for each channel, axis 1.

    >>> mo.nn.PReLU()(mo.asarray([-1.0, 1.0])).numpy()
    array([-0.25,  1.  ], dtype=float32)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = mo.float32) -> None:
        check_sizes("PReLU", num_parameters=num_parameters)
        check_numbers("PReLU", init=init)
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(mo.full((num_parameters,), float(init), dtype=dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        weight: mo.Tensor = self.weight
        if self.num_parameters > 1:
            if x.ndim < 2 or x.shape[1] != self.num_parameters:
                raise fail(ShapeError, "PReLU", f"axis 1 of shape {tuple(x.shape)} is not {self.num_parameters} "
                                                "channels")
            weight = mo.reshape(weight, (-1, *(1 for _ in x.shape[2:])))
        return mo.where(x > 0, x, weight * x)

    def describe(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(_Activation):
    """x where positive, alpha * (exp(x) - 1) elsewhere.

    >>> mo.nn.ELU()(mo.asarray([0.0, 1.0])).numpy()
    array([0., 1.], dtype=float32)
    """

    function = staticmethod(mo.elu)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        check_numbers("ELU", alpha=alpha)
        self.alpha, self.inplace = float(alpha), inplace


class Softmax(_Activation):
    """exp(x) divided by its sum along an axis.

    >>> mo.nn.Softmax()(mo.zeros(2)).numpy()
    array([0.5, 0.5], dtype=float32)
    """

    function = staticmethod(lambda x, dim: mo.softmax(x, axis=dim))

    def __init__(self, dim: int = -1) -> None:
        check_whole(type(self).__name__, dim=dim)
        self.dim = int(dim)


class LogSoftmax(_Activation):
    """The logarithm of softmax along an axis.

    >>> mo.nn.LogSoftmax()(mo.zeros(1)).numpy()
    array([0.], dtype=float32)
    """

    function = staticmethod(lambda x, dim: mo.log_softmax(x, axis=dim))

    def __init__(self, dim: int = -1) -> None:
        check_whole(type(self).__name__, dim=dim)
        self.dim = int(dim)


class GLU(Module):
    """The first half of an axis times the sigmoid, or another activation, of the second.

    >>> mo.nn.GLU()(mo.zeros((3, 8))).shape
    (3, 4)
    """

    def __init__(self, dim: int = -1, activation: str = "sigmoid") -> None:
        check_whole("GLU", dim=dim)
        self.dim, self.activation = dim, function_of(activation)

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        if x.ndim == 0 or x.shape[self.dim] % 2:
            raise fail(ShapeError, "GLU", f"axis {self.dim} of shape {tuple(x.shape)} has no halves")
        moved = mo.moveaxis(x, self.dim, -1)
        half = moved.shape[-1] // 2
        return mo.moveaxis(moved[..., :half] * self.activation(moved[..., half:]), -1, self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elu": mo.elu, "gelu": mo.gelu, "gelu_tanh": lambda x: mo.gelu(x, approximate="tanh"), "leaky_relu": mo.leaky_relu,
    "mish": mo.mish, "relu": mo.relu, "selu": mo.selu, "sigmoid": mo.sigmoid, "silu": mo.silu, "tanh": mo.tanh,
}


def function_of(name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS:
        raise fail(ArgumentError, "activation", f"{name!r} is unknown", "there are " + ", ".join(FUNCTIONS))
    return FUNCTIONS[name]


_MODULES: dict[str, Callable[[], Module]] = {
    "elu": ELU, "gelu": GELU, "gelu_tanh": lambda: GELU("tanh"), "leaky_relu": LeakyReLU, "mish": Mish, "relu": ReLU,
    "selu": SELU, "sigmoid": Sigmoid, "silu": SiLU, "tanh": Tanh,
}


def activation(name: str) -> Module:
    """The module of an activation by its name.

    >>> mo.nn.activation("silu")
    SiLU()
    """
    function_of(name)
    return _MODULES[name]()


__all__ = [
    "ELU", "GELU", "GLU", "Hardsigmoid", "Hardswish", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU",
    "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh", "activation",
]
