"""Arguments of functions that are differentiated: trees of tensors and numbers, and what must be arranged like them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.trees import flatten, refuse_depth, unflatten
from morpho.ir.node import Node
from morpho.ops.algebra import cast
from morpho.ops.identity import mark
from morpho.runtime.memory.buffer import Buffer, OffHost
from morpho.tensor import recording
from morpho.tensor.autodiff.grad_mode import ARGUMENT, Argument, tracing, watch
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.steps import Step

DEEP = 125  # operations of a lazy argument from which on it is computed before its function is differentiated


class Inputs:
    """Arguments to differentiate with respect to, as trees, with a node of its own for every float tensor in them.
    A function is called with `values`, which it may assign to.

    Where the function's operations can be recorded each is also a leaf of the recording."""

    def __init__(self, operation: str, arguments: Sequence[Any], is_recorded: bool = False) -> None:
        self.leaves: list[Tensor] = []
        self.structures, self.widths = [], []
        every: list[Tensor] = []
        for argument in arguments:
            tensors: list[Any] = []
            whole = argument if isinstance(argument, Tensor | tuple | list | dict) else asarray(argument)
            self.structures.append(flatten(with_numbers(whole), tensors))
            self.widths.append(len(tensors))
            every += map(asarray, tensors)
        buffers = _recordable(every) if is_recorded else None
        self.is_recorded = buffers is not None
        if buffers is not None:
            self.leaves = [_argument(buffer) for buffer in buffers]
        else:
            for tensor in every:
                tensor.cut(DEEP)  # what came before is no part of what is differentiated, and often a loop's last turn
                self.leaves.append(Tensor.of_node(mark(tensor.program())))
        for leaf in self.leaves:
            if not leaf.dtype.is_inexact:
                raise fail(DTypeError, operation, f"dtype {leaf.dtype} has no gradient", "convert with astype")
        self.nodes = [leaf.program() for leaf in self.leaves]
        for leaf, node in zip(self.leaves, self.nodes, strict=True):
            watch(leaf, node)  # a value that the function prints on its way keeps its program
        self.values = [_value_of(leaf) for leaf in self.leaves] if self.is_recorded else \
            [Tensor.of_node(node) for node in self.nodes]

    def apply(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call the function that is differentiated; values that leave it for NumPy meanwhile are an error."""
        tracing.transformed += 1
        if self.is_recorded:
            tracing.recorded = tracing.transformed
        try:
            return function(*arguments, **named)
        finally:
            tracing.transformed -= 1
            if self.is_recorded:
                tracing.recorded = 0

    def gradients(self, value: Tensor, result: Any) -> tuple[list[Tensor] | None, Any]:
        """The gradients of a recorded value, None where they are built as nodes, and the function's result without
        what only the gradients need."""
        parts = recording.gradients_of_arguments(value, self.leaves) if self.is_recorded else None
        if parts is None:
            return None, result
        for leaf in self.leaves:
            recording.local.recording.forget(leaf)
            leaf._track = None
        for one in self.values:
            if type(getattr(one, "_track", None)) is Argument:
                one._track = None
        tensors: list[Any] = []
        structure = flatten(result, tensors)
        ended = [x if type(x._node) is not Step or not x._node.tracked else recording.without_gradient(x)
                 for x in tensors]
        return parts, unflatten(structure, iter(ended))

    def trees(self, tensors: Sequence[Tensor]) -> list[Any]:
        items = iter(tensors)
        return [unflatten(structure, items) for structure in self.structures]


def _recordable(tensors: Sequence[Tensor]) -> list[Buffer] | None:
    """The elements of tensors that may be leaves of a recording: floats in the CPU's memory whose own gradients nobody
    asks for. None where one is not, or nothing is recorded here."""
    if tracing.transformed or tracing.gradients_off or not recording.may_record():
        return None
    buffers = []
    for tensor in tensors:
        if type(tensor) is not Tensor or getattr(tensor, "_track", None) is not None or not tensor.dtype.is_float:
            return None
        if type(tensor._node) is Step:
            if tensor._node.tracked:
                return None
            recording.look(tensor)
        buffer = tensor.buffer()
        if buffer is None:
            node = tensor._node
            if type(node) is not Node or node.op.name != "data" or node.device or type(node.payload) is not Buffer:
                return None
            buffer = node.payload
        if isinstance(buffer.storage, OffHost):
            return None
        buffers.append(buffer)
    return buffers


def _argument(buffer: Buffer) -> Tensor:
    made = Tensor.of_buffer(buffer)
    made._node = mark(made.program())  # where it is asked for as a node it is no plain leaf: `detach` stops at it
    made._track = ARGUMENT
    return made


def _value_of(leaf: Tensor) -> Tensor:
    """The same elements and the same node in a tensor of its own."""
    made = object.__new__(Tensor)
    made._node, made._record, made._storage, made._layout = leaf._node, leaf._record, leaf._storage, leaf._layout
    made._track = Argument(leaf)
    return made


def with_numbers(tree: Any) -> Any:
    """The tree with tensors in place of its numbers, which are differentiated like those given directly."""
    try:
        return _with_numbers(tree)
    except RecursionError:
        refuse_depth(tree, "arguments")
        raise


def _with_numbers(tree: Any) -> Any:
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[_with_numbers(item) for item in tree])
    if isinstance(tree, tuple | list):
        return type(tree)([_with_numbers(item) for item in tree])
    if isinstance(tree, dict):
        return {key: _with_numbers(item) for key, item in tree.items()}
    return asarray(tree) if isinstance(tree, int | float | complex | np.number | np.bool) else tree


def wanted_positions(argnums: Any) -> tuple[list[int], bool]:
    """Positions as they are given, and whether it is one by itself."""
    alone = as_whole(argnums)
    if alone is not None:
        return [alone], True
    several = isinstance(argnums, Iterable) and not isinstance(argnums, str | bytes | Mapping)
    given = list(argnums) if several else [argnums]
    found = [number for one in given if (number := as_whole(one)) is not None]
    if len(found) < len(given):
        raise fail(ArgumentError, "grad", f"argnums={argnums!r} is neither a position nor a sequence of positions",
                   "write argnums=0 or argnums=(0, 1)")
    return found, False


def positions_among(wanted: Sequence[int], count: int, named: bool) -> list[int]:
    """Those among so many arguments, counted from the first."""
    found: list[int] = []
    for number in wanted:
        if not -count <= number < count:
            raise fail(ArgumentError, "grad", f"there is no argument {number} among {count}",
                       "give what is differentiated by position, without its name" if named else "")
        if number % count in found:
            raise fail(ArgumentError, "grad", f"argnums={tuple(wanted)} name argument {number % count} twice")
        found.append(number % count)
    return found


def matching(operation: str, tree: Any, structure: Any, outputs: Sequence[Tensor]) -> list[Node]:
    """The tensors of a tree that must look like `outputs`, in their dtypes."""
    leaves: list[Any] = []
    if not isinstance(tree, tuple | list | dict):
        tree = asarray(tree)
    if flatten(tree, leaves) != structure:
        raise fail(ArgumentError, operation, "tangents or cotangents are not arranged like their values")
    nodes = [asarray(leaf).program() for leaf in leaves]
    for node, output in zip(nodes, outputs, strict=True):
        if node.shape != output.shape:
            raise fail(ShapeError, operation, f"a value of shape {output.shape} is given one of {node.shape}")
    return [cast(node, output.dtype) for node, output in zip(nodes, outputs, strict=True)]
