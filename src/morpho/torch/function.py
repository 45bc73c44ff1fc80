"""`mo.to_torch`: a Morpho function as an autograd function of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.tensor.core import Tensor
from morpho.torch.tensors import borrow, hand_over


class _Call(torch.autograd.Function):
    """One call: forward in Morpho; backward is Morpho's gradient, compiled when first asked for, and a call again: it
    has gradients itself."""

    @staticmethod
    def forward(ctx: Any, made: TorchFunction, *arguments: Any) -> Any:
        ctx.made = made
        ctx.numbers = [None if isinstance(a, torch.Tensor) else a for a in arguments]
        ctx.save_for_backward(*[a for a in arguments if isinstance(a, torch.Tensor)])
        return made.value(arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        held = iter(ctx.saved_tensors)
        arguments = [next(held) if number is None else number for number in ctx.numbers]
        return (None, *ctx.made.gradient(arguments, grads, ctx.needs_input_grad[1:]))


class TorchFunction:
    """A Morpho function that takes and returns PyTorch tensors, with gradients."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._compiled = mo.compile(lambda *arguments: function(*arguments))
        self._gradients: dict[tuple[int, ...], TorchFunction] = {}

    def __call__(self, *arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and argument.device.type != "cpu":
                raise fail(ArgumentError, "to_torch", f"an argument lies on {argument.device}, not on the CPU",
                           "move it with .cpu()")
            if isinstance(argument, Tensor):
                raise fail(ArgumentError, "to_torch", "an argument is a Morpho tensor, not PyTorch's",
                           "call the Morpho function itself")
        return _Call.apply(self, *arguments)

    def value(self, arguments: Any) -> Any:
        """The result for PyTorch tensors."""
        result = self._compiled(*[_lent(a) for a in arguments])
        if isinstance(result, Tensor):
            return hand_over([result])[0]
        if isinstance(result, list | tuple) and all(isinstance(part, Tensor) for part in result):
            return tuple(hand_over(result))
        raise fail(ArgumentError, "to_torch", f"the function returns a {type(result).__name__}",
                   "return a tensor, or a tuple of tensors")

    def gradient(self, arguments: Any, grads: Any, wanted: Any) -> list[Any]:
        """The gradients of the arguments that want one, None for the others."""
        places = tuple(i for i, wants in enumerate(wanted) if wants)
        if places not in self._gradients:
            self._gradients[places] = TorchFunction(self._backward(places, len(arguments)))
        found = self._gradients[places](*arguments, *[g.contiguous() for g in grads])
        spread = dict(zip(places, found, strict=True))
        return [spread.get(i) for i in range(len(arguments))]

    def _backward(self, places: tuple[int, ...], count: int) -> Callable[..., Any]:
        def backward(*values: Any) -> Any:
            arguments, grads = values[:count], values[count:]

            def of_wanted(*values: Any) -> Any:
                filled = list(arguments)
                for place, value in zip(places, values, strict=True):
                    filled[place] = value
                return self.function(*filled)

            result, pull = mo.vjp(of_wanted, *[arguments[i] for i in places])
            if isinstance(result, Tensor):
                return pull(grads[0])
            return pull(type(result)(grads))

        return backward


def _lent(argument: Any) -> Any:
    return borrow(argument) if isinstance(argument, torch.Tensor) else argument


def to_torch(function: Callable[..., Any]) -> TorchFunction:
    """A Morpho function as a function of PyTorch tensors, compiled, with gradients for PyTorch's autograd.

    function: takes tensors and numbers, returns a tensor or a tuple of them. Memory is shared both ways, not copied.
    Gradients are such functions too: `create_graph=True` has second ones.

    >>> import torch
    >>> f = mo.to_torch(lambda x: mo.sum(x * x))
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> f(x).backward()
    >>> x.grad
    tensor([2., 4.])
    """
    if not callable(function):
        raise fail(ArgumentError, "to_torch", f"a {type(function).__name__} is no function",
                   "pass a function of tensors")
    if isinstance(function, torch.nn.Module):
        raise fail(ArgumentError, "to_torch", "a torch.nn.Module is PyTorch's already", "use mo.from_torch")
    return TorchFunction(function)
