"""A user's function traced into a body: the values it is given become parameters, the ones it finds around it inputs.

What does not depend on the parameters is computed once, outside the body of a loop. States that the function writes are
carried from turn to turn, like values it returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.base.trees import flatten, refuse_depth, unflatten
from morpho.ir.body import Body, cut_out
from morpho.ir.node import Node, make, toposort
from morpho.ir.op import REGISTRY, Spec
from morpho.ir.views import MOVES, look_through
from morpho.ops.collective import of_a_body
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.convert import following
from morpho.tensor.core import Tensor
from morpho.tensor.operands import promoted
from morpho.tensor.scalars import is_scalar
from morpho.tensor.state.trace import Trace, current_trace

_regions = itertools.count(1)


@dataclass
class Traced:
    """One call of a function on parameters: its results, and what it wrote."""

    leaves: list[Node]  # the parameters
    outputs: list[Node]
    structure: Any  # of the result
    states: list[Any]  # of a compiled function, that it wrote
    written: list[Node]  # their new values


def with_tensors(tree: Any, numbers: list[Tensor]) -> Any:
    """A tree with tensors in place of its numbers and arrays; those that were Python numbers are put on a list."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*[with_tensors(item, numbers) for item in tree])
    if isinstance(tree, tuple | list):
        return type(tree)([with_tensors(item, numbers) for item in tree])
    if isinstance(tree, dict):
        return {key: with_tensors(item, numbers) for key, item in tree.items()}
    if is_scalar(tree):
        numbers.append(Tensor.of_node(promoted("scan", tree)[0]))
        return numbers[-1]
    return following(tree) if isinstance(tree, np.generic | np.ndarray) else tree


def leaves_of(tree: Any, numbers: list[Tensor] | None = None) -> tuple[list[Tensor], Any]:
    """The tensors of a tree, numbers among them, and its structure."""
    found: list[Any] = []
    try:
        structure = flatten(with_tensors(tree, [] if numbers is None else numbers), found)
    except RecursionError:
        refuse_depth(tree, "arguments")
        raise
    return [one if isinstance(one, Tensor) else following(one) for one in found], structure


def trace(function: Callable[..., Any], structures: Sequence[Any], specs: Sequence[Sequence[Spec]], operation: str,
          states: Sequence[Any] = ()) -> Traced:
    """Call a function on parameters of these specs, argument by argument. `states` of a compiled function are given
    parameters too, after the others."""
    region = next(_regions)
    leaves = [_parameter(number, spec, region) for number, spec in enumerate(spec for group in specs for spec in group)]
    held = iter([Tensor.of_node(leaf) for leaf in leaves])
    arguments = [unflatten(structure, held) for structure in structures]
    outer = current_trace()
    first = len(leaves)
    leaves += [_parameter(first + number, _spec_of(state, outer), region) for number, state in enumerate(states)]
    with of_a_body(), _states_apart(outer, states, leaves[first:], operation) as wrote:
        result = _called(function, arguments, operation)
        tensors, structure = leaves_of(result)
        outputs = [tensor.node for tensor in tensors]
    return Traced(leaves, outputs, structure, [state for state, _ in wrote],
                  [tensor.node for _, tensor in wrote])


def _called(function: Callable[..., Any], arguments: list[Any], operation: str) -> Any:
    try:
        return function(*arguments)
    except CompileError as error:
        if "asks for a value" in error.message:
            raise fail(CompileError, operation, "the function asks for a value that is known only while the loop runs",
                       "use mo.where or mo.cond instead of if, and keep print, float() and numpy() outside") from None
        raise


def _parameter(index: int, spec: Spec, region: int) -> Node:
    """A parameter of this trace alone."""
    return make(REGISTRY["parameter"], (), {"index": index, "shape": spec.shape, "dtype": spec.dtype, "region": region})


def _spec_of(state: Any, outer: Trace | None) -> Spec:
    assert outer is not None
    return outer.read(state).node.spec


@contextmanager
def _states_apart(outer: Trace | None, states: Sequence[Any], leaves: Sequence[Node],
                  operation: str) -> Iterator[list[Any]]:
    """While a body is traced inside a compiled function: `states` have the values of these parameters, and what is
    written is collected, not left in the surroundings. Outside of one a state that is written is an error."""
    wrote: list[Any] = []
    if outer is None:
        before, tracing.body = tracing.body, operation
        try:
            yield wrote
        finally:
            tracing.body = before
        return
    values, written = dict(outer.values), dict(outer.written)
    for state, leaf in zip(states, leaves, strict=True):
        outer.values[id(state)] = Tensor.of_node(leaf)
    outer.written.clear()
    try:
        yield wrote
        known = {id(state) for state in states}
        # Those that were given first and in their order, whether they were written this time or not.
        wrote += [(state, outer.values[id(state)]) for state in states]
        wrote += [(state, outer.values[key]) for key, state in outer.written.items() if key not in known]
    finally:
        read = {key: value for key, value in outer.inputs.items() if key not in values}
        outer.values.clear()
        outer.values |= values | read
        outer.written.clear()
        outer.written |= written


def closed(traces: Sequence[tuple[Sequence[Node], Sequence[Node]]],
           own: Collection[int] = ()) -> tuple[list[Body], list[Node]]:
    """Bodies of several (leaves, outputs) with the constants that any of them finds in its surroundings, which follow
    its own parameters in all of them. Nodes that are their `own`, by serial, stay in their body, whether they depend on
    the parameters or not: a branch that is not taken computes nothing."""
    constants: dict[int, Node] = {}
    for leaves, outputs in traces:
        for node in _surroundings(leaves, outputs, own):
            constants.setdefault(node.serial, node)
    found = list(constants.values())
    return [cut_out(outputs, [*leaves, *found]) for leaves, outputs in traces], found


def _surroundings(leaves: Sequence[Node], outputs: Sequence[Node], own: Collection[int]) -> list[Node]:
    """Captured values of a body besides its parameters, without numbers."""
    inside = {leaf.serial for leaf in leaves}
    below = toposort(outputs, set(inside))
    for node in below:
        if (node.serial in own and node.inputs) or any(child.serial in inside for child in node.inputs):
            inside.add(node.serial)
    read: dict[int, Node] = {}
    for node in below:
        if node.serial in inside:
            read |= {child.serial: child for child in node.inputs if child.serial not in inside}
    read |= {node.serial: node for node in outputs if node.serial not in inside}
    return [node for node in read.values() if not _is_number(node)]


def _is_number(node: Node) -> bool:
    """Whether a value is a number, spread or not, which a body holds itself."""
    root = look_through(node, lambda view: view.op.name in MOVES)[0]
    return root.op.name in ("constant", "dimension", "iota")


def check_tensors(operation: str, structure: Any, kind: str) -> None:
    """An error where a tree of values has something else than tensors and numbers in it."""
    for thing in _statics(structure):
        if thing is not None:
            raise fail(ArgumentError, operation, f"{kind} holds {type(thing).__name__}, which is no tensor or number")


def _statics(structure: Any) -> Iterator[Any]:
    if not isinstance(structure, tuple):
        return
    if structure[0] == "static":
        yield structure[-1]
        return
    for item in structure[-1]:
        yield from _statics(item[1] if structure[0] == "dict" else item)
