"""Gradients as ordinary nodes: the pull-back of a program, from each op's `vjp`, and the functions built on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from typing import Any

from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.trees import flatten
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.op import JOINT, NoGradient
from morpho.ir.views import literal
from morpho.ops.algebra import add, constant, constant_like, expand, zeros_like
from morpho.ops.control import records as control
from morpho.passes.canonical import inline_without_gradient
from morpho.tensor.autodiff.arguments import Inputs, matching, positions_among, wanted_positions
from morpho.tensor.autodiff.regions import Regions
from morpho.tensor.core import Tensor


def gradients_of(outputs: Sequence[Node], cotangents: Sequence[Node], leaves: Sequence[Node],
                 seen: Callable[[Node, Node], Node] | None = None) -> list[Node | None]:
    """The gradient of sum(output * cotangent) with respect to each leaf; None where nothing depends on it. `seen(node,
    gradient)` looks at each gradient when all its parts are there, and gives the one to go on with."""
    regions = Regions(inline_without_gradient(Graph(tuple(outputs))))
    graph = regions.graph
    leaves = [regions.became.get(leaf.serial, leaf) for leaf in leaves]
    needed: set[int] = {leaf.serial for leaf in leaves}
    for node in graph.nodes:
        if any(child.serial in needed for child in node.inputs) and "stops" not in node.op.properties:
            needed.add(node.serial)
    gathered: dict[int, list[Node]] = {}
    gradients: dict[int, Node] = {}
    joint: dict[int, dict[int, Node]] = {}  # of a node with several outputs and one gradient of all: theirs by number
    for node, cotangent in zip(graph.outputs, cotangents, strict=True):
        gathered.setdefault(node.serial, []).append(cotangent)
    for node in reversed(graph.nodes):
        if node.serial not in needed:
            continue
        if node.serial in gathered:
            gradient = total(gathered[node.serial])
            for known in regions.was[node.serial] if seen is not None else ():  # marks of checkpoints have others
                gradient = seen(known, gradient)  # type: ignore[misc]
            gradients[node.serial] = gradient
            if JOINT in node.op.properties:
                joint[node.serial] = {0: gradient}
            elif node.op.name == "pick" and JOINT in node.inputs[0].op.properties:
                joint.setdefault(node.inputs[0].serial, {})[node["index"]] = gradient
                continue
        if node.serial in joint:
            pairs = zip(node.inputs, _joint_parts(node, joint[node.serial], regions), strict=True)
        elif node.serial in gathered and any(child.serial in needed for child in node.inputs):
            pairs = zip(*_parts(node, gradients[node.serial], regions), strict=True)
        else:
            continue
        for child, part in pairs:
            if part is not None and child.serial in needed:
                gathered.setdefault(child.serial, []).append(part)
    return [gradients.get(leaf.serial) for leaf in leaves]


def _joint_parts(node: Node, found: Mapping[int, Node], regions: Regions) -> Sequence[Node | None]:
    """The gradients of a node's inputs from those of all its outputs, None where nothing depends on one."""
    reached = regions.reached(node, next(iter(found.values())))
    cotangents = tuple(found.get(index) for index in range(len(node.outputs)))
    parts: Sequence[Node | None] = node.op.vjp(reached, cotangents)  # type: ignore[operator]
    return parts[:len(node.inputs)]  # a collective that is computed again takes a token, which its first run may not


def _parts(node: Node, gradient: Node, regions: Regions) -> tuple[Sequence[Node], Sequence[Node | None]]:
    """The inputs of a node, and the gradient of each."""
    if node.op.name == "pick":
        node = node.inputs[0]  # the record that says why is that of the op with several results
    if not isinstance(node.op.vjp, NoGradient):
        reached = regions.reached(node, gradient)  # what a checkpoint does not keep is computed again
        return node.inputs, node.op.vjp(reached, gradient)
    if node.op.vjp.missing:
        raise fail(ArgumentError, "grad", f"{node.op.name} has no gradient: {node.op.vjp.reason}",
                   "detach it, or give the op a vjp", line=node.origin)
    return (), ()  # zero by nature: integers, booleans, steps


def pull_back(outputs: Sequence[Node], cotangents: Sequence[Node], leaves: Sequence[Node]) -> list[Node]:
    """As `gradients_of`, with zeros where nothing depends on a leaf."""
    found = gradients_of(outputs, cotangents, leaves)
    return [zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, found, strict=True)]


control.set_pull_back(pull_back)


def total(parts: Sequence[Node]) -> Node:
    """The sum of the parts of a gradient. Those of slices that lie side by side along one axis are put side by side, so
    that n slices are written once and not added n times as wholes that are mostly zeros."""
    by_axis: dict[int, list[Node]] = {}
    rest: list[Node] = []
    for part in parts:
        axis = _axis_of_piece(part)
        (rest if axis is None else by_axis.setdefault(axis, [])).append(part)
    for axis, pieces in by_axis.items():
        rest += _side_by_side(pieces, axis)
    return reduce(add, rest)


def _axis_of_piece(part: Node) -> int | None:
    """The axis along which a part is zero but for one stretch, or None."""
    if part.op.name != "update" or not _is_zero(part.inputs[0]) or any(step != 1 for step in part["steps"]):
        return None
    shorter = [axis for axis, (size, whole) in enumerate(zip(part["sizes"], part.shape, strict=True)) if size != whole]
    sizes = (part.shape[shorter[0]], part["starts"][shorter[0]], part["sizes"][shorter[0]]) if shorter else ()
    return shorter[0] if len(shorter) == 1 and all(isinstance(size, int) for size in sizes) else None


def _is_zero(node: Node) -> bool:
    return literal(node) == 0  # type: ignore[no-any-return]


def _side_by_side(pieces: list[Node], axis: int) -> list[Node]:
    """Pieces along an axis as one, with zeros between them; as they are where there is only one, or two overlap."""
    ordered = sorted(pieces, key=lambda piece: piece["starts"][axis])
    ends = [piece["starts"][axis] + piece["sizes"][axis] for piece in ordered]
    if len(pieces) == 1 or any(end > after["starts"][axis] for end, after in zip(ends, ordered[1:], strict=False)):
        return pieces
    found: list[Node] = []
    place = 0
    for start, values in [*((piece["starts"][axis], piece.inputs[1]) for piece in ordered),
                          (ordered[0].shape[axis], None)]:
        if start > place:
            shape = tuple(start - place if d == axis else s for d, s in enumerate(ordered[0].shape))
            found.append(expand(constant(0, ordered[0].dtype), shape))
        if values is not None:
            found.append(values)
            place = start + values.shape[axis]
    return [build("concatenate", *found, axis=axis)]


# -- functions ---------------------------------------------------------------------------------------------------------
def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *,
                   has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives a scalar function's result and its gradient with respect to some arguments.

    `argnums` is one position or several; an argument may be a tree of tensors, and its gradient has the same form.
    Python's and NumPy's numbers, given directly or in a tree, are tensors for the function: floating ones have a
    gradient, integers and booleans are an error, as tensors of theirs are. None, strings and other things in a tree
    stay as they are. With `has_aux` the function returns (scalar, anything else), and the result is ((scalar, anything
    else), gradient).

    >>> mo.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(mo.ones(2), mo.asarray([3.0, 4.0]))[1][0].numpy()
    array([3., 4.], dtype=float32)
    """
    if not callable(function):
        raise fail(ArgumentError, "grad", f"{type(function).__name__} is not a function")
    wanted, alone = wanted_positions(argnums)

    @wraps(function, updated=())  # compile(dynamic=...) goes by the names of parameters
    def call(*arguments: Any, **named: Any) -> Any:
        positions = positions_among(wanted, len(arguments), bool(named))
        inputs = Inputs("grad", [arguments[i] for i in positions], is_recorded=True)
        changed = list(arguments)
        for position, tree in zip(positions, inputs.trees(inputs.values), strict=True):
            changed[position] = tree
        result = inputs.apply(function, *changed, **named)
        value = result[0] if has_aux else result
        if not isinstance(value, Tensor) or value.shape != ():
            raise fail(ArgumentError, "grad", "the function does not return a 0-dimensional tensor",
                       "reduce it with sum() or mean()")
        if not value.dtype.is_float:
            raise fail(DTypeError, "grad", f"the function returns a number of dtype {value.dtype}, which does not grow "
                                           "or fall",
                       "take mo.real(x) or mo.abs(x) of it" if value.dtype.is_complex else "convert with astype")
        parts, result = inputs.gradients(value, result)
        if parts is None:
            node = value.program()
            parts = [Tensor.of_node(one) for one in pull_back([node], [constant_like(node, 1)], inputs.nodes)]
        gradients = inputs.trees(parts)
        return result, gradients[0] if alone else tuple(gradients)

    return call


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *,
         has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function's scalar result with respect to its first argument, or to those of `argnums`.

    >>> import morpho as mo
    >>> mo.grad(lambda x: (x * x).sum())(mo.asarray([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    >>> mo.grad(mo.grad(lambda x: x ** 3))(mo.asarray(2.0)).item()
    12.0
    """
    both = value_and_grad(function, argnums, has_aux=has_aux)

    @wraps(function, updated=())
    def call(*arguments: Any, **named: Any) -> Any:
        result, found = both(*arguments, **named)
        return (found, result[1]) if has_aux else found

    return call


def vjp(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """A function's result, and the function that pulls a cotangent of it back to one of each argument.

    >>> value, pull = mo.vjp(lambda x: x * x, mo.asarray([1.0, 2.0]))
    >>> pull(mo.asarray([1.0, 10.0]))[0].numpy()
    array([ 2., 40.], dtype=float32)
    """
    inputs = Inputs("vjp", arguments)
    result = inputs.apply(function, *inputs.trees(inputs.values))
    outputs: list[Any] = []
    structure = flatten(result, outputs)
    nodes = [output.program() for output in outputs]  # now: later they may be other values

    def pull(cotangent: Any) -> tuple[Any, ...]:
        parts = matching("vjp", cotangent, structure, outputs)
        found = pull_back(nodes, parts, inputs.nodes)
        return tuple(inputs.trees([Tensor.of_node(node) for node in found]))

    return result, pull
