"""A kernel as a function of tensors: arguments, results, the grid, checking, and its node in the graph."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Size
from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, CompileError, MorphoError, fail
from morpho.ir.node import Node
from morpho.ops.sources import pick
from morpho.ops.tiles import record
from morpho.ops.tiles.builder import Reading, Refusal, exact, is_current
from morpho.ops.tiles.interpret import Interpreter
from morpho.ops.tiles.ir import TileProgram
from morpho.ops.tiles.translate import PRIMITIVES, Tree, translate_now, tree_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor

LABELS: set[str] = set()
COUNTER = itertools.count(2)
KNOWN = (bool, int, float, str, DType, tuple, type(None))


class Const:
    """Annotation of an argument that is known when a kernel is compiled. Arguments by keyword are all constants."""


@dataclass(frozen=True, slots=True)
class New:
    """A result that a kernel makes: shape, dtype, and the value it begins with (None: no value)."""

    shape: tuple[Size, ...]
    dtype: DType
    fill: Any = None


def new(shape: Any, dtype: Any = "float32", fill: Any = None) -> New:
    """Describe a result of a kernel. Without `fill` its elements have no value until the kernel stores them.

    >>> mo.kernel.new((2, 3), "int32", fill=0)
    New(shape=(2, 3), dtype=int32, fill=0)
    """
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return New(sizes, as_dtype(dtype), fill)


def cdiv(a: Any, b: Any) -> Any:
    """Divide whole numbers and round up.

    >>> mo.kernel.cdiv(1000, 256)
    4
    """
    return -(-a // b)


PRIMITIVES[cdiv] = "cdiv"


def next_power_of_2(n: int) -> int:
    """Return the least power of two that is not below n.

    >>> mo.kernel.next_power_of_2(1000)
    1024
    """
    return 1 << max(0, int(n) - 1).bit_length()


class Kernel:
    """A kernel. Call it with tensors; results may be left out where `out=` says what they are."""

    def __init__(self, function: Callable[..., Any], grid: Any, out: Any, vjp: Callable[..., Any] | None) -> None:
        if not inspect.isfunction(function):
            raise fail(ArgumentError, "kernel", f"{function!r} is no function written with def")
        functools.update_wrapper(self, function)
        self.function, self.grid, self.out, self.vjp = function, grid, out, vjp
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise fail(ArgumentError, "kernel", f"{function.__name__} has * arguments", "name its arrays and constants")
        constant = [p for p in parameters if p.kind is p.KEYWORD_ONLY or str(
            getattr(p.annotation, "__name__", p.annotation)).split(".")[-1] == "Const"]
        self.constants = {p.name: p.default for p in constant}
        self.arrays = [p.name for p in parameters if p.name not in self.constants]
        self.label = f"{function.__module__}.{function.__qualname__}"
        self.programs: dict[Any, tuple[TileProgram, list[Reading]]] = {}
        try:
            self.tree: Tree | None = tree_of(function)  # the file may change before the first call
        except CompileError:
            self.tree = None
        if self.label in record.GRADIENTS or (vjp is not None and self.label in LABELS):
            self.label += f"#{next(COUNTER)}"  # a kernel of the same name has another gradient
        LABELS.add(self.label)
        if vjp is not None:
            record.GRADIENTS[self.label] = self.gradients

    def __repr__(self) -> str:
        return f"<kernel {self.function.__name__}({', '.join([*self.arrays, *self.constants])})>"

    def __call__(self, *given: Any, check: bool = False, **named: Any) -> Any:
        """Run the kernel on tensors and return its results; tensors that are passed for them do not change.

        `check=True` runs it in NumPy and raises an error with the kernel's lines for an index outside, a read of what
        nobody has written, and programs that meet at an element.
        """
        name = self.function.__name__
        arguments, constants = self.bound(given, named)
        operands: dict[str, Tensor | New] = {}
        for key, value in arguments.items():
            operands[key] = value if isinstance(value, New | Tensor) else asarray(value)
        self.complete(operands, constants)
        program = self.program(operands, constants)
        for array in program.arrays:
            if not array.written and array.name not in arguments:
                raise fail(ArgumentError, name, f"the array {array.name} is missing")
            if isinstance(operands[array.name], New) and not array.written:
                raise fail(ArgumentError, name, f"{array.name} is a new array, and the kernel does not write it")
        if not any(array.written for array in program.arrays):
            raise fail(ArgumentError, name, "the kernel stores nothing: it has no result")
        grid = self.sizes({**{key: operands[key] for key in self.arrays}, **constants})
        return self.checked(program, operands, grid) if check else self.node(program, operands, grid)

    # -- arguments --
    def bound(self, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays and constants by name."""
        name, arguments, constants = self.function.__name__, dict[str, Any](), dict(self.constants)
        if len(given) > len(self.arrays):
            raise fail(ArgumentError, name, f"{len(given)} arrays for {', '.join(self.arrays)}")
        for key, value in [*zip(self.arrays, given, strict=False), *named.items()]:
            if key in self.constants:
                constants[key] = value
            elif key not in self.arrays or key in arguments:
                raise fail(ArgumentError, name, f"there is no argument {key!r}, or it is there twice",
                           f"it takes {', '.join([*self.arrays, *self.constants])}")
            else:
                arguments[key] = value
        for key, value in constants.items():
            if value is inspect.Parameter.empty:
                raise fail(ArgumentError, name, f"the constant {key} is missing", f"call it with {key}=...")
            if isinstance(value, np.generic):
                constants[key] = value.item()
            elif not is_known(value):
                raise fail(ArgumentError, name, f"the constant {key} is {type(value).__name__}",
                           "constants are numbers, text, dtypes and tuples; pass arrays by position")
        return arguments, constants

    def complete(self, operands: dict[str, Tensor | New], constants: Mapping[str, Any]) -> None:
        """Results that the call leaves out."""
        missing = [key for key in self.arrays if key not in operands]
        if not missing:
            return
        name, out = self.function.__name__, self.out
        if out is None:
            raise fail(ArgumentError, name, f"the array {missing[0]} is missing",
                       "pass a tensor or mo.kernel.new(shape, dtype), or give out= to mo.kernel")
        if callable(out):
            out = called(out, {**operands, **constants}, name)
        several = out if isinstance(out, tuple | list) else (out,) * (len(missing) if isinstance(out, str) else 1)
        if len(several) != len(missing):
            raise fail(ArgumentError, name, f"out= has {len(several)} results for {', '.join(missing)}")
        for key, one in zip(missing, several, strict=True):
            if isinstance(one, str):
                if one not in operands:
                    raise fail(ArgumentError, name, f"out= names {one!r}, which is no argument of this call")
                one = New(tuple(operands[one].shape), operands[one].dtype)
            if not isinstance(one, New | Tensor):
                raise fail(ArgumentError, name, f"out= gives {type(one).__name__} for {key}",
                           "give mo.kernel.new(shape, dtype), a tensor, or the name of an argument")
            operands[key] = one

    def program(self, operands: Mapping[str, Tensor | New], constants: Mapping[str, Any]) -> TileProgram:
        """The tile IR for the dtypes, ranks and constants of a call."""
        arrays = [(key, operands[key].dtype, len(operands[key].shape)) for key in self.arrays]
        key = (tuple(arrays), tuple((one, exact(value)) for one, value in constants.items()))
        known, readings = self.programs.get(key, (None, ()))
        if known is None or not is_current(readings):
            for array, dtype, _ in arrays:
                if dtype.is_complex:
                    raise fail(ArgumentError, self.function.__name__, f"{array} is {dtype}: kernels take real arrays")
            known, readings = self.programs[key] = translate_now(self.function, arrays, dict(constants), self.tree)
        return known

    def sizes(self, arguments: Mapping[str, Any]) -> tuple[Size, ...]:
        """The grid of a call."""
        name, grid = self.function.__name__, self.grid
        if callable(grid):
            grid = called(grid, arguments, name)
        sizes = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
        if not 1 <= len(sizes) <= 3 or not all(
                isinstance(size, Dim) or (type(size) is int and size >= 0) for size in sizes):
            raise fail(ArgumentError, name, f"the grid is {grid!r}", "give one to three whole numbers")
        return sizes

    # -- results --
    def node(self, program: TileProgram, operands: Mapping[str, Tensor | New], grid: tuple[Size, ...]) -> Any:
        """The kernel in the graph."""
        written = [array for array in program.arrays if array.written]
        fills: list[Any] = []
        for array in written:
            one = operands[array.name]
            fills.append(record.INPUT if isinstance(one, Tensor) else
                         record.UNDEFINED if one.fill is None else one.fill)
        given = [operands[array.name] for array in record.inputs_of(program, fills)]
        made = record.apply(program, [one.node for one in given if isinstance(one, Tensor)], grid,
                            [(operands[array.name].shape, array.dtype) for array in written], self.label, fills)
        if len(written) == 1:
            return Tensor.of_node(made)
        return tuple(Tensor.of_node(pick(made, number)) for number in range(len(written)))

    def checked(self, program: TileProgram, operands: Mapping[str, Tensor | New], grid: tuple[Size, ...]) -> Any:
        """The kernel in NumPy, with every access looked at."""
        arrays: list[np.ndarray] = []
        undefined: list[int] = []
        for index, array in enumerate(program.arrays):
            one = operands[array.name]
            storage = record._storage(array.dtype)
            if isinstance(one, New):
                arrays.append(np.full(tuple(map(int, one.shape)), 0 if one.fill is None else one.fill, storage))
                undefined += [index] if one.fill is None else []
            else:
                values = one.astype("float32") if array.dtype.name == "bfloat16" else one
                arrays.append(np.array(values.numpy(), storage))
        Interpreter(program, arrays, [int(size) for size in grid], check=True, undefined=undefined).run()
        results = [asarray(array).astype(one.dtype) for array, one in zip(arrays, program.arrays, strict=True)
                   if one.written]
        return results[0] if len(results) == 1 else tuple(results)

    def gradients(self, node: Node, cotangents: Sequence[Node | None]) -> Sequence[Node | None]:
        """The user's gradient as a rule of the op."""
        assert self.vjp is not None
        outputs = [Tensor.of_node(node if len(node.outputs) == 1 else pick(node, n)) for n in range(len(node.outputs))]
        inputs = tuple(Tensor.of_node(one) for one in node.inputs)
        slopes = tuple(output * 0 if one is None else Tensor.of_node(one)
                       for one, output in zip(cotangents, outputs, strict=True))
        found = self.vjp(inputs, outputs[0] if len(outputs) == 1 else tuple(outputs),
                         slopes[0] if len(slopes) == 1 else slopes)
        several = found if isinstance(found, tuple | list) else (found,)
        if len(several) != len(inputs):
            raise fail(ArgumentError, self.function.__name__,
                       f"vjp returns {len(several)} gradients for {len(inputs)} inputs")
        return [None if one is None else asarray(one).node for one in several]


def is_known(value: Any) -> bool:
    return all(map(is_known, value)) if type(value) is tuple else isinstance(value, KNOWN)


def called(function: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> Any:
    """A function of the kernel's arguments: it takes those that it names."""
    parameters = inspect.signature(function).parameters.values()
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    taken = {key: value for key, value in arguments.items()
             if everything or any(p.name == key for p in parameters)}
    try:
        return function(**taken)
    except (Refusal, MorphoError):
        raise
    except TypeError as error:
        raise fail(ArgumentError, name, f"grid= or out= cannot be called with the kernel's arguments ({error})",
                   "it takes them by name: lambda x, **_: ...") from None
