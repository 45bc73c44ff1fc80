"""Grad mode: whether a thread records for differentiation, and which leaves require gradients."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from morpho.base.errors import ArgumentError, CompileError, fail
from morpho.ir.node import Node, build, toposort


class _Modes(threading.local):
    """A `Trace`, a block without gradients, functions that `mo.grad` and its like are calling, those of `mo.vmap`, and
    the loop or branch whose body is written outside of a `Trace`."""

    current: Any = None
    gradients_off = False
    transformed = 0
    recorded = 0  # value of `transformed` at which operations are recorded
    batched = 0
    body: str | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        change = _is_on(value) - _is_on(getattr(self, name))
        super().__setattr__(name, value)
        if change:
            _count(change)


def _is_on(value: Any) -> bool:
    return value is not None and value is not False and value != 0


def _count(change: int) -> None:
    """Count first, then tell, as `settings` does of its blocks."""
    global _modes_on
    with _counting:
        _modes_on += change
    for function in changed:
        function()


def modes_on() -> int:
    """How many modes are in force in this process: while there are none, every thread asks for values alone."""
    return _modes_on


def _after_fork() -> None:
    global _counting, _modes_on
    _counting = threading.Lock()
    names = ("current", "gradients_off", "transformed", "batched", "body")
    _modes_on = sum(_is_on(getattr(tracing, name)) for name in names)


_modes_on = 0
_counting = threading.Lock()
changed: list[Callable[[], object]] = []  # called whenever a mode begins or ends, in any thread
os.register_at_fork(after_in_child=_after_fork)
tracing = _Modes()
tracked: dict[int, Any] = {}  # serial of a leaf -> weak reference to the tensor that wants its gradient
DONE = object()  # in a tensor's `_track`: the gradient of its program was taken


class Tracked:
    """Gradient that a tensor collects, and hooks that see each gradient before it is added."""

    __slots__ = ("grad", "hooks", "program", "wanted")

    def __init__(self, wanted: bool = True) -> None:
        self.grad: Any = None
        self.hooks: list[Callable[[Any], Any]] = []
        self.wanted = wanted
        self.program: Node | None = None  # of a computed value that keeps its gradient too


class Argument:
    """In the `_track` of an argument of a function that `mo.grad` calls, where its operations are recorded.

    The function may assign to its argument; `leaf` is a tensor it never sees, which stays the input that was given."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Any = None) -> None:
        self.leaf = leaf


ARGUMENT = Argument()


def check_own(nodes: Iterable[Node], trace: Any) -> None:
    """An error where a program holds an argument of another trace than this one, or of any where it is None: nothing
    says which value it would have."""
    for node in nodes:
        if node.op.name == "parameter" and "row" in node.attributes:
            raise fail(ArgumentError, "vmap", "a value inside the function stands for every row at once and has no "
                                              "number of its own",
                       "use mo.where instead of if, keep numpy() and item() outside, and return the result")
        if node.op.name == "parameter" and node.attributes.get("trace") not in (None, trace and trace.number):
            raise fail(CompileError, "compile", "a tensor left the compiled function that made it, other than in its "
                                                "result, and has no value",
                       "return it in a tuple, list or dict, or keep it in a mo.State")


def has_rows(tensor: Any) -> bool:
    """Whether a value stands for every row of a batch, inside a function of `mo.vmap`."""
    return not tensor.is_realised and any("row" in node.attributes for node in toposort([tensor.program()]))


def watch(tensor: Any, node: Node) -> None:
    """Know a leaf by its node, for as long as the node lives; inside a trace, for as long as the trace lasts."""
    if tracing.current is not None:
        tracing.current.tracked[node.serial] = tensor
        return
    known = tracked.get(node.serial)
    if known is None:
        weakref.finalize(node, tracked.pop, node.serial, None)
    if known is None or known() is None:  # another tensor with this leaf may be gone
        tracked[node.serial] = weakref.ref(tensor)


def is_watched(node: Node) -> bool:
    """Whether somebody holds a tensor that this node is the leaf of, to ask for its gradient: an argument of `mo.grad`
    is held until that returns."""
    return node.serial in tracked and tracked[node.serial]() is not None


def owner(node: Node) -> Any:
    """The tensor that wants the gradient of this node, or None."""
    trace = tracing.current
    tensor = trace.tracked.get(node.serial) if trace is not None else None
    if tensor is None and node.serial in tracked:
        tensor = tracked[node.serial]()
    track = getattr(tensor, "_track", None)
    return tensor if isinstance(track, Tracked) and track.wanted else None


def detached(node: Node) -> Node:
    """The same value, through which no gradient flows; a leaf that nobody wants a gradient of is that already. What a
    body or a row is given is no such leaf, though it looks like one: its gradient may be asked for by whoever runs it.
    """
    given = node.op.name == "parameter" and not {"region", "row"}.isdisjoint(node.attributes)
    if node.op.name == "detach" or not node.dtype.is_inexact or not (node.inputs or given or owner(node) is not None):
        return node
    return build("detach", node)


def check_leaves(tensor: Any) -> None:
    """Inside a function that `mo.grad` or its like calls: NumPy may not take a value that depends on the arguments,
    as the gradient would be without a word that of a constant."""
    if tracing.gradients_off or (getattr(tensor, "_track", None) is None and tensor.is_realised):
        return
    if any(not isinstance(getattr(leaf, "_track", None), Tracked) for leaf in held_below(tensor)):
        raise fail(ArgumentError, "numpy", "the gradient of this value is taken here, and does not go through NumPy",
                   "use Morpho's functions, as mo.sin for np.sin, or x.detach().numpy() where the gradient may end")


def held_below(tensor: Any) -> list[Any]:
    """The leaves that somebody holds: tensors that collect gradients, wanted or not, and arguments of a function that
    `mo.grad` or its like calls."""
    return [found for node in (reached(tensor) if tracked else ()) if node.serial in tracked
            and (found := tracked[node.serial]()) is not None]


def reached(tensor: Any) -> Iterator[Node]:
    """The nodes that gradients of this tensor flow through."""
    stack, seen = [tensor.program()], set()
    while stack:
        node = stack.pop()
        if node.serial in seen:
            continue
        seen.add(node.serial)
        yield node
        if "stops" not in node.op.properties:
            stack += node.inputs
