"""A graph that was written down, of which only the ends are known until somebody looks inside.

A plan that is found on disk needs the inputs and outputs of its graph, its digest and the user's lines, and no node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.base.python.lazy import cached_property
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.op import Spec
from morpho.ir.serialise import load_graph


class OtherGraph(ArgumentError):
    """A deferred graph differs from its description."""


class DeferredGraph(Graph):
    """The graph of `data` (`dump_nodes`), whose nodes are made when they are asked for.

    >>> from morpho.base.dtypes import float32
    >>> from morpho.ir.node import build
    >>> from morpho.ir.serialise import dump_graph
    >>> x = build("parameter", index=0, shape=(2, 3), dtype=float32)
    >>> graph = Graph((build("exp", x),))
    >>> later = DeferredGraph(dump_graph(graph), graph.digest(), [x], graph.specs, ["a.onnx:0", "a.onnx:1"], [0, 1])
    >>> later.specs == graph.specs, later.is_loaded, later.outputs == graph.outputs, later.is_loaded
    (True, False, True, True)
    """

    def __init__(self, data: bytes, digest: str, parameters: list[Node], specs: Sequence[Spec],
                 lines: Sequence[str], order: Sequence[int]) -> None:
        """`lines` are those of the nodes as `data` has them; `order` says where each node of the walk stands there."""
        self._data, self._digest, self._lines, self._order = data, digest, lines, order
        self.parameters = parameters
        self.specs = tuple(specs)

    @cached_property
    def _loaded(self) -> Graph:
        found = load_graph(self._data, self._lines)
        if (found.digest(), found.specs, found.parameters) != (self._digest, self.specs, self.parameters):
            raise fail(OtherGraph, "load", "a graph that was kept on disk is not the one that it says it is",
                       "remove the folder of compiled code: mo.settings.get().cache_path")
        return found

    @property
    def is_loaded(self) -> bool:
        """Whether somebody looked inside."""
        return "_loaded" in self.__dict__

    def __getattr__(self, name: str) -> Any:
        if name in ("outputs", "written"):
            return getattr(self._loaded, name)
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self._order)

    def line(self, number: int) -> str:
        """The user's line of a node of the walk."""
        return self._lines[self._order[number]]

    def digest(self) -> str:
        return self._digest
