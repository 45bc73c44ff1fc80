"""A graph as bytes, and back: what backends compile to that keep no code of their own, and what travels between hosts.

Lines of JSON-like lists, one per node; no data leaves (their elements are inputs), no user lines. Reading believes
nothing: operations must be registered, numbers of inputs must lie before their users, and every node is inferred anew.

>>> from morpho.base.dtypes import float32
>>> from morpho.ir.node import build
>>> x = build("parameter", index=0, shape=(2, 3), dtype=float32)
>>> graph = Graph((build("exp", x),))
>>> load_graph(dump_graph(graph)).digest() == graph.digest()
True
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.dims import Dim, Size
from morpho.base.dtypes import BY_NAME, DType
from morpho.base.errors import ArgumentError, fail
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, make
from morpho.ir.op import REGISTRY

MOST_BYTES = 1 << 28  # of a graph's text


def dump_graph(graph: Graph) -> bytes:
    """The structure of a graph as bytes that are the same in every process."""
    return dump_nodes(graph.nodes, graph.outputs)


def dump_nodes(nodes: Sequence[Node], outputs: Sequence[Node]) -> bytes:
    """The same in an order that is given, inputs before users."""
    numbers: dict[int, int] = {}
    rows: list[Any] = []
    for number, node in enumerate(nodes):
        numbers[node.serial] = number
        attributes = {name: dump_value(value) for name, value in sorted(node.attributes.items())}
        rows.append([node.op.name, [numbers[child.serial] for child in node.inputs], attributes])
    return json.dumps([rows, [numbers[node.serial] for node in outputs]], separators=(",", ":")).encode()


def load_graph(data: bytes, lines: Sequence[str] | None = None) -> Graph:
    """The graph of those bytes; its nodes are `written` in their order, each at its line where lines are given."""
    if len(data) > MOST_BYTES:
        raise fail(ArgumentError, "load", f"a graph of {len(data)} bytes is larger than any that is written")
    try:
        rows, outputs = json.loads(data)
        nodes: list[Node] = []
        for name, inputs, attributes in rows:
            if name not in REGISTRY:
                raise fail(ArgumentError, "load", f"the graph holds an operation {name!r} that is not registered here")
            children = [nodes[_index(i, len(nodes))] for i in inputs]
            nodes.append(make(REGISTRY[name], children, {key: load_value(value) for key, value in attributes.items()},
                              origin=None if lines is None else lines[len(nodes)]))
        return Graph(tuple(nodes[_index(i, len(nodes))] for i in outputs), written=None if lines is None else nodes)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise fail(ArgumentError, "load", f"the bytes hold no graph ({type(error).__name__}: {error})") from error


def _index(number: Any, count: int) -> int:
    if type(number) is not int or not 0 <= number < count:
        raise ValueError("a node that is read before it is there")
    return number


def dump_value(value: Any) -> Any:
    """An attribute as JSON: numbers, text and None as they are, all else as a tagged list."""
    if value is None or type(value) in (int, bool, str):
        return value
    if isinstance(value, tuple):
        return ["tuple", *[dump_value(item) for item in value]]
    if isinstance(value, DType):
        return ["dtype", value.name]
    if isinstance(value, Dim):
        return ["size", [[list(monomial), coefficient] for monomial, coefficient in value.terms]]
    if isinstance(value, float):
        return ["float", float(value).hex()]
    if isinstance(value, complex):
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, Body):
        return ["body", dump_graph(value.graph).decode()]
    raise fail(ArgumentError, "save", f"an attribute of type {type(value).__name__} cannot be written")


def load_value(value: Any) -> Any:
    """The attribute again."""
    if not isinstance(value, list):
        return value
    tag, *rest = value
    if tag == "tuple":
        return tuple([load_value(item) for item in rest])
    if tag == "dtype":
        return BY_NAME[rest[0]]
    if tag == "size":
        return _size(rest[0])
    if tag == "float":
        return float.fromhex(rest[0])
    if tag == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if tag == "body":
        return Body(load_graph(rest[0].encode()).outputs)
    raise ValueError(f"an unknown kind of attribute {tag!r}")


def _size(rows: Any) -> Size:
    total: Size = 0
    for monomial, coefficient in rows:
        term: Size = coefficient
        for name, low, high in monomial:
            term = term * Dim(name, low, high)
        total = total + term
    return total
