"""Arguments of an operator: its node's attributes, the opset, and ways to run bodies and to ask for values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from morpho.base.errors import MorphoError
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.model import Graph, Node
from morpho.onnx.run.values import Array, NeedsValue, whole
from morpho.tensor.core import Tensor


class Walk(Protocol):
    """The run of a graph that an operator stands in."""

    tracing: bool

    def body(self, graph: Graph, arguments: Sequence[Any]) -> list[Any]:
        """The outputs of a body for arguments; names of the surroundings are seen."""
        ...

    def known(self, value: Tensor) -> Array | None:
        """The array of a tensor that is a constant of the file."""
        ...

    def count(self, what: str) -> None:
        """Count something that a user may want to know of."""
        ...


class Call:
    """One use of an operator."""

    def __init__(self, node: Node, attributes: dict[str, Any], version: int, walk: Walk) -> None:
        self.node, self.attributes, self.version, self.walk = node, attributes, version, walk

    @property
    def op(self) -> str:
        return self.node.label

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is where the node does not say."""
        return self.attributes.get(name, default)

    def need(self, name: str) -> Any:
        """An attribute that has no default."""
        if name not in self.attributes:
            raise self.error(f"the attribute {name!r} is missing")
        return self.attributes[name]

    def choice(self, name: str, default: str, options: Sequence[str]) -> str:
        """A text attribute that is one of a few."""
        value = self.get(name, default)
        if value not in options:
            raise self.error(f"{name}={value!r} is none of {', '.join(options)}")
        return str(value)

    def static(self, value: Any, what: str) -> Array:
        """The value of something that decides a shape: known while tracing, or asked for, or `NeedsValue`."""
        if isinstance(value, np.ndarray):
            return value
        if not isinstance(value, Tensor):
            raise self.error(f"{what} is not a tensor")
        array = self.walk.known(value)
        if array is not None:
            return array
        if self.walk.tracing:
            raise NeedsValue(value, f"{self.op} needs the value of {what}")
        self.walk.count("host_values")
        return np.asarray(value.numpy())

    def integers(self, value: Any, what: str) -> list[Any]:
        """The numbers of a small static tensor of integers, symbols among them."""
        return whole(self.static(value, what))

    def axes(self, inputs: Sequence[Any], place: int, name: str = "axes") -> list[int] | None:
        """Axes, which are an attribute in early opsets and an input in later ones."""
        if len(inputs) > place and inputs[place] is not None:
            return [int(axis) for axis in self.integers(inputs[place], name)]
        given = self.get(name)
        return None if given is None else [int(axis) for axis in given]

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is out of range for {rank} dimensions")
        return axis + rank if axis < 0 else axis

    def body(self, name: str) -> Callable[..., list[Any]]:
        """A graph attribute as a function."""
        graph = self.need(name)
        if not isinstance(graph, Graph):
            raise self.error(f"the attribute {name!r} is not a graph")
        return lambda *arguments: self.walk.body(graph, arguments)

    def error(self, message: str) -> MorphoError:
        """An error of this node."""
        named = f" (node {self.node.name!r})" if self.node.name else ""
        return refuse(f"{self.op}{named}: {message}")
