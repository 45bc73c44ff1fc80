"""`mo.testing`: tools for tests of one's own code. `check_gradients` compares gradients with differences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import float64
from morpho.base.errors import ArgumentError, DTypeError, GradientMismatch, fail
from morpho.base.trees import flatten, unflatten
from morpho.tensor.autodiff.autograd import get_grad, set_grad
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor, realise
from morpho.tensor.state.variable import Parameter

__all__ = ["check_gradients"]


def check_gradients(function: Callable[..., Any], *arguments: Any, parameters: Iterable[Parameter] = (),
                    eps: float = 1e-5, tolerance: float = 1e-6, most: int = 1000, seed: int = 0) -> float:
    """Compare the gradients of a function with differences, in float64; returns the largest relative error found.

    arguments: tensors, numbers, or trees of them; those of a float dtype are checked, as float64.
    parameters: of a module that the function uses, checked too; they must be float64 (`module.astype("float64")`).
    eps: half of the step of a central difference.
    tolerance: the largest |gradient - difference| / max(1, |difference|) that passes.
    most: elements that are checked of each tensor; of larger ones a random choice by `seed`.

    The function may return any tree of tensors: each element of the float ones counts with a random weight. A function
    that draws random numbers anew at each call cannot be checked, and is told apart.

    >>> mo.testing.check_gradients(lambda x, w: mo.gelu(x @ w), mo.ones((2, 3)), mo.ones((3, 2))) < 1e-6
    True
    """
    if not callable(function):
        raise fail(ArgumentError, "check_gradients", f"{type(function).__name__} is not a function")
    if not eps > 0 or not tolerance > 0:
        raise fail(ArgumentError, "check_gradients", f"eps={eps} and tolerance={tolerance} are not both positive")
    problem = _Problem(function, arguments, list(parameters), np.random.default_rng(seed))
    worst, differing, count, sentence = 0.0, 0, 0, ""
    for number, gradient in enumerate(problem.gradients()):
        places = np.arange(gradient.size)
        if gradient.size > most:
            places = np.sort(problem.rng.choice(gradient.size, most, replace=False))
        for place in places.tolist():
            numeric = problem.difference(number, place, eps)
            found = float(gradient.reshape(-1)[place])
            error = abs(found - numeric) / max(1.0, abs(numeric))
            error = error if error == error else np.inf  # NaN is as wrong as can be
            count, differing = count + 1, differing + (error > tolerance)
            if error > worst:
                worst = error
                index = [int(i) for i in np.unravel_index(place, gradient.shape)]
                sentence = (f"the gradient of {problem.names[number]} at {index} is {found:.9g}, and {numeric:.9g} by "
                            f"differences of {eps:g}")
    if worst > tolerance:
        raise fail(GradientMismatch, "check_gradients", f"{sentence}: a relative error of {worst:.3g}, more than "
                   f"{tolerance:g}; {differing} of {count} elements differ",
                   "check the vjp or custom gradient; at a kink no difference is right")
    return worst


class _Problem:
    """A function of float64 leaves and parameters, made a single number by random weights."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], parameters: list[Parameter],
                 rng: np.random.Generator) -> None:
        self.function, self.parameters, self.rng = function, parameters, rng
        self.weights: list[np.ndarray] = []
        leaves: list[Any] = []
        self.structures, self.names = [], []
        self.values: list[Any] = []  # of every leaf: an array that is checked, or a tensor that is not
        for position, argument in enumerate(arguments):
            leaves.clear()
            self.structures.append(flatten(asarray(argument) if isinstance(argument, float) else argument, leaves))
            for leaf in leaves:
                tensor = asarray(leaf)
                is_float = tensor.dtype.is_float
                self.values.append(tensor.astype(float64).numpy(copy=True) if is_float else tensor)
                if is_float:
                    self.names.append(f"argument {position}")
        for number, parameter in enumerate(parameters):
            if parameter.dtype is not float64:
                raise fail(DTypeError, "check_gradients", f"parameter {number} is {parameter.dtype}",
                           'differences need float64: module.astype("float64")')
            self.names.append(f"parameter {number}")
        self.checked = [number for number, value in enumerate(self.values) if isinstance(value, np.ndarray)]
        if not self.names:
            raise fail(ArgumentError, "check_gradients", "there is nothing to differentiate by", "pass float tensors")

    def _result(self, wanted: list[Tensor] | None = None) -> Tensor:
        """The single number; the leaves of checked arguments are put into `wanted` to have their gradients read."""
        leaves: list[Tensor] = []
        for value in self.values:
            leaf = asarray(value.copy()) if isinstance(value, np.ndarray) else value
            if wanted is not None and isinstance(value, np.ndarray):
                wanted.append(leaf.requires_grad_())
            leaves.append(leaf)
        found: list[Any] = []
        flatten(self.function(*self._trees(leaves)), found)
        floats = [leaf for leaf in found if isinstance(leaf, Tensor) and leaf.dtype.is_float]
        if not floats:
            raise fail(ArgumentError, "check_gradients", "the function returns no float tensor")
        if not self.weights:
            self.weights = [self.rng.uniform(0.5, 1.5, leaf.shape) for leaf in floats]
        total = None
        for leaf, weight in zip(floats, self.weights, strict=True):
            part = (leaf.astype(float64) * asarray(weight)).sum()
            total = part if total is None else total + part
        return total  # type: ignore[return-value]

    def _trees(self, leaves: list[Tensor]) -> list[Any]:
        items = iter(leaves)
        return [unflatten(structure, items) for structure in self.structures]

    def gradients(self) -> list[np.ndarray]:
        """By the pull-back; gradients that parameters had before are put back."""
        before = [get_grad(parameter) for parameter in self.parameters]
        for parameter in self.parameters:
            set_grad(parameter, None)
        leaves: list[Tensor] = []
        result = self._result(leaves)
        try:
            if result.requires_grad:
                result.backward()
            found = [get_grad(leaf) for leaf in [*leaves, *self.parameters]]
            realise(result, *[gradient for gradient in found if gradient is not None])
        finally:
            for parameter, gradient in zip(self.parameters, before, strict=True):
                set_grad(parameter, gradient)
        again = self._result().item()
        if again != result.item() and again == again:
            raise fail(ArgumentError, "check_gradients", f"the function gives {result.item():.9g} and then {again:.9g} "
                       "for the same arguments", "pass a random key as an argument, or put the module into eval mode")
        shapes = [leaf.shape for leaf in [*leaves, *self.parameters]]
        return [np.zeros(shape) if gradient is None else gradient.numpy(copy=True)
                for shape, gradient in zip(shapes, found, strict=True)]

    def difference(self, number: int, place: int, eps: float) -> float:
        """The derivative by one element of one leaf or parameter, as a central difference."""
        sides = []
        for step in (eps, -eps):
            if number < len(self.checked):
                flat = self.values[self.checked[number]].reshape(-1)
                old = flat[place]
                flat[place] = old + step
                sides.append(self._result().item())
                flat[place] = old
            else:
                parameter = self.parameters[number - len(self.checked)]
                kept = parameter.value.numpy(copy=True)
                moved = kept.copy()
                moved.reshape(-1)[place] += step
                parameter.assign(moved)
                sides.append(self._result().item())
                parameter.assign(kept)
        return float((sides[0] - sides[1]) / (2 * eps))


def __dir__() -> list[str]:
    return sorted(__all__)


def _of_arrays(check: Callable[..., Any]) -> Callable[..., Any]:
    """An assertion of NumPy, with tensors, also those in lists and dictionaries, given as arrays."""
    @functools.wraps(check)
    def call(*arguments: Any, **options: Any) -> Any:
        return check(*[_arrays(one) for one in arguments], **options)

    return call


def _arrays(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)(map(_arrays, value))
    return {key: _arrays(one) for key, one in value.items()} if type(value) is dict else value


def __getattr__(name: str) -> Any:
    """NumPy's assertions, `mo.testing.assert_allclose` and its like: they take tensors as they are."""
    if name.startswith("assert_"):
        own = "assert_allclose" if name == "assert_close" else name  # PyTorch's name
        if hasattr(np.testing, own):
            return _of_arrays(getattr(np.testing, own))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
