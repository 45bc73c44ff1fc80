"""`mo.debug`: where NaN comes from. Results are looked at, and where one is not finite its program is run again, one
operation at a time, until one makes NaN or an infinity of finite numbers.

>>> with mo.debug.nans():
...     try:
...         mo.log(mo.asarray([2.0, 0.0]) - 1).sum().item()
...     except mo.errors.NotFinite as error:
...         print(error)
[log] 1 of 2 elements are not finite, the first, nan, at [1]; its operands are float32(2,) from -1 to 1. At ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from morpho.backends.reference import reference
from morpho.base import settings
from morpho.base.errors import NotFinite, fail
from morpho.base.settings import Within
from morpho.ir.graph import Graph
from morpho.ir.node import Node, toposort
from morpho.runtime.memory.buffer import Buffer
from morpho.runtime.plans.abstraction import abstract

__all__ = ["nans"]


class nans(Within):  # used like a function
    """In the block, or the decorated function, an operation that makes NaN or an infinity of finite numbers is an error
    that names it, its operands' ranges and your line; for values computed lazily and in compiled functions alike.

    every: look at every operation, one by one in NumPy (slow), not only where a result is not finite: NaN that a
        `where` hides is found too.

    A compiled step that fails so has changed no state: parameters are what they were. `MORPHO_NANS=results` does the
    same for a whole program.

    >>> @mo.debug.nans()
    ... def safe(x):
    ...     return mo.sqrt(x).item()
    >>> safe(mo.asarray(4.0))
    2.0
    """

    def __init__(self, every: bool = False) -> None:
        super().__init__(nans="all" if every else "results")


def _array(buffer: Buffer) -> np.ndarray:
    return reference.decode(buffer.numpy(), buffer.dtype)


def _finite(array: Any) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def check_nodes(nodes: Sequence[Node], buffers: Sequence[Buffer]) -> None:
    """Look at values just computed; an error where an operation below them is to blame."""
    if settings.get().nans == "all" or not all(_finite(_array(buffer)) for buffer in buffers):
        graph, inputs = abstract(nodes)
        check_graph(graph, inputs, buffers, {})


def check_graph(graph: Graph, inputs: Sequence[Buffer], results: Sequence[Buffer], sizes: Mapping[str, int],
                origins: Mapping[int, str] = MappingProxyType({})) -> None:
    """Look at the results of a program of numbered inputs; `origins` are its nodes' lines where others are wrong."""
    if settings.get().nans != "all" and all(_finite(_array(buffer)) for buffer in results):
        return
    _blame(graph.outputs, lambda node: _array(inputs[node["index"]]), sizes, origins)
    for node in graph.parameters:  # no operation is to blame: has NaN come in from outside?
        given = _array(inputs[node["index"]])
        if given.dtype.kind in "fc" and np.isnan(given).any():
            raise fail(NotFinite, "nans", f"a result is not finite: an input of {node.dtype}{node.shape} has NaN "
                                          f"already, {_where(np.isnan(given))}", "look at where it was made")


def _blame(outputs: Sequence[Node], leaf: Callable[[Node], Any], sizes: Mapping[str, int],
           origins: Mapping[int, str]) -> None:
    """Run operation by operation; values are dropped when the last one that reads them is done."""
    order = toposort(outputs)
    uses: dict[int, int] = {}
    for node in order:
        for child in node.inputs:
            uses[child.serial] = uses.get(child.serial, 0) + 1
    values: dict[int, Any] = {}
    for node in order:
        if node.op.name in ("parameter", "data"):
            values[node.serial] = leaf(node)
            continue
        operands = [values[child.serial] for child in node.inputs]
        found = values[node.serial] = reference.run_node(node, operands, sizes)
        parts = found if isinstance(found, tuple) else (found,)
        given = [part for operand in operands for part in (operand if isinstance(operand, tuple) else (operand,))]
        if node.inputs and not all(map(_finite, parts)) and all(map(_finite, given)):
            raise _verdict(node, parts, given, origins.get(node.serial, node.origin))
        for child in node.inputs:
            uses[child.serial] -= 1
            if not uses[child.serial]:
                values.pop(child.serial, None)


def _verdict(node: Node, parts: Sequence[Any], given: Sequence[Any], line: str) -> NotFinite:
    bad = next(part for part in parts if not _finite(part))
    place = np.argwhere(~np.isfinite(bad))[0].tolist()
    kinds = [spec.dtype for child in node.inputs for spec in child.outputs]
    ranges = ", ".join(f"{kind}{np.shape(array)} {_range(array)}" for array, kind in zip(given, kinds, strict=True))
    return fail(NotFinite, node.op.name, f"{int((~np.isfinite(bad)).sum())} of {bad.size} elements are not finite, the "  # type: ignore[return-value]
                                         f"first, {bad[tuple(place)]:g}, at {place}; its operands are {ranges}",
                "clip or shift the operand, or add a small number to it", line=line)


def _range(array: Any) -> str:
    if not array.size or array.dtype.kind not in "iuf":
        return "without a range"
    return f"from {array.min():.4g} to {array.max():.4g}"


def _where(mask: Any) -> str:
    return f"first at {np.argwhere(mask)[0].tolist()}, {int(mask.sum())} in all"


def __dir__() -> list[str]:
    return sorted(__all__)
