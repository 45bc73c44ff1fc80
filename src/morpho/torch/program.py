"""A lowered graph: steps over numbered values, run by Morpho alone. Nothing here needs PyTorch.

A `Program` is run once, while `mo.compile` traces it; what remains is one native function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import morpho as mo
from morpho.base.errors import MorphoError, fail
from morpho.tensor.core import Tensor
from morpho.torch.aten import Context, Entry, Meta


class LoweringError(MorphoError, RuntimeError):
    """A graph that cannot be run as PyTorch means it."""


class StepFault(LoweringError):
    """An operation of the table that Morpho has not for the dtypes or sizes of this call; `step` is the one."""

    def __init__(self, step: Step, cause: MorphoError) -> None:
        self.step, self.reason = step, str(cause).split(". Hint")[0].split(". At ")[0]
        super().__init__(f"[torch] {step.entry.name}: {cause}")


@dataclass(frozen=True)
class Value:
    """The value with this number, in place of an argument; of an operation with several results, one of them."""

    number: int


@dataclass(frozen=True)
class Number:
    """A number where an operation takes a tensor: one of no axes, in the widest dtype of its kind."""

    value: bool | int | float | complex

    def tensor(self) -> Tensor:
        """The tensor, as PyTorch makes it of a number."""
        kinds = {bool: mo.bool, int: mo.int64, float: mo.float64, complex: mo.complex128}
        return mo.full((), self.value, dtype=kinds[type(self.value)])


@dataclass(frozen=True)
class Size:
    """A size as an expression of symbols: Python text, evaluated with numbers or with `mo.Dim`."""

    text: str


@dataclass(frozen=True)
class Step:
    """One operation."""

    entry: Entry
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[Meta | None, ...]
    operands: tuple[Any, ...]
    number: int  # of its result
    many: bool  # whether it returns a tuple


@dataclass(frozen=True)
class Parameter:
    """One tensor that comes in: its sizes as numbers or expressions, and its dtype."""

    sizes: tuple[int | Size, ...]
    meta: Meta


@dataclass
class Program:
    """Parameters take the first numbers, then constants, then the results of the steps."""

    parameters: list[Parameter] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)  # sizes that are no axis of a parameter: passed as numbers
    constants: list[Any] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    orders: list[tuple[int, ...] | None] = field(default_factory=list)  # of the outputs' axes in memory

    @property
    def is_random(self) -> bool:
        """Whether it needs a key."""
        return any(step.entry.random for step in self.steps)

    @property
    def is_dynamic(self) -> bool:
        """Whether a size is an expression."""
        return any(isinstance(size, Size) for parameter in self.parameters for size in parameter.sizes)

    def function(self) -> Callable[..., tuple[Tensor, ...]]:
        """The program as a Python function of the parameters `x0, x1, ...`, then the symbols, then the key if any."""
        names = [f"x{i}" for i in range(len(self.parameters))] + self.symbols + ["key"] * self.is_random
        listed = ", ".join(names)
        scope = {"run": self.run}
        return eval(f"lambda {listed}: run(({listed}{',' if names else ''}))", scope)

    def dims(self, bounds: Mapping[str, tuple[int, int]]) -> dict[str, dict[int, Any]]:
        """The `dynamic=` of `mo.compile`: axes that are expressions of symbols, by parameter."""
        symbols = {name: mo.Dim(name, low, high) for name, (low, high) in bounds.items()}
        found: dict[str, dict[int, Any]] = {}
        for number, parameter in enumerate(self.parameters):
            axes = {axis: evaluated(size, symbols) for axis, size in enumerate(parameter.sizes)
                    if isinstance(size, Size)}
            if axes:
                found[f"x{number}"] = axes
        return found

    def run(self, arguments: Sequence[Any]) -> tuple[Tensor, ...]:
        """The outputs, each with its axes in the order of memory."""
        key = arguments[-1] if self.is_random else None
        tensors = list(arguments[:len(self.parameters)])
        symbols = dict(zip(self.symbols, arguments[len(tensors):], strict=False))
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            for axis, size in enumerate(parameter.sizes):
                if isinstance(size, Size) and size.text.isidentifier():
                    symbols.setdefault(size.text, tensor.shape[axis])
        values: list[Any] = [*tensors, *self.constants, *[None] * len(self.steps)]

        def filled(argument: Any) -> Any:
            if isinstance(argument, Value):
                return values[argument.number]
            if isinstance(argument, Number):
                return argument.tensor()
            if isinstance(argument, Size):
                return evaluated(argument, symbols)
            if isinstance(argument, list | tuple):
                return type(argument)(filled(part) for part in argument)
            return argument

        for step in self.steps:
            args = filled(step.args)
            kwargs = {name: filled(value) for name, value in step.kwargs.items()}
            if step.entry.context:
                own = mo.random.fold_in(key, step.number) if step.entry.random else None
                args = (Context(step.results, step.operands, own), *args)
            try:
                made = step.entry.run(*args, **kwargs)
            except MorphoError as error:
                raise StepFault(step, error) from error
            values[step.number] = _fitted(step, made)
        return tuple(values[out.number] if order is None else mo.permute_dims(values[out.number], order)
                     for out, order in zip(self.outputs, self.orders, strict=True))


_NAMES = {"__builtins__": {}, "max": max, "min": min, "math": math, "torch": SimpleNamespace(  # as PyTorch prints sizes
    sym_float=float, sym_int=int, sym_max=max, sym_min=min, _sym_sqrt=math.sqrt)}


def evaluated(size: Size | Any, symbols: Mapping[str, Any]) -> Any:
    """The number, or the `mo.Dim`, that an expression stands for."""
    if not isinstance(size, Size):
        return size
    if size.text in symbols:
        return symbols[size.text]
    try:
        return eval(size.text, _NAMES, dict(symbols))
    except (NameError, TypeError, AttributeError, ValueError):  # a function of floats has no value for a `mo.Dim`
        raise fail(LoweringError, "torch", f"the size {size.text} is no polynomial of {', '.join(symbols)}",
                   "compile it for each size: dynamic=False") from None


def _fitted(step: Step, result: Any) -> Any:
    """The result in the dtype and shape that PyTorch foresaw; another shape is an error, never an answer."""
    if not step.many:
        return _one(step, result, step.results[0])
    return tuple(_one(step, part, meta) for part, meta in zip(result, step.results, strict=True))


def _one(step: Step, result: Any, meta: Meta | None) -> Any:
    if meta is None or not isinstance(result, Tensor):
        return result
    if result.dtype is not meta.dtype:
        result = mo.astype(result, meta.dtype)
    shape = result.shape
    if len(shape) != meta.ndim or any(want is not None and isinstance(have, int) and have != want
                                      for have, want in zip(shape, meta.shape, strict=True)):
        raise fail(LoweringError, step.entry.name, f"made {tuple(shape)} where PyTorch makes {meta.shape}",
                   "report it; until then leave the operation to PyTorch with morpho.torch.exclude")
    return result
