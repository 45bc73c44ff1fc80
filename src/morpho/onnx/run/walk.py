"""The walk over a graph's nodes: values by name, operators from the table, bodies and model-local functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.ir.node import written_at
from morpho.onnx.operators.table import lookup
from morpho.onnx.proto.dtypes import BFLOAT16
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.model import Constant, Function, Graph, Model, Node
from morpho.onnx.run.call import Call
from morpho.onnx.run.coded import Coded
from morpho.onnx.run.values import Array, NeedsValue, bfloat16, of_constant
from morpho.tensor.core import Tensor

MALFORMED = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, RecursionError)
MOST_CALLS = 64  # functions in functions: one that calls itself would never end


class Constants:
    """The constants of a model as values, each made once, so that weights are packed once."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Constant, Any]] = {}
        self._arrays: dict[int, Array] = {}

    def value(self, constant: Constant) -> Any:
        kept = self._values.get(id(constant))
        if kept is None:
            value = of_constant(constant)
            if isinstance(value, Tensor):
                value.realise()
                if constant.kind is not BFLOAT16:
                    self._arrays[id(value)] = constant.array
            kept = self._values[id(constant)] = constant, value
        return kept[1]

    def pairs(self) -> list[tuple[Constant, Any]]:
        """The constants with the values that were made of them."""
        return list(self._values.values())

    def array(self, value: Tensor) -> Array | None:
        return self._arrays.get(id(value))

    def prepare(self, graph: Graph) -> None:
        """Make all constants of a graph and of the bodies in it."""
        for constant in graph.initializers.values():
            self.value(constant)
        for node in graph.nodes:
            for value in node.attributes.values():
                for item in value if isinstance(value, list) else [value]:
                    if isinstance(item, Graph):
                        self.prepare(item)
                    elif isinstance(item, Constant):
                        self.value(item)


class Scope:
    """Values by name, with those of the surroundings behind them, and what each depends on."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.outer = outer

    def value(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise refuse(f"{name!r} is used, and nothing computes it")

    def source(self, name: str) -> frozenset[str]:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.sources.get(name, frozenset())
            scope = scope.outer
        return frozenset()


class GraphWalk:
    """One run of a model: traced, or as it goes, where values may be asked for."""

    def __init__(self, model: Model, constants: Constants, tracing: bool, counts: Counter[str], name: str = "") -> None:
        self.model, self.constants, self.tracing, self.counts = model, constants, tracing, counts
        self.name = name or "model"
        self.opsets = model.opsets
        self._bound: list[dict[str, Any]] = []  # attributes of the functions being called
        self._scope: Scope | None = None
        self.node: Node | None = None

    # -- what operators ask for --------------------------------------------------------------------------------------
    def known(self, value: Tensor) -> Array | None:
        return self.constants.array(value)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def body(self, graph: Graph, arguments: Sequence[Any]) -> list[Any]:
        scope, node = Scope(self._scope), self.node
        sources = self._sources(node) if node else frozenset[str]()
        try:
            return self.run(graph, arguments, scope, sources)
        finally:
            self._scope, self.node = scope.outer, node

    def _sources(self, node: Node) -> frozenset[str]:
        """The model's inputs on which those of a node depend."""
        if self._scope is None:
            return frozenset()
        return frozenset[str]().union(*(self._scope.source(name) for name in node.inputs if name))

    # -- the walk ------------------------------------------------------------------------------------------------------
    def run(self, graph: Graph, arguments: Sequence[Any], scope: Scope | None = None,
            sources: frozenset[str] = frozenset()) -> list[Any]:
        """The outputs of a graph for its inputs."""
        scope = scope or Scope()
        for name, constant in graph.initializers.items():
            scope.values[name] = self.constants.value(constant)
        for given, value in zip(arguments, graph.inputs):
            scope.values[value.name] = given
            scope.sources[value.name] = sources or frozenset({value.name})
        self._nodes(graph.nodes, scope)
        return [scope.value(value.name) for value in graph.outputs]

    def _nodes(self, nodes: Sequence[Node], scope: Scope) -> None:
        for node in nodes:
            self._scope, self.node = scope, node
            inputs = [scope.value(name) if name else None for name in node.inputs]
            try:
                with written_at(self._place(node)):
                    results = self._apply(node, inputs)
            except NeedsValue as need:
                self._tell_sources(need, scope, node)
                raise
            sources = frozenset[str]().union(*(scope.source(name) for name in node.inputs if name))
            for name, result in zip(node.outputs, results):
                if name:
                    scope.values[name] = result
                    scope.sources[name] = sources

    def _place(self, node: Node) -> str:
        """Where a kernel comes from, as `file:line` is for Python; exporters write paths for names: `/layer.0/Add`."""
        return f"{self.name}:{(node.name or node.label).strip('/').replace('/', '.')}"

    @staticmethod
    def _tell_sources(need: NeedsValue, scope: Scope, node: Node) -> None:
        """Note on which inputs of the model the value that is asked for depends."""
        if need.sources is None:
            asked = [name for name in node.inputs if name and scope.value(name) is need.value] or node.inputs
            need.sources = frozenset[str]().union(*(scope.source(name) for name in asked if name))

    def _apply(self, node: Node, inputs: list[Any]) -> Sequence[Any]:
        function = self.model.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return self._call(function, node, inputs)
        version = self.opsets.get(node.domain, 1)
        operator = lookup(node.domain, node.op, version)
        if operator is None:
            raise refuse(f"the operator {node.label} of opset {version} is not known")
        call = Call(node, self._attributes(node), version, self)
        try:
            results = operator(call, *inputs)
        except MorphoError:
            raise
        except MALFORMED as error:  # counts and kinds of inputs and attributes that no operator has
            told = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            raise call.error(f"its inputs or attributes are not what it takes ({told})") from error
        results = results if isinstance(results, tuple) else (results,)
        return [np.asarray(result) if isinstance(result, np.generic) else result for result in results]

    def _attributes(self, node: Node) -> dict[str, Any]:
        attributes = node.attributes
        if node.references:
            bound = self._bound[-1] if self._bound else {}
            attributes = {**attributes, **{name: bound[theirs] for name, theirs in node.references.items()
                                           if theirs in bound}}
        return {name: self._attribute(value) for name, value in attributes.items()}

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Constant):
            return self.constants.value(value)
        if isinstance(value, list) and value and isinstance(value[0], Constant):
            return [self.constants.value(item) for item in value]
        return value

    def _call(self, function: Function, node: Node, inputs: list[Any]) -> list[Any]:
        """A model-local function: its body with names of its own, and the node's attributes bound."""
        if len(self._bound) >= MOST_CALLS:
            raise refuse(f"functions call each other deeper than {MOST_CALLS}: {node.label} calls itself")
        inner, outer, opsets = Scope(), self._scope, self.opsets
        every = self._sources(node)
        for name, value in zip(function.inputs, [*inputs, *[None] * len(function.inputs)]):
            inner.values[name], inner.sources[name] = value, every
        self._bound.append({**function.defaults, **self._attributes(node)})
        self.opsets = {**self.model.opsets, **function.opsets}
        try:
            self._nodes(function.nodes, inner)
            return [inner.value(name) for name in function.outputs]
        finally:
            self._bound.pop()
            self._scope, self.node, self.opsets = outer, node, opsets


__all__ = ["Coded", "Constants", "GraphWalk", "bfloat16"]
