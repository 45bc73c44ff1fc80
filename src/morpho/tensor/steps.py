"""The trie of recordings: positions that are exact fingerprints of the operations so far, and their keys.

A position (`Step`) knows the type of its result, the node that it was built as, over parameters in place of inputs, and
the programs compiled for recordings that end there.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterable
from types import EllipsisType, NoneType
from typing import Any

from morpho.base.dtypes import DType
from morpho.ir.node import Node, make, rebuild
from morpho.ir.op import REGISTRY, Spec

MOST_STEPS, MOST_PLANS = 20_000, 512  # in memory
NUMBER = 1 << 30  # indices of parameters from here on are those of numbers


class Counts:
    """Counters for tests and `mo.profile`."""

    plans = 0  # programs compiled for recordings
    symbolic = 0  # those of them for sizes that are symbols
    runs = 0  # recordings computed
    steps = 0  # positions of the trie
    pieces = 0  # single operations of recordings that are not worth compiling whole
    at_once = 0  # operations computed without one
    written = 0  # assignments to parts of tensors in their memory
    cuts = 0  # recordings that ended without a look
    failed = 0  # recordings that were computed value by value, because computing them together was an error
    last_failure = ""
    unrecorded: dict[str, int] = {}  # operations outside of recordings, by name: a value of them is a graph


counts = Counts()


class Step:
    """A position in the trie: the exact fingerprint of a recording so far, and its last result.

    Arguments are steps above it, numbers (`FLOAT`, `INT`) and attributes. The step that followed last time is tried
    first, by identity: a program that repeats itself builds no key and hashes nothing.
    """

    __slots__ = ("__weakref__", "after", "arguments", "device", "following", "function", "home", "inputs",
                 "is_plain", "last", "names", "nbytes", "node", "numbers", "outputs", "parent", "picks", "plans",
                 "reached", "slot", "structure", "tracked")

    def __init__(self, parent: Step | None, function: Any, arguments: tuple[Any, ...] = (),
                 names: tuple[str, ...] = (), node: Any = None) -> None:
        self.parent, self.function, self.arguments, self.names, self.node = parent, function, arguments, names, node
        self.slot: int = -1 if parent is None else parent.slot + 1
        self.inputs: int = 0 if parent is None else parent.inputs
        self.numbers: int = 0 if parent is None else parent.numbers
        self.outputs: tuple[Spec, ...] = () if node is None else (node.outputs[0],)  # what a tensor asks a node for
        self.home: str = "" if parent is None else parent.home  # the device of its recording, unless that is the CPU
        self.device: str = "" if node is None else node.device  # none: a value of no operand, which lies anywhere
        self.nbytes = 0  # of an input
        self.after: Any = None  # the step that followed last time
        self.following: dict[Any, Any] = {}
        self.plans: dict[Any, Callable[..., Any]] = {}  # by the step of the result that is held, or those of several
        self.last = self  # of several results: the last one, all, and what arranges their tensors
        self.picks: tuple[Step, ...] = (self,)
        self.structure: Callable[[list[Any]], Any] | None = None
        self.tracked = False  # whether a gradient may be asked for
        self.is_plain = True  # whether arguments that are the same objects are the same values
        self.reached: Any = None  # the leaves that a gradient of this step goes to


NOWHERE = Step(None, None)
ROOT = Step(None, "root")
ROOT.after = NOWHERE
ROOTS: dict[str, Step] = {"": ROOT}  # by the device of the inputs; the CPU's has no name
INPUT, PICK, DETACH, GRADIENT = "input", "pick", "detach", "gradient"
FLOAT, INT = Step(None, "float"), Step(None, "int")
NEVER = Step(None, "never")  # stands where an operation cannot be recorded

functions_held = {"functions": 0}
growing = threading.Lock()


class Unknown(Exception):
    """An argument that a recording cannot hold."""


def add(parent: Step, key: Any, step: Step) -> Step:
    """Put a step into the trie; the first of two threads wins."""
    step.after = NOWHERE
    with growing:
        known: Step = parent.following.setdefault(key, step)
        if known is step:
            counts.steps += 1
    if counts.steps > MOST_STEPS or functions_held["functions"] > MOST_PLANS:
        _forget()
    return known


def root_of(device: str) -> Step:
    """Where recordings on a device begin."""
    known = ROOTS.get(device)
    if known is None:
        root = Step(None, "root")
        root.after, root.home = NOWHERE, device
        with growing:
            known = ROOTS.setdefault(device, root)
    return known


def _forget() -> None:
    """Drop the trie; recordings under way keep the steps that they stand on."""
    with growing:
        for root in ROOTS.values():
            root.following.clear()
            root.after = NOWHERE
        counts.steps = functions_held["functions"] = 0


_PLAIN = frozenset({int, str, bool, NoneType, DType, EllipsisType, type})


def exact_key(value: Any) -> Any:
    """A hashable key in which values of two types differ, NaN equals itself and -0.0 is not 0.0."""
    kind = type(value)
    if kind is Step or kind is str or value is None or kind is DType:
        return value
    if kind is int or kind is bool:
        return kind, value
    if kind is float:
        return "float", struct.pack("<d", value)
    if kind is complex:
        return "complex", struct.pack("<dd", value.real, value.imag)
    if kind is tuple or kind is list:
        return kind, tuple([(int, item) if type(item) is int else exact_key(item) for item in value])
    if kind is slice:
        if value.start is value.stop is value.step is None:
            return "slice"
        return "slice", exact_key(value.start), exact_key(value.stop), exact_key(value.step)
    if kind is EllipsisType or kind is type:
        return value
    raise Unknown


def signature(argument: Any) -> Any:
    """An argument as far as it decides whether an operation can be recorded."""
    if type(argument) is Step:
        return argument.outputs or argument
    if type(argument) in (tuple, list):
        return tuple([signature(item) for item in argument])
    return exact_key(argument)


def is_immutable(value: Any) -> bool:
    """Whether an argument that is the same object is the same value."""
    kind = type(value)
    if kind is tuple:
        return all(is_immutable(item) for item in value)
    return kind is Step or kind is float or kind is slice or kind is complex or kind in _PLAIN


def is_tracked(arguments: Iterable[Any]) -> bool:
    return any(is_tracked(argument) if type(argument) in (tuple, list) else type(argument) is Step and argument.tracked
               for argument in arguments)


def number_node(place: int, dtype: DType) -> Node:
    return make(REGISTRY["parameter"], (), {"index": NUMBER + place, "shape": (), "dtype": dtype, "recorded": True})


def path_of(step: Step) -> list[Step]:
    """The steps of a recording that ends here, in order."""
    path = []
    at: Step | None = step
    while at is not None and at.parent is not None:
        path.append(at)
        at = at.parent
    path.reverse()
    return path


def steps_of(argument: Any) -> list[Step]:
    """The operands among arguments."""
    if type(argument) is Step:
        return [argument] if argument.parent is not None else []
    return [one for item in argument for one in steps_of(item)] if type(argument) in (tuple, list) else []


def substituted(nodes: Iterable[Node], memo: dict[int, Node], numbers: Any) -> list[Node]:
    """Graphs over parameters with other leaves in place of those. `numbers` by place are constants."""
    from morpho.tensor.scalars import scalar_node

    wanted = list(nodes)
    stack = list(reversed(wanted))
    while stack:
        node = stack[-1]
        if node.serial in memo:
            stack.pop()
            continue
        if numbers is not None and node.op.name == "cast" and _is_number(node.inputs[0]):
            source = node.inputs[0]
            value = numbers[source["index"] - NUMBER]
            memo[node.serial] = scalar_node(value, node.dtype, "number")
            stack.pop()
            continue
        if numbers is not None and _is_number(node):
            memo[node.serial] = scalar_node(numbers[node["index"] - NUMBER], node.dtype, "number")
            stack.pop()
            continue
        waiting = [child for child in node.inputs if child.serial not in memo]
        if waiting:
            stack += waiting
            continue
        memo[node.serial] = rebuild(node, [memo[child.serial] for child in node.inputs])
        stack.pop()
    return [memo[node.serial] for node in wanted]


def _is_number(node: Node) -> bool:
    return node.op.name == "parameter" and "recorded" in node.attributes and node["index"] >= NUMBER


def _after_fork() -> None:
    global growing
    growing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
