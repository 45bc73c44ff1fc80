"""Forward mode: the push-forward of a program, from each op's `jvp` or from its `vjp`, and `mo.jvp`, `mo.linearize`.

An elementwise op scales the tangent by its derivative, which is what its `vjp` does to a cotangent. For any other op
the pull-back is linear in the cotangent, and its own pull-back is the push-forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import flatten, unflatten
from morpho.ir.node import Node, in_place_of, make, rebuild, toposort
from morpho.ir.op import JOINT, NoGradient, Spec
from morpho.ir.views import literal
from morpho.ops.algebra import add, constant_like, zeros_like
from morpho.ops.batching import row_leaf
from morpho.tensor.autodiff.arguments import Inputs, matching, with_numbers
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.autodiff.gradient import gradients_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor, realise

Tangent = Node | None  # None stands for zero


def push_forward(outputs: Sequence[Node], tangents: Mapping[int, Node]) -> list[Tangent]:
    """How the outputs change along tangents of leaves, given by serial; None where they do not."""
    known: dict[int, tuple[Tangent, ...]] = {serial: (tangent,) for serial, tangent in tangents.items()}
    for node in toposort(outputs, set(known)):
        given = [known[child.serial][0] for child in node.inputs]
        if node.op.name == "pick":
            known[node.serial] = (known[node.inputs[0].serial][node["index"]],)
        elif ("stops" in node.op.properties or all(one is None for one in given)
              or not any(spec.dtype.is_inexact for spec in node.outputs)):  # integers and booleans have no tangent
            known[node.serial] = (None,) * len(node.outputs)
        else:
            known[node.serial] = tuple(in_place_of(node, partial(_rule, tangents=given)))
    return [known[node.serial][0] for node in outputs]


def _rule(node: Node, tangents: Sequence[Tangent]) -> Sequence[Tangent]:
    """The tangents of a node's outputs."""
    rule = node.op.vjp
    if node.op.jvp is not None:
        return node.op.jvp(node, tangents, push_forward)
    if isinstance(rule, NoGradient):
        if node.op.composition is not None:
            along = {child.serial: one for child, one in zip(node.inputs, tangents, strict=True) if one is not None}
            return push_forward([node.op.composition(node)], along)
        if rule.missing:
            raise fail(ArgumentError, "jvp", f"{node.op.name} has no gradient: {rule.reason}",
                       "detach it, or give the op a jvp", line=node.origin)
        return [None] * len(node.outputs)  # zero by nature: integers, booleans, steps
    if node.op.kind == "elementwise" and node.dtype.is_float:
        same = [one is None or child.dtype is node.dtype for child, one in zip(node.inputs, tangents, strict=True)]
        if all(same):
            return [_scaled(node, rule, tangents)]
    joint = JOINT in node.op.properties

    def pull(inputs: Sequence[Node], cotangents: Any) -> Sequence[Tangent]:
        found: Sequence[Tangent] = rule(make(node.op, inputs, node.attributes),
                                        cotangents if joint else cotangents[0])
        return found

    return transposed(pull, node.inputs, node.outputs, tangents)


def _scaled(node: Node, rule: Callable[..., Any], tangents: Sequence[Tangent]) -> Tangent:
    """The sum of tangents times derivatives: of one element there is one derivative, which has no transpose."""
    total: Tangent = None
    for number, tangent in enumerate(tangents):
        part = None if tangent is None else rule(node, tangent)[number]
        if part is not None:
            total = part if total is None else add(total, part)
    return total


Linear = Callable[[Sequence[Node], Any], Sequence[Tangent]]  # of values, linear in what comes second


def transposed(linear: Linear, nodes: Sequence[Node], specs: Sequence[Spec], given: Sequence[Tangent],
               at: float = 1) -> list[Tangent]:
    """Transpose of a linear function, applied to given values: the function takes nodes, and values of these
    specs, in which it is linear; what is given is arranged like its results.

    It is differentiated on leaves that stand for the nodes, however long the programs below those are. A linear
    function may look at what it takes, to answer 0 for 0 times infinity: its slope is that `at` 1."""
    inside = [node if literal(node) is not None else row_leaf(node.shape, node.dtype, node.device) for node in nodes]
    leaves = [row_leaf(spec.shape, spec.dtype) if spec.dtype.is_inexact else None for spec in specs]
    pairs = [(part, one) for part, one in zip(linear(inside, tuple(leaves)), given, strict=True)
             if part is not None and one is not None]
    known = [leaf for leaf in leaves if leaf is not None]
    found = gradients_of([part for part, _ in pairs], [one for _, one in pairs], known)
    values = {leaf.serial: node for leaf, node in zip(inside, nodes, strict=True) if leaf is not node}
    settled = iter(with_leaves(found, values | {leaf.serial: constant_like(leaf, at) for leaf in known}))
    return [None if leaf is None else next(settled) for leaf in leaves]


def with_leaves(nodes: Sequence[Tangent], values: Mapping[int, Node]) -> list[Tangent]:
    """The nodes with values in place of leaves, given by serial. Only what was made after a leaf can depend on it."""
    first = min(values, default=0)
    done: dict[int, Node] = dict(values)
    stack = [node for node in nodes if node is not None]
    while stack:
        node = stack[-1]
        waiting = [] if node.serial in done or node.serial < first else [
            child for child in node.inputs if child.serial > first and child.serial not in done]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if node.serial not in done and node.serial > first:
            done[node.serial] = rebuild(node, [done.get(child.serial, child) for child in node.inputs])
    return [None if node is None else done.get(node.serial, node) for node in nodes]


# -- functions ---------------------------------------------------------------------------------------------------------
def jvp(function: Callable[..., Any], arguments: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """A function's result, and how it changes along tangents of its arguments.

    function: of tensors or trees of them.
    arguments, tangents: a sequence each; a tangent is arranged like its argument.

    >>> mo.jvp(lambda x: x * x, (mo.asarray(3.0),), (mo.asarray(2.0),))[1].item()
    12.0
    """
    for one, what in ((arguments, "arguments"), (tangents, "tangents")):
        if not isinstance(one, tuple | list):
            raise fail(ArgumentError, "jvp", f"the {what} are {type(one).__name__}, not a tuple of them",
                       "write mo.jvp(f, (x,), (v,))")
    traced = _Traced("jvp", function, arguments)
    return traced.result, traced.arranged(traced.push(traced.along(tangents)))


def linearize(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Callable[..., Any]]:
    """A function's result, and the linear function from tangents of its arguments to that of its result.

    What the linear function needs of the function's own values is computed once, together with the result, and kept;
    inside a compiled function all is one program anyway.

    >>> value, push = mo.linearize(mo.sin, mo.asarray(0.0))
    >>> value.item(), push(mo.asarray(2.0)).item(), push(mo.asarray(-1.0)).item()
    (0.0, 2.0, -1.0)
    """
    traced = _Traced("linearize", function, arguments)
    leaves = [row_leaf(node.shape, node.dtype, node.device) for node in traced.inputs.nodes]
    pushed = traced.push(leaves)
    order = toposort(pushed)
    moving = {leaf.serial for leaf in leaves}
    for node in order:
        if any(child.serial in moving for child in node.inputs):
            moving.add(node.serial)
    kept = {child.serial: child for node in order if node.serial in moving for child in node.inputs
            if child.serial not in moving and child.inputs and len(child.outputs) == 1}
    values = {serial: Tensor.of_node(node) for serial, node in kept.items()}
    if tracing.current is None and not tracing.transformed and not tracing.batched:
        realise(*[one for one in traced.outputs if isinstance(one, Tensor)], *values.values())

    def push(*tangents: Any) -> Any:
        done = {leaf.serial: one for leaf, one in zip(leaves, traced.along(tangents), strict=True)}
        done |= {serial: value.program() for serial, value in values.items()}
        for node in toposort(pushed, set(done)):
            done[node.serial] = rebuild(node, [done[child.serial] for child in node.inputs])
        return traced.arranged([done[node.serial] for node in pushed])

    return traced.result, push


class _Traced:
    """A function called on arguments to differentiate it along tangents of them."""

    def __init__(self, operation: str, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        if not callable(function):
            raise fail(ArgumentError, operation, f"{type(function).__name__} is not a function")
        self.operation = operation
        self.inputs = Inputs(operation, arguments)
        self.result = self.inputs.apply(function, *self.inputs.trees(self.inputs.values))
        self.outputs: list[Any] = []
        self.structure = flatten(with_numbers(self.result), self.outputs)
        self.nodes = [asarray(output).program() for output in self.outputs]  # now: later they may be other values

    def along(self, tangents: Sequence[Any]) -> list[Node]:
        """The tangents, one for each leaf of the arguments."""
        inputs, first = self.inputs, 0
        if len(tangents) != len(inputs.structures):
            raise fail(ArgumentError, self.operation,
                       f"{len(inputs.structures)} arguments have {len(tangents)} tangents")
        found: list[Node] = []
        for tangent, structure, width in zip(tangents, inputs.structures, inputs.widths, strict=True):
            found += matching(self.operation, with_numbers(tangent), structure, inputs.leaves[first:first + width])
            first += width
        return found

    def push(self, tangents: Sequence[Node]) -> list[Node]:
        along = {leaf.serial: tangent for leaf, tangent in zip(self.inputs.nodes, tangents, strict=True)}
        found = push_forward(self.nodes, along)
        return [zeros_like(node) if one is None else one for node, one in zip(self.nodes, found, strict=True)]

    def arranged(self, nodes: Sequence[Node]) -> Any:
        return unflatten(self.structure, iter([Tensor.of_node(node) for node in nodes]))
