"""`cond` and `switch`: branches of a program, of which one is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morpho.base.checks import as_whole
from morpho.base.dtypes import bool_, int64
from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import unflatten
from morpho.ir.node import Node, asked_for, make
from morpho.ops.algebra import cast
from morpho.ops.collective import come_after, of_a_body
from morpho.ops.control import records as control
from morpho.tensor.autodiff.autograd import settle
from morpho.tensor.control.body_trace import Traced, check_tensors, closed, leaves_of, trace
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor
from morpho.tensor.state.trace import current_trace


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` where `pred` is true, else `false_fun(*operands)`; only that one is computed.

    Both must give values of the same shapes and dtypes. With a Python bool the other function is not even traced.

    >>> x = mo.asarray(-2.0)
    >>> mo.cond(x > 0, lambda: mo.sqrt(x), lambda: x * x).item()
    4.0
    """
    if isinstance(pred, bool | np.bool):
        return (true_fun if pred else false_fun)(*operands)
    tensor = pred if isinstance(pred, Tensor) else asarray(pred)
    if tensor.shape != () or tensor.dtype is not bool_:
        raise fail(ArgumentError, "cond", f"the condition is {tensor.dtype}{list(tensor.shape)}, not one bool",
                   "compare single numbers, or use mo.any or mo.all; for elements one by one, mo.where")
    return _chosen("cond", cast(tensor.node, int64), [false_fun, true_fun], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`: only that one is computed. An index outside is taken as the nearest one.

    >>> mo.switch(mo.asarray(1), [lambda x: x, lambda x: 10 * x], mo.asarray(4)).item()
    40
    """
    if not branches:
        raise fail(ArgumentError, "switch", "there are no branches")
    number = as_whole(index) if not isinstance(index, Tensor) else None
    if number is not None:
        return branches[min(max(number, 0), len(branches) - 1)](*operands)
    tensor = index if isinstance(index, Tensor) else asarray(index)
    if tensor.shape != () or not tensor.dtype.is_integer:
        raise fail(ArgumentError, "switch", f"the index is {tensor.dtype}{list(tensor.shape)}, not a whole number")
    return _chosen("switch", cast(tensor.node, int64), branches, operands)


def _chosen(operation: str, which: Node, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    tensors, structure = leaves_of(tuple(operands))
    check_tensors(operation, structure, "an operand")
    nodes = [tensor.node for tensor in tensors]
    structures = list(structure[-1])
    specs = [[node.spec for node in nodes]]
    with asked_for() as own, of_a_body() as groups:
        traces, states = _traced(operation, branches, structures, specs)
    first = traces[0].structure
    for number, other in enumerate(traces):
        check_tensors(operation, other.structure, "the result of a branch")
        if other.structure != first:
            raise fail(ArgumentError, operation, f"branch 0 returns {first}, branch {number} {other.structure}",
                       "all branches must return the same structure")
    results = [[*one.outputs, *one.written] for one in traces]
    bodies, constants = closed([(one.leaves, out) for one, out in zip(traces, results, strict=True)], own)
    outer = [*nodes, *[_read(state).node for state in states]]
    made = make(control.SWITCH, (which, *outer, *constants), {"branches": tuple(bodies)})
    found = [Tensor.of_node(node) for node in control.results(made)] if results[0] else []
    come_after(groups, [tensor.node for tensor in found])
    settle(groups, found)
    count = len(traces[0].outputs)
    for state, value in zip(states, found[count:], strict=True):
        _trace().write(state, value)
    return unflatten(first, iter(found[:count]))


def _traced(operation: str, branches: Sequence[Callable[..., Any]], structures: Sequence[Any],
            specs: Sequence[Any]) -> tuple[list[Traced], list[Any]]:
    """All branches, each with every state that any of them writes."""
    states: list[Any] = []
    while True:
        traces = [trace(branch, structures, specs, operation, states) for branch in branches]
        more = {id(state): state for one in traces for state in one.states}
        if len(more) == len(states):
            return traces, states
        states = list(more.values())


def _trace() -> Any:
    found = current_trace()
    assert found is not None
    return found


def _read(state: Any) -> Tensor:
    return _trace().read(state)  # type: ignore[no-any-return]
