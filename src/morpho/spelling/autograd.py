"""`torch.autograd`: gradients of values that were computed already, and functions with a backward of their own.

>>> x = mo.asarray(2.0).requires_grad_()
>>> (slope,) = mo.autograd.grad(x ** 3, x, create_graph=True)
>>> mo.autograd.grad(slope, x)[0].item()
12.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail
from morpho.ir.node import Node
from morpho.ops.algebra import add, cast, constant_like, zeros_like
from morpho.tensor.autodiff.grad_mode import detached
from morpho.tensor.autodiff.gradient import gradients_of


# -- gradients of values that were computed already --------------------------------------------------------------------
def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """Gradients of computed values with respect to tensors they were computed from; `.grad` of all stays as it is.

    With `create_graph` the gradients may be differentiated again. A tensor that the values do not depend on is an
    error, None with `allow_unused`, and zeros with `materialize_grads`.
    """
    if is_grads_batched:
        raise fail(ArgumentError, "autograd.grad", "is_grads_batched=True is not taken",
                   "use mo.vmap of a function of mo.vjp")
    values, leaves = _listed(outputs), _listed(inputs)
    weights = [None] * len(values) if grad_outputs is None else _listed(grad_outputs)
    if len(weights) != len(values):
        raise fail(ArgumentError, "autograd.grad", f"{len(weights)} grad_outputs for {len(values)} outputs")
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, mo.Tensor) or not leaf.requires_grad:
            raise fail(ArgumentError, "autograd.grad", f"input {number} wants no gradient",
                       "call requires_grad_() on it before the values are computed")
    roots = [value.program() for value in values]
    starts = [_start(root, weight) for root, weight in zip(roots, weights, strict=True)]
    parts = _parts_by_root(roots, starts, [leaf.program() for leaf in leaves])
    return tuple(_gradient(number, leaf, part, create_graph, bool(allow_unused), materialize_grads)
                 for number, (leaf, part) in enumerate(zip(leaves, parts, strict=True)))


def _start(root: Node, weight: Any) -> Node:
    if weight is None:
        if root.shape != ():
            raise fail(ShapeError, "autograd.grad", f"an output of shape {root.shape} is not a single number",
                       "reduce it with sum() or mean(), or give grad_outputs=mo.ones_like(output)")
        return constant_like(root, 1)
    weight = mo.asarray(weight)
    if weight.shape != root.shape:
        raise fail(ShapeError, "autograd.grad", f"grad_outputs of shape {tuple(weight.shape)} for an output of shape "
                                                f"{root.shape}")
    return cast(weight.program(), root.dtype)


def _parts_by_root(roots: Sequence[Node], starts: Sequence[Node], leaves: Sequence[Node]) -> list[Node | None]:
    """The gradient of the weighted sum of all outputs; an output that is an input itself has its weight as gradient."""
    total: list[Node | None] = [None] * len(leaves)
    for root, start in zip(roots, starts, strict=True):
        for number, part in enumerate(gradients_of([root], [start], list(leaves))):
            before = total[number]
            total[number] = before if part is None else part if before is None else add(before, part)
    return total


def _gradient(number: int, leaf: mo.Tensor, part: Node | None, create_graph: bool, allow_unused: bool,
              materialize_grads: bool) -> Any:
    if part is None:
        if materialize_grads:
            return mo.Tensor.of_node(zeros_like(leaf.program()))
        if allow_unused:
            return None
        raise fail(ArgumentError, "autograd.grad", f"the outputs do not depend on input {number}",
                   "give allow_unused=True for None there")
    return mo.Tensor.of_node(part if create_graph else detached(part))


# -- functions with a backward of their own ----------------------------------------------------------------------------
class FunctionCtx(SimpleNamespace):
    """Values that `forward` keeps for `backward`: `save_for_backward(*tensors)`, and attributes of any name."""

    saved_tensors: tuple[Any, ...] = ()
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_dirty(self, *tensors: Any) -> None:
        """Tensors are values: nothing is to be marked."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """The gradients that `backward` returns say it already."""

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients of results that nothing used come as zeros."""


class Function:
    """A function whose gradient is given beside it, as `torch.autograd.Function`: static methods `forward(ctx, ...)`,
    or `forward(...)` and `setup_context(ctx, inputs, output)`, and `backward(ctx, *gradients)`.

    >>> class Doubled(mo.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 1
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return gradient * 2
    >>> x = mo.asarray([1.0]).requires_grad_()
    >>> Doubled.apply(x).sum().backward(); x.grad.tolist()
    [2.0]
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        for name in ("forward", "backward"):
            if not callable(getattr(cls, name, None)):
                raise fail(ArgumentError, cls.__name__, f"the function has no {name}",
                           f"write a @staticmethod {name}(ctx, ...)")
        fixed = tuple(number for number, arg in enumerate(args) if not isinstance(arg, mo.Tensor | np.ndarray))
        needs = tuple(isinstance(arg, mo.Tensor) and arg.requires_grad for arg in args)
        runs: list[tuple[list[Node], Any, FunctionCtx]] = []

        def run(*arguments: Any) -> tuple[Any, FunctionCtx]:
            nodes = [arg.program() for number, arg in enumerate(arguments) if number not in fixed]
            for before, value, ctx in runs:  # the values that were computed already, with what they drew
                if all(one is other for one, other in zip(before, nodes, strict=True)):
                    return value, ctx
            ctx = FunctionCtx()
            ctx.needs_input_grad = needs
            with nullcontext() if runs else mo.no_grad():
                if cls.setup_context is None:
                    value = cls.forward(ctx, *arguments)
                else:
                    value = cls.forward(*arguments)
                    cls.setup_context(ctx, arguments, value)
            runs.append((nodes, value, ctx))
            return value, ctx

        def backward(*rest: Any) -> tuple[Any, ...]:
            ctx, gradient = rest[-2:]
            parts = _listed(cls.backward(ctx, *_listed(gradient)))
            if len(parts) != len(args):
                raise fail(ArgumentError, cls.__name__, f"backward returned {len(parts)} gradients for {len(args)} "
                                                        "arguments", "return one for each argument, None for zero")
            return tuple(part for number, part in enumerate(parts) if number not in fixed)

        if len(fixed) == len(args):
            return run(*args)[0]
        rule = mo.custom_vjp(lambda *arguments: run(*arguments)[0], nondiff_argnums=fixed)
        rule.defvjp(run, backward)
        return rule(*args)


def set_detect_anomaly(mode: bool = True, check_nan: bool = True) -> Any:
    """`mo.debug.nans()` names the line that made a NaN; this block only exists for programs that write it."""
    return nullcontext()


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    many = isinstance(inputs, tuple)
    return mo.jacrev(func, argnums=tuple(range(len(inputs))))(*inputs) if many else mo.jacrev(func)(inputs)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    many = isinstance(inputs, tuple)
    return mo.hessian(func, argnums=tuple(range(len(inputs))))(*inputs) if many else mo.hessian(func)(inputs)


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, **ignored: Any) -> bool:
    """Whether gradients agree with differences, to the larger of both tolerances; `mo.testing.check_gradients` gives
    the error found."""
    arguments = inputs if isinstance(inputs, tuple | list) else (inputs,)
    try:
        mo.testing.check_gradients(func, *arguments, eps=eps, tolerance=max(atol, rtol))
    except AssertionError:
        if raise_exception:
            raise
        return False
    return True


def __getattr__(name: str) -> Any:
    if name == "Variable":  # what tensors were called before they were all variables
        return lambda data, requires_grad=False, volatile=False: mo.asarray(data).requires_grad_(requires_grad)
    raise AttributeError(f"module 'autograd' has no attribute {name!r}")


functional = SimpleNamespace(jacobian=jacobian, hessian=hessian)
detect_anomaly = set_detect_anomaly
no_grad, enable_grad, inference_mode = mo.no_grad, mo.enable_grad, mo.no_grad
