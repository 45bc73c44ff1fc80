"""Matrices of derivatives: `mo.jacfwd`, `mo.jacrev`, `mo.hessian`, and products with them: `mo.hvp`.

A column of a Jacobian is a push-forward, a row a pull-back; all of them are made at once, as a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.dims import Size, product
from morpho.base.dtypes import int64
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.base.trees import flatten, unflatten
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, permute, reshape, zeros_like
from morpho.ops.batching import batch_of, in_front, row_leaf
from morpho.ops.collective import come_after, of_a_body
from morpho.tensor.autodiff.arguments import Inputs, positions_among, wanted_positions, with_numbers
from morpho.tensor.autodiff.forward import jvp, push_forward
from morpho.tensor.autodiff.gradient import grad, gradients_of
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor

Blocks = Callable[[Sequence[Node], Sequence[Node]], list[list[Node]]]  # results, arguments -> block of each pair


def jacfwd(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *,
           has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of a function, in forward mode: one push-forward for each element of the argument, all at once.

    For a result of shape (m,) and an argument of shape (n,) it has shape (m, n): result first. Where the result or the
    argument is a tree, there is one Jacobian for each pair: the tree of the result, with that of the argument in place
    of each tensor. `argnums` and `has_aux` are those of `mo.grad`. Prefer it where the argument is the smaller one.

    >>> mo.jacfwd(lambda x: x * x)(mo.asarray([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return _jacobian("jacfwd", function, argnums, has_aux, _columns)


def jacrev(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *,
           has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of a function, in reverse mode: one pull-back for each element of the result, all at once.

    The same as `mo.jacfwd`, which see; prefer it where the result is the smaller one.

    >>> mo.jacrev(lambda x: mo.asarray([1.0, 2.0]) * x.sum())(mo.ones(3)).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    return _jacobian("jacrev", function, argnums, has_aux, _rows)


def hessian(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *,
            has_aux: bool = False) -> Callable[..., Any]:
    """The second derivatives of a function: the Jacobian in forward mode of that in reverse mode.

    Of a scalar function of a tensor of shape (n,) it has shape (n, n).

    >>> mo.hessian(lambda x: (x ** 3).sum())(mo.asarray([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(function, argnums, has_aux=has_aux), argnums, has_aux=has_aux)


def hvp(function: Callable[..., Any], arguments: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The Hessian of a scalar function times tangents, without the Hessian: one for each argument.

    >>> mo.hvp(lambda x: (x ** 3).sum(), (mo.asarray([1.0, 2.0]),), (mo.asarray([1.0, 10.0]),))[0].tolist()
    [6.0, 120.0]
    """
    if not isinstance(arguments, tuple | list):
        raise fail(ArgumentError, "hvp", f"the arguments are {type(arguments).__name__}, not a tuple of them",
                   "write mo.hvp(f, (x,), (v,))")
    slopes = grad(function, argnums=tuple(range(len(arguments))))
    return tuple(jvp(slopes, arguments, tangents)[1])


def _jacobian(operation: str, function: Callable[..., Any], argnums: Any, has_aux: bool,
              blocks: Blocks) -> Callable[..., Any]:
    if not callable(function):
        raise fail(ArgumentError, operation, f"{type(function).__name__} is not a function")
    wanted, alone = wanted_positions(argnums)

    def call(*arguments: Any, **named: Any) -> Any:
        positions = positions_among(wanted, len(arguments), bool(named))
        inputs = Inputs(operation, [arguments[i] for i in positions])
        changed = list(arguments)
        for position, tree in zip(positions, inputs.trees(inputs.values), strict=True):
            changed[position] = tree
        answer = inputs.apply(function, *changed, **named)
        result = answer[0] if has_aux else answer
        outputs: list[Any] = []
        structure = flatten(with_numbers(result), outputs)
        nodes = [asarray(output).program() for output in outputs]
        _check_real(operation, [*nodes, *inputs.nodes])
        parts = []
        for line in blocks(nodes, inputs.nodes):
            trees = inputs.trees([Tensor.of_node(node) for node in line])
            parts.append(trees[0] if alone else tuple(trees))
        found = unflatten(structure, iter(parts))
        return (found, answer[1]) if has_aux else found

    return call


def _check_real(operation: str, nodes: Sequence[Node]) -> None:
    for node in nodes:
        if not node.dtype.is_float:
            raise fail(DTypeError, operation, f"dtype {node.dtype} has no Jacobian of its own",
                       "give and take the real and the imaginary part as two tensors" if node.dtype.is_complex
                       else "convert with astype")


def _columns(results: Sequence[Node], arguments: Sequence[Node]) -> list[list[Node]]:
    blocks: list[list[Node]] = [[] for _ in results]
    for argument in arguments:
        count = product(argument.shape)
        leaf = row_leaf(argument.shape, argument.dtype, argument.device)
        with of_a_body() as groups:
            pushed = [zeros_like(result) if one is None else one
                      for one, result in zip(push_forward(results, {argument.serial: leaf}), results, strict=True)]
        found = batch_of(pushed, {leaf.serial: _unit_rows(argument, count)}, count)
        come_after(groups, [node for node, _ in found])
        for line, one in zip(blocks, found, strict=True):
            node = in_front(*one, count)
            rank = len(node.shape) - 1
            line.append(reshape(permute(node, (*range(1, rank + 1), 0)), (*node.shape[1:], *argument.shape)))
    return blocks


def _rows(results: Sequence[Node], arguments: Sequence[Node]) -> list[list[Node]]:
    blocks = []
    for result in results:
        count = product(result.shape)
        leaf = row_leaf(result.shape, result.dtype, result.device)
        with of_a_body() as groups:
            pulled = [zeros_like(argument) if one is None else one
                      for one, argument in zip(gradients_of([result], [leaf], arguments), arguments, strict=True)]
        found = batch_of(pulled, {leaf.serial: _unit_rows(result, count)}, count)
        come_after(groups, [node for node, _ in found])
        blocks.append([reshape(in_front(*one, count), (*result.shape, *argument.shape))
                       for one, argument in zip(found, arguments, strict=True)])
    return blocks


def _unit_rows(node: Node, count: Size) -> Node:
    """For each element a row that is 1 there and 0 elsewhere."""
    rows, columns = (build("iota", shape=(count, count), axis=axis, dtype=int64) for axis in (0, 1))
    return reshape(cast(build("equal", rows, columns), node.dtype), (count, *node.shape))
