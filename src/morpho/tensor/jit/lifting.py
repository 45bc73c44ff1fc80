"""Which numbers among the arguments of a compiled function are inputs of its program, instead of constants.

A number is a constant as long as it is the same at every call. When it changes, and nothing else does, the function is
traced with a `LiftedNumber` in its place. If the trace asked for no value of it, and is the program that the earlier
number was compiled for once that number is put in, then no other value needs a program of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from morpho.base.trees import LEAF
from morpho.ir.node import Node, make, rebuild, toposort
from morpho.ops.algebra import constant
from morpho.ops.control.records import bodies_of
from morpho.tensor.core import Tensor
from morpho.tensor.eager import number_tensor, scalar_tensor
from morpho.tensor.jit.changes import is_same_tree
from morpho.tensor.jit.specialise import Specialisation, capture
from morpho.tensor.lifted import LARGEST_INT, LiftedNumber, LiftedScalar, Lifting, dtype_of
from morpho.tensor.scalars import scalar_node
from morpho.tensor.state.trace import Trace

Path = tuple[Any, ...]  # where a number stands: the parameter's name, then positions and keys
MOST_COMPARED_BYTES = 1 << 20  # of a captured array that a function makes anew


class Constant(Exception):
    """A number has to be a constant after all; with the paths of those that have."""

    def __init__(self, paths: Collection[Path]) -> None:
        super().__init__()
        self.paths = paths


class Numbers:
    """State of the numbers of one compiled function."""

    def __init__(self) -> None:
        self.lifted: dict[tuple[Path, str], tuple[int, int]] = {}  # by the name of the type; of integers, the limits
        self.constant: set[Path] = set()  # those whose value was asked for

    def applied(self, structure: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
        """The structure and leaves of a call, with the lifted numbers among the leaves."""
        if not self.lifted:
            return structure, leaves
        paths = {path for path, tree in numbers_of(structure)
                 if (known := self.lifted.get((path, tree[1]))) is not None
                 and (type(tree[-1]) is not int or known[0] <= tree[-1] <= known[1])}
        return marked(structure, leaves, paths) if paths else (structure, leaves)

    def lift(self, path: Path, value: Any, low: int, high: int) -> None:
        """A number is an input from now on; an integer within limits."""
        known = self.lifted.get((path, type(value).__name__), (low, high))
        self.lifted[path, type(value).__name__] = (max(low, known[0]), min(high, known[1]))

    def changed(self, structure: Any, key: Any, known: Mapping[Any, Specialisation]) -> Changed | None:
        """The earlier compilation that differs from this call in numbers alone, and in which."""
        for (other, _), chosen in known.items():
            if other[1:] != key[1:] or not chosen.fits:
                continue
            before = _differing(dict(other[0]), dict(key[0]))
            if before:
                paths = [path for path in before if path not in self.constant]
                if len(paths) < len(before):  # those that are constants must be the same
                    continue
                return Changed(paths, before, {path: tree[-1] for path, tree in numbers_of(structure)}, chosen)
        return None


class Changed(NamedTuple):
    """Numbers that differ from those of an earlier program: where, what they were and what they are."""

    paths: list[Path]
    before: dict[Path, Any]
    now: dict[Path, Any]
    chosen: Specialisation


# -- structures ------------------------------------------------------------------------------------------------------
def _children(tree: Any) -> Iterator[tuple[Any, Any]]:
    if tree[0] == "dict":
        yield from tree[-1]
    elif tree[0] in ("tuple", "list", "named"):
        yield from enumerate(tree[-1])


def numbers_of(structure: Any) -> Iterator[tuple[Path, Any]]:
    """The numbers among arguments that are constants: where, and what."""
    stack: list[tuple[Path, Any]] = [((name,), tree) for name, tree in reversed(structure)]
    while stack:
        path, tree = stack.pop()
        if tree is LEAF:
            continue
        if tree[0] == "static":
            if dtype_of(tree[-1]) is not None:
                yield path, tree
            continue
        stack += [((*path, key), child) for key, child in reversed(list(_children(tree)))]


def marked(structure: Any, leaves: Sequence[Any], paths: Collection[Path]) -> tuple[Any, list[Any]]:
    """The structure with a mark in place of some numbers, whose tensors stand among the leaves."""
    given, found = iter(leaves), []

    def walk(path: Path, tree: Any) -> Any:
        if tree is LEAF or tree[0] == "number":
            found.append(next(given))
            return tree
        if tree[0] == "static":
            if path not in paths:
                return tree
            found.append(tensor_of(tree[-1]))
            return ("number", tree[1], path, ())
        if tree[0] == "dict":
            return ("dict", tuple([(key, walk((*path, key), child)) for key, child in tree[-1]]))
        return (*tree[:-1], tuple([walk((*path, key), child) for key, child in enumerate(tree[-1])]))

    return tuple([(name, walk((name,), tree)) for name, tree in structure]), found


def tensor_of(value: Any) -> Tensor:
    """A number in memory, as an input of a program takes it."""
    make = scalar_tensor if isinstance(value, np.generic) else number_tensor
    return make(Tensor, value, dtype_of(value))  # type: ignore[arg-type, no-any-return]


def marks_of(structure: Any) -> dict[int, Path]:
    """The leaves that are lifted numbers, and where they stand."""
    found: list[Path | None] = []

    def walk(tree: Any) -> None:
        if tree is LEAF or tree[0] == "number":
            found.append(None if tree is LEAF else tree[2])
        elif tree[0] != "static":
            for _, child in _children(tree):
                walk(child)

    for _, tree in structure:
        walk(tree)
    return {number: path for number, path in enumerate(found) if path is not None}


def with_limits(structure: Any, numbers: Numbers) -> Any:
    """The structure with the limits of its lifted numbers in place of their paths."""
    def walk(tree: Any) -> Any:
        if tree is LEAF or tree[0] == "static":
            return tree
        if tree[0] == "number":
            return (*tree[:2], numbers.lifted[tree[2], tree[1]], ())
        if tree[0] == "dict":
            return ("dict", tuple([(key, walk(child)) for key, child in tree[-1]]))
        return (*tree[:-1], tuple([walk(child) for child in tree[-1]]))

    return tuple([(name, walk(tree)) for name, tree in structure])


def _differing(before: dict[str, Any], now: dict[str, Any]) -> dict[Path, Any] | None:
    """Old values of the numbers in which two structures differ; None where they differ in more."""
    found: dict[Path, Any] = {}
    stack: list[tuple[Path, Any, Any]] = [((name,), before.get(name, LEAF), tree) for name, tree in now.items()]
    while stack:
        path, old, new = stack.pop()
        if old is LEAF or new is LEAF or old[0] != new[0] or len(old) != len(new):
            if old is not new:
                return None
            continue
        if new[0] in ("static", "number"):
            if is_same_tree(old, new):
                continue
            if new[0] == "number" or dtype_of(new[-1]) is None or type(old[-1]) is not type(new[-1]):
                return None
            if type(new[-1]) is int and not all(abs(tree[-1]) <= LARGEST_INT for tree in (old, new)):
                return None
            found[path] = old[-1]
            continue
        pairs = list(zip(_children(old), _children(new), strict=False))
        if len(old[-1]) != len(new[-1]) or any(one[0] != other[0] for one, other in pairs) or old[1:-1] != new[1:-1]:
            return None
        stack += [((*path, key), one, other) for (key, one), (_, other) in pairs]
    return found


# -- traces ----------------------------------------------------------------------------------------------------------
def lifted_arguments(parameters: list[Tensor], numbers: Mapping[int, Any], lifting: Lifting) -> list[Any]:
    """Arguments of the function: its tensors, and lifted numbers with these values."""
    found: list[Any] = list(parameters)
    for number, value in numbers.items():
        kind = LiftedScalar if isinstance(value, np.generic) else LiftedNumber
        found[number] = kind(value, parameters[number].node, lifting, frozenset({number}), itemgetter(number))
    return found


def with_constants(nodes: Sequence[Node], trace: Trace, lifting: Lifting,
                   values: Mapping[int, Any]) -> tuple[Sequence[Node], list[Tensor]]:
    """The program with numbers in place of the lifted ones, as if traced with them, and what it captures."""
    done: dict[int, Node] = {}
    for node in toposort(nodes):
        attributes = dict(node.attributes)
        if node.serial in lifting.constants:
            number, dtype = lifting.constants[node.serial]
            value = number.at(values)
            done[node.serial] = (constant(value, dtype) if isinstance(value, np.generic) else
                                 scalar_node(value, dtype, "compile"))
        elif node.op.name == "parameter" and attributes.pop("trace", None) == trace.number:
            index = attributes.pop("index")
            done[node.serial] = trace.parameter(index - sum(place < index for place in values), attributes.pop("shape"),
                                                attributes.pop("dtype"), node.device, **attributes)
        else:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
    first = trace.next_parameter
    trace.next_parameter -= len(values)
    try:
        graph, captured = capture([done[node.serial] for node in nodes], trace)
    finally:
        trace.next_parameter = first
    return graph.outputs, captured


def is_same(one: Sequence[Node], captured: Sequence[Tensor], other: Sequence[Node], others: Sequence[Tensor],
            first: int) -> bool:
    """Whether two programs are one: the same nodes, over captured tensors with the same elements, which are inputs from
    the `first` on."""
    if any(tensor.shape == () for tensor in (*captured, *others)):
        one, captured = _with_numbers(one, captured, first)
        other, others = _with_numbers(other, others, first)
    if len(one) != len(other) or any(a is not b for a, b in zip(one, other, strict=True)):
        return False
    return len(captured) == len(others) and all(_equal(a, b) for a, b in zip(captured, others, strict=True))


def _with_numbers(nodes: Sequence[Node], captured: Sequence[Tensor],
                  first: int) -> tuple[list[Node], list[Tensor]]:
    """A program with its captured numbers as constants: each use of one of NumPy's captures it once more."""
    done: dict[int, Node] = {}
    left = [tensor for tensor in captured if tensor.shape]
    places = {number: place for place, number in enumerate(n for n, tensor in enumerate(captured) if tensor.shape)}
    for node in toposort(nodes):
        number = node["index"] - first if node.op.name == "parameter" else -1
        if number < 0:
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
        elif number in places:
            done[node.serial] = make(node.op, (), {**node.attributes, "index": first + places[number]})
        else:
            done[node.serial] = constant(captured[number].elements().numpy()[()], node.dtype)
    return [done[node.serial] for node in nodes], left


def _equal(one: Tensor, other: Tensor) -> bool:
    a, b = one.elements(), other.elements()
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if a.address == b.address:
        return a.strides == b.strides
    return one.nbytes <= MOST_COMPARED_BYTES and a.numpy().tobytes() == b.numpy().tobytes()


def is_beyond_constants(nodes: Sequence[Node], lifting: Lifting) -> bool:
    """Whether the program is another one than that of constants by design: an index that is found when it runs, or a
    number that is given to a loop's body from outside."""
    return lifting.is_indexing or any(bodies_of(node) for node in toposort(nodes))
