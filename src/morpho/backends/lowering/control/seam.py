"""Interface between the lowering of control flow and that of a graph."""

from __future__ import annotations

from typing import Protocol

from morpho.base.dims import Shape
from morpho.base.dtypes import DType
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.program.program import Program
from morpho.program.view import View


class Lowering(Protocol):
    """Interface of the lowering of the graph around, and of a body."""

    program: Program
    views: dict[int, list[View]]
    rows_there: dict[int, View]

    def new_slot(self, shape: Shape, dtype: DType, kind: str = "temporary") -> View: ...
    def view(self, node: Node) -> View: ...
    def materialised(self, node: Node) -> Node: ...
    def copy(self, source: View | float | int | bool, target: View, node: Node) -> None: ...
    def number_or_place(self, node: Node) -> View | float | int | bool: ...
    def inside(self, graph: Graph, outside: set[int], own: frozenset[int]) -> Lowering: ...
    def lower_nodes(self) -> None: ...


def place_of(low: Lowering, node: Node) -> View:
    """Where a value lies, in memory of its own where it is a constant."""
    return low.view(low.materialised(node))
