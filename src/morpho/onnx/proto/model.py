"""A model as plain records: graphs of nodes with attributes, made from the messages of a file and checked.

What is checked here holds for every file that goes further: names are defined before they are used (so there are no
cycles), no name is defined twice, and every list is as long as the file has bytes for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.onnx.proto.dtypes import ElementType
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.tensors import MOST_ELEMENTS, Folder, array_of, dims_of
from morpho.onnx.proto.wire import Message, decode, numbers

MOST_BYTES = 1 << 34
DEFAULT_DOMAINS = ("", "ai.onnx")
OLDEST, NEWEST = 1, 28  # opsets of ai.onnx whose operators are written down


@dataclass(frozen=True)
class Constant:
    """A tensor of the file, with its element type (NumPy has not all of them)."""

    array: np.ndarray[Any, Any]
    kind: ElementType


@dataclass(frozen=True)
class TypeInfo:
    """Declared type of a value: `tensor`, `sequence`, `optional` or `map`; the element type's number; sizes, which
    are numbers, names, or None where nothing is said, and None altogether where even their count is open."""

    form: str
    element: int
    shape: tuple[int | str | None, ...] | None = None
    inner: TypeInfo | None = None


@dataclass(frozen=True)
class Value:
    """An input or output of a graph."""

    name: str
    type: TypeInfo | None


@dataclass(frozen=True)
class Node:
    """One operation. `attributes` are numbers, texts, lists of them, `Constant` and `Graph`; `references` are names of
    attributes of the function that the node stands in."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    references: dict[str, str]
    overload: str = ""

    @property
    def label(self) -> str:
        """The operation's name with its domain."""
        return self.op if self.domain in DEFAULT_DOMAINS else f"{self.domain}.{self.op}"


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be computed."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    initializers: dict[str, Constant]


@dataclass(frozen=True)
class Function:
    """A model-local function: a body of nodes, and attributes with defaults where there are any."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: dict[str, Any]
    nodes: tuple[Node, ...]
    opsets: dict[str, int]


@dataclass(frozen=True)
class Model:
    """A file: its graph, opsets by domain, functions by (domain, name, overload)."""

    graph: Graph
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)
    ir_version: int = 0
    producer: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    external: bool = False  # whether some of its data lie in other files


def read_bytes(path: Path) -> bytes:
    """The bytes of a model's file."""
    try:
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise refuse(f"{path.name} is not a file")
        if not size_bytes:
            raise refuse(f"{path.name} is empty")
        if size_bytes > MOST_BYTES:
            raise refuse(f"{path.name} has {size_bytes} bytes, more than {MOST_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise refuse(f"{path.name} cannot be read: {error.strerror}") from None


def parse_file(data: memoryview, name: str, folder: Path | None) -> Model:
    """The model of a file's bytes; errors name the file."""
    try:
        return parse_model(data, folder)
    except MorphoError as error:
        raise refuse(f"{name}: {error.message}" if folder is not None else error.message, error.hint) from None


def parse_model(data: memoryview, folder: Path | None = None) -> Model:
    """The model of a file's bytes; `folder` is where its external data lie."""
    found = decode(data, "Model")
    if "graph" not in found:
        raise refuse("the file holds no graph: it is no ONNX model")
    opsets = _opsets(found)
    opsets.setdefault("", OLDEST)  # files before version 3 have none
    if not OLDEST <= opsets[""] <= NEWEST:
        raise refuse(f"opset {opsets['']} of ai.onnx is not known; {OLDEST} to {NEWEST} are")
    reader = _Reader(Folder(folder))
    functions = [reader.function(message, opsets) for message in found.get("functions", [])]
    metadata = {entry.get("key", ""): entry.get("value", "") for entry in found.get("metadata_props", [])}
    graph = reader.graph(found["graph"], frozenset())
    return Model(graph, opsets, dict(functions), found.get("ir_version", 0), found.get("producer_name", ""), metadata,
                 reader.folder.is_used)


def _opsets(found: Message) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in found.get("opset_import", []):
        domain, version = entry.get("domain", ""), int(entry.get("version", 0))
        domain = "" if domain in DEFAULT_DOMAINS else domain
        if opsets.setdefault(domain, version) != version:
            raise refuse(f"two opsets of {domain or 'ai.onnx'} are named: {opsets[domain]} and {version}")
    return opsets


def _refuse_twice(names: Iterable[str], what: str) -> None:
    """An error if a name stands among the names more than once."""
    seen = Counter(names)
    if twice := [name for name, count in seen.items() if count > 1]:
        raise refuse(f"{what} have the same name, {twice[0]!r}")


class _Reader:
    """Messages to records."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def graph(self, found: Message, outer: frozenset[str]) -> Graph:
        graph = repr(found.get("name", ""))
        weights = [(message.get("name", ""), Constant(*array_of(message, self.folder)))
                   for message in found.get("initializer", [])]
        weights += [(message.get("values", {}).get("name", ""), self.sparse(message))
                    for message in found.get("sparse_initializer", [])]
        initializers = dict(weights)
        _refuse_twice((name for name, _ in weights), f"two weights of graph {graph}")
        inputs = tuple(self.value(message) for message in found.get("input", []))
        outputs = tuple(self.value(message) for message in found.get("output", []))
        _refuse_twice((value.name for value in inputs), f"two inputs of graph {graph}")
        own = initializers.keys() | {value.name for value in inputs}
        defined = outer | own
        nodes = self.nodes(found.get("node", []), defined, own)
        made = defined.union(*(node.outputs for node in nodes))
        for value in outputs:
            if value.name and value.name not in made:
                raise refuse(f"output {value.name!r} of graph {graph} is computed by no node")
        return Graph(found.get("name", ""), nodes, inputs, outputs, initializers)

    def nodes(self, messages: list[Message], outer: frozenset[str] | set[str],
              own: frozenset[str] | set[str]) -> tuple[Node, ...]:
        """Nodes, each after those that make its inputs: a cycle and an unknown name are errors, and so is a name that
        is computed twice, or is one of the graph's own inputs and weights."""
        defined, nodes = set(outer), []
        made: set[str] = set()
        for message in messages:
            node = self.node(message, frozenset(defined))
            for name in node.inputs:
                if name and name not in defined:
                    raise refuse(f"node {node.name or node.op!r} needs {name!r}, which nothing before it computes: the "
                                 "graph has a cycle, a wrong order, or a name that is not there")
            for name in node.outputs:
                if name and name in made:
                    raise refuse(f"{name!r} is computed by two nodes, or twice by one")
                if name and name in own:
                    raise refuse(f"{name!r} is computed by node {node.name or node.op!r}, and is an input or a weight")
                made.update(filter(None, [name]))
            defined.update(node.outputs)
            nodes.append(node)
        return tuple(nodes)

    def node(self, found: Message, outer: frozenset[str]) -> Node:
        attributes: dict[str, Any] = {}
        references: dict[str, str] = {}
        for message in found.get("attribute", []):
            name = message.get("name", "")
            if name in attributes or name in references:
                raise refuse(f"node {found.get('name') or found.get('op_type', '')!r} has the attribute {name!r} twice")
            if reference := message.get("ref_attr_name", ""):
                references[name] = reference
            else:
                attributes[name] = self.attribute(message, outer)
        domain = found.get("domain", "")
        return Node(found.get("op_type", ""), "" if domain in DEFAULT_DOMAINS else domain, found.get("name", ""),
                    tuple(found.get("input", ())), tuple(found.get("output", ())), attributes, references,
                    found.get("overload", ""))

    def attribute(self, found: Message, outer: frozenset[str]) -> Any:
        """The value of an attribute, by its type, or by which field is there (early files have no type)."""
        kind = found.get("type", 0) or next((number for number, name in ATTRIBUTES.items() if name in found), 0)
        name = ATTRIBUTES.get(kind)
        if name is None:
            raise refuse(f"attribute {found.get('name', '')!r} has the type {kind}, which is not known")
        if name in LISTS_OF_NUMBERS:
            return [number.item() for number in numbers(found, name)]
        value = found.get(name, DEFAULTS.get(name))
        if value is None:
            raise refuse(f"attribute {found.get('name', '')!r} has no value")
        if name == "s":
            return _readable(value)
        if name == "strings":
            return [_readable(text) for text in value]
        made: list[Any]
        if name in ("t", "tensors"):
            made = [Constant(*array_of(message, self.folder)) for message in (value if name == "tensors" else [value])]
        elif name in ("g", "graphs"):
            made = [self.graph(message, outer) for message in (value if name == "graphs" else [value])]
        elif name in ("sparse_tensor", "sparse_tensors"):
            made = [self.sparse(message) for message in (value if name == "sparse_tensors" else [value])]
        elif name in ("tp", "type_protos"):
            made = [self.type(message) for message in (value if name == "type_protos" else [value])]
        else:
            return value
        return made if name.endswith("s") else made[0]

    def sparse(self, found: Message) -> Constant:
        """A sparse tensor made dense; its size is bounded."""
        dims = dims_of(found, "a sparse tensor")
        values, kind = array_of(found.get("values", {}), self.folder)
        places = array_of(found.get("indices", {}), self.folder)[0].astype(np.int64)
        count = int(np.prod(dims))
        if count > MOST_ELEMENTS // 8:
            raise refuse(f"a sparse tensor of shape {dims} is too large to be made dense")
        if places.ndim == 2 and places.shape[1] == len(dims):
            places = places @ np.asarray([int(np.prod(dims[axis + 1:])) for axis in range(len(dims))], np.int64)
        if places.shape != (len(values),) or (len(places) and not 0 <= places.min() <= places.max() < count):
            raise refuse("a sparse tensor has indices that are not places in it")
        dense = np.zeros(count, values.dtype)
        dense[places] = values
        return Constant(dense.reshape(dims), kind)

    def value(self, found: Message) -> Value:
        return Value(found.get("name", ""), self.type(found["type"]) if "type" in found else None)

    def type(self, found: Message) -> TypeInfo | None:
        for form in ("sequence", "optional"):
            if f"{form}_type" in found:
                inner = self.type(found[f"{form}_type"].get("elem_type", {}))
                return TypeInfo(form, inner.element if inner else 0, None, inner)
        if "map_type" in found:
            return TypeInfo("map", 0)
        tensor = found.get("tensor_type") or found.get("sparse_tensor_type")
        if tensor is None:
            return None
        shape = None
        if "shape" in tensor:
            shape = tuple(dim.get("dim_value", dim.get("dim_param") or None)
                          for dim in tensor["shape"].get("dim", []))
        return TypeInfo("tensor", tensor.get("elem_type", 0), shape)

    def function(self, found: Message, opsets: dict[str, int]) -> tuple[tuple[str, str, str], Function]:
        inputs, outputs = tuple(found.get("input", ())), tuple(found.get("output", ()))
        nodes = self.nodes(found.get("node", []), frozenset(inputs), frozenset(inputs))
        made = {name for node in nodes for name in node.outputs} | set(inputs)
        if missing := [name for name in outputs if name not in made]:
            raise refuse(f"output {missing[0]!r} of function {found.get('name', '')!r} is computed by no node")
        defaults = {message.get("name", ""): self.attribute(message, frozenset())
                    for message in found.get("attribute_proto", [])}
        domain = found.get("domain", "")
        name = found.get("name", "")
        made_function = Function(name, domain, inputs, outputs, tuple(found.get("attribute", ())), defaults, nodes,
                                 {**opsets, **_opsets(found)})
        return ("" if domain in DEFAULT_DOMAINS else domain, name, found.get("overload", "")), made_function


ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs",
              11: "sparse_tensor", 12: "sparse_tensors", 13: "tp", 14: "type_protos"}
LISTS_OF_NUMBERS = ("floats", "ints")
DEFAULTS: dict[str, Any] = {"f": 0.0, "i": 0, "s": b"", "strings": [], "tensors": [], "graphs": []}


def _readable(data: Any) -> str:
    return str(data, "utf-8", "replace")
