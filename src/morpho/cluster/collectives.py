"""Collectives on tensors: graph operations, lazy and compiled like any other, with gradients.

Every rank of the group calls the same ones in the same order. Inside `mo.compile` a function is cut at them and stays
one compiled function; outside of it they run at once, and so does `backward` through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster import world
from morpho.ops.collective import chained, set_order
from morpho.runtime.groups.group import REDUCTIONS, Group
from morpho.runtime.groups.registry import number_of
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.core import realise_once, uses_parameters
from morpho.tensor.state.trace import current_trace

set_order(lambda: None if (trace := current_trace()) is None else trace.collectives)


def all_reduce(x: Any, op: str = "sum", group: Group | None = None) -> mo.Tensor:
    """Sum, mean, min, max or product over the ranks, on every rank. Gradients flow through sum and mean.

    >>> mo.cluster.all_reduce([1.0, 2.0], "mean").numpy()
    array([1., 2.], dtype=float32)
    """
    if op not in REDUCTIONS:
        raise fail(ArgumentError, "all_reduce", f"the reduction {op!r} is unknown", "use " + ", ".join(REDUCTIONS))
    return _apply("all_reduce", x, group, op=op)


def all_gather(x: Any, axis: int = 0, group: Group | None = None) -> mo.Tensor:
    """Every rank's tensor, joined along an axis in the order of ranks; all have the same shape.

    >>> mo.cluster.all_gather(mo.ones((2, 3)), axis=1).shape
    (2, 3)
    """
    return _apply("all_gather", x, group, axis=_axis(x, axis), size=_group(group).size)


def reduce_scatter(x: Any, op: str = "sum", axis: int = 0, group: Group | None = None) -> mo.Tensor:
    """The sum or mean over ranks, of which each rank has its share along an axis.

    >>> mo.cluster.reduce_scatter(mo.ones(4)).numpy()
    array([1., 1., 1., 1.], dtype=float32)
    """
    return _apply("reduce_scatter", x, group, op=op, axis=_axis(x, axis), size=_group(group).size)


def all_to_all(x: Any, split_axis: int = 0, concat_axis: int = 0, group: Group | None = None) -> mo.Tensor:
    """Cut along one axis, part r for rank r; what comes is joined along another, in the order of ranks.

    >>> mo.cluster.all_to_all(mo.ones((4, 2)), 0, 1).shape
    (4, 2)
    """
    return _apply("all_to_all", x, group, axis=_axis(x, split_axis), joined=_axis(x, concat_axis),
                  size=_group(group).size)


def broadcast(x: Any, root: int = 0, group: Group | None = None) -> mo.Tensor:
    """The root's tensor, on every rank; all have its shape.

    >>> mo.cluster.broadcast([3.0]).item()
    3.0
    """
    chosen = _group(group)
    if not 0 <= root < chosen.size:
        raise fail(ArgumentError, "broadcast", f"rank {root} is not in a group of {chosen.size}")
    return _apply("broadcast_from", x, group, root=root, rank=chosen.rank)


def _group(group: Group | None) -> Group:
    return world.init() if group is None else group


def _axis(x: Any, axis: int) -> int:
    dimensions = mo.asarray(x).ndim
    if not -dimensions <= axis < dimensions:
        raise fail(ArgumentError, "collective", f"axis {axis} is out of range for {dimensions} dimensions")
    return axis % dimensions


def _apply(name: str, x: Any, group: Group | None, at_once: bool = True, **attributes: Any) -> mo.Tensor:
    tensor = mo.asarray(x)
    node = chained(name, tensor.program(), group=number_of(_group(group)), **attributes)
    found = mo.Tensor.of_node(node)
    if at_once or not is_differentiated(tensor):
        run_now(found)
    return found


def run_now(*tensors: mo.Tensor) -> None:
    """Compute tensors with collectives in their programs where they are written, outside of functions that are traced
    or transformed: ranks must not come to their collectives in the order in which values are asked for."""
    if current_trace() is None and tracing.body is None and not uses_parameters([each.program() for each in tensors]) \
            and not (tracing.transformed and any(map(is_differentiated, tensors))):
        realise_once(*tensors)


def gathered_late(x: mo.Tensor, group: Group | None) -> mo.Tensor:
    """`all_gather` along the first axis for a caller that calls `run_now` on what it computes from the result."""
    return _apply("all_gather", x, group, at_once=False, axis=0, size=_group(group).size)


@dataclass(frozen=True)
class Across:
    """The ranks among which parameters are shared out, as `Parameter.across` says it. refusal: why they cannot come
    together, where they cannot."""

    group: Group
    refusal: str = ""

    @property
    def size(self) -> int:
        return self.group.size

    def sum(self, x: mo.Tensor) -> mo.Tensor:
        return self._reduced(x, "sum")

    def max(self, x: mo.Tensor) -> mo.Tensor:
        return self._reduced(x, "max")

    def _reduced(self, x: mo.Tensor, op: str) -> mo.Tensor:
        if self.refusal:
            raise fail(ArgumentError, "clip_grad_norm", self.refusal)
        return x if self.size == 1 else all_reduce(x, op, self.group)
