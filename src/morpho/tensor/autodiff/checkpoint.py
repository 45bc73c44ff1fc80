"""Gradient checkpointing: parts of a program whose values are computed again for the gradient instead of being kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import flatten, unflatten
from morpho.ir.node import Node, next_serial, toposort
from morpho.ops.order import mark
from morpho.tensor.core import Tensor


def checkpoint(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a function of tensors so that its gradient computes it again from what it was called with.

    The result is that of `function(*args, **named)`, and so are all gradients, bit for bit: also those with respect to
    tensors and states the function finds in its surroundings, and with random draws in it, since keys are values.
    What lies between is not kept for the gradient, which takes one more forward pass instead. Calls may be nested.

    function: takes and returns tensors, or tuples, lists and dicts of them.
    args, named: its arguments.

    >>> import morpho as mo
    >>> def block(x):
    ...     return mo.tanh(mo.exp(x) * 2)
    >>> plain = mo.grad(lambda x: block(x).sum())
    >>> thrifty = mo.grad(lambda x: mo.checkpoint(block, x).sum())
    >>> x = mo.asarray([-1.0, 0.5])
    >>> plain(x).numpy().tobytes() == thrifty(x).numpy().tobytes()
    True
    """
    if not callable(function):
        raise fail(ArgumentError, "checkpoint", f"{type(function).__name__} is not a function",
                   "call it as mo.checkpoint(function, *args)")
    given: list[Any] = []
    flatten((args, named), given)
    given = [leaf.node for leaf in given if isinstance(leaf, Tensor)]
    before = next_serial()
    results: list[Any] = []
    structure = flatten(function(*args, **named), results)
    nodes = [result.node for result in results if isinstance(result, Tensor)]
    made_from = _made_from(nodes, given, before)
    if not nodes or not made_from:
        return unflatten(structure, iter(results))
    marked = iter(mark(nodes, made_from))
    return unflatten(structure, iter([Tensor.of_node(next(marked)) if isinstance(result, Tensor) else result
                                      for result in results]))


def _made_from(results: Sequence[Node], given: Sequence[Node], before: int) -> list[Node]:
    """Inputs of a region: its arguments, and captured tensors that it uses.

    A node that needs neither and existed before stands outside, as someone may hold its value.
    """
    known = {node.serial for node in given}
    needs: set[int] = set(known)
    for node in toposort(results):
        if any(child.serial in needs for child in node.inputs):
            needs.add(node.serial)
    found: dict[int, Node] = {}
    seen: set[int] = set()
    stack = list(reversed(results))
    while stack:
        node = stack.pop()
        if node.serial in seen:
            continue
        seen.add(node.serial)
        # A node of several outputs has no value of its own: what is picked from one outside stands outside with it.
        whole = node.inputs[0] if node.op.name == "pick" else node
        leaf = node.op.name in ("parameter", "data")
        if node.serial in known or leaf or (whole.inputs and whole.serial < before and whole.serial not in needs):
            found[node.serial] = node
        else:
            stack.extend(reversed(node.inputs))
    return list(found.values())


def checkpoint_sequential(functions: Sequence[Callable[[Any], Any]], segments: int, x: Any) -> Any:
    """Call functions one after the other, in so many segments; the gradient computes each segment again but the last.

    With n functions of equal results, about the root of n segments keep the least: what lies between two of them, and
    one segment at a time.

    functions: each takes the result of the one before; the first takes x.
    segments: how many parts of about equal length, from 1 to the number of functions.

    >>> import morpho as mo
    >>> layers = [mo.exp, mo.tanh, mo.sin, mo.cos]
    >>> mo.checkpoint_sequential(layers, 2, mo.zeros(1)).item()
    0.7711...
    """
    functions = list(functions)
    count = as_whole(segments)
    if count is None or not 1 <= count <= max(len(functions), 1):
        raise fail(ArgumentError, "checkpoint_sequential", f"{segments!r} segments cannot be made of "
                                                           f"{len(functions)} functions",
                   "give a number from 1 to that of the functions")
    bounds = [len(functions) * number // count for number in range(count + 1)]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        run = _chain(functions[start:stop])
        x = run(x) if number == count - 1 else checkpoint(run, x)
    return x


def _chain(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return run
