"""`mo.onnx.load`: a file becomes a callable; what is not supported is listed at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from morpho.base.dtypes import bfloat16
from morpho.base.errors import ArgumentError, fail
from morpho.onnx.operators.attributes import faults
from morpho.onnx.operators.table import lookup
from morpho.onnx.proto.model import Graph, Model, Node, read_bytes
from morpho.onnx.run.coded import Coded, bfloat16_array, to_array
from morpho.onnx.run.kept import ModelFile
from morpho.onnx.run.network import Network
from morpho.onnx.run.values import Empty
from morpho.tensor.core import Tensor

MOST_SHOWN = 8  # of the faults of a file's nodes


def load(path: str | os.PathLike[str], *, dynamic: Mapping[str, Any] | bool = False) -> Network:
    """Load a model from an ONNX file; call the result like a function.

    The first call with new shapes compiles. `dynamic=True` makes the sizes that the file names (`batch`, `sequence`)
    symbols of one program, `dynamic={"batch": (1, 64)}` those that are listed, within bounds; a model that cannot be
    compiled so is compiled for each shape, which `stats` counts. External data are read from the model's folder only.
    Operators that Morpho does not have are an error that lists all of them.

    >>> path = mo.onnx.save(lambda x: mo.softmax(x), "rows.onnx", mo.ones((2, 2)))
    >>> mo.onnx.load(path)(mo.zeros((2, 2))).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    try:
        file = Path(path)
    except TypeError:
        raise fail(ArgumentError, "onnx", f"{type(path).__name__} is no path", "use mo.onnx.loads for bytes") from None
    if not file.exists():
        raise fail(ArgumentError, "onnx", f"there is no file {str(path)!r}")
    return _network(ModelFile(read_bytes(file), file.name, file.resolve().parent, _refuse_unsupported), dynamic)


def loads(data: bytes, *, dynamic: Mapping[str, Any] | bool = False) -> Network:
    """Load a model from the bytes of an ONNX file, which must hold all of its data.

    >>> path = mo.onnx.save(lambda x: x * x, "square.onnx", mo.ones(2))
    >>> mo.onnx.loads(open(path, "rb").read())([3.0, 4.0]).tolist()
    [9.0, 16.0]
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise fail(ArgumentError, "onnx", f"{type(data).__name__} is not bytes", "use mo.onnx.load for a path")
    return _network(ModelFile(bytes(data), "model", check=_refuse_unsupported), dynamic)


def _network(file: ModelFile, dynamic: Mapping[str, Any] | bool) -> Network:
    header = file.header()
    return Network(file.parse() if header is None else header, file.name, dynamic, file)


def _refuse_unsupported(model: Model, name: str) -> None:
    missing = unsupported(model)
    if missing:
        listed = ", ".join(f"{op} ({count})" for op, count in sorted(missing.items()))
        many = f"{len(missing)} operator{'s' * (len(missing) > 1)}"
        raise fail(ArgumentError, "onnx", f"{name} uses {many} that Morpho does not have: {listed}")
    wrong = dict.fromkeys(fault for node, opsets in _nodes_with_opsets(model) if not _is_local(model, node)
                          for fault in faults(node, opsets.get(node.domain, 1)))
    if wrong:
        more = f"; and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
        raise fail(ArgumentError, "onnx", f"{name}: {'; '.join([*wrong][:MOST_SHOWN])}{more}")


def unsupported(model: Model) -> dict[str, int]:
    """Operators of a model that Morpho does not have, with how many nodes use them.

    >>> from morpho.onnx.proto.model import Graph, Model, Node
    >>> node = Node("Frobnicate", "", "", (), ("y",), {}, {})
    >>> mo.onnx.unsupported(Model(Graph("g", (node, node), (), (), {}), {"": 17}))
    {'Frobnicate': 2}
    """
    return dict(Counter(node.label for node, opsets in _nodes_with_opsets(model)
                        if not _is_local(model, node)
                        and lookup(node.domain, node.op, opsets.get(node.domain, 1)) is None))


def _is_local(model: Model, node: Node) -> bool:
    """Whether the model itself says what the node's operator is."""
    return (node.domain, node.op, node.overload) in model.functions


def _nodes_with_opsets(model: Model) -> Iterable[tuple[Node, dict[str, int]]]:
    """All nodes of a model with the opsets that hold for them."""
    for node in _all_nodes(model.graph.nodes):
        yield node, model.opsets
    for function in model.functions.values():
        for node in _all_nodes(function.nodes):
            yield node, {**model.opsets, **function.opsets}


def _all_nodes(nodes: Iterable[Node]) -> Iterable[Node]:
    """Nodes, and those of bodies in them."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Graph):
                    yield from _all_nodes(item.nodes)


def to_numpy(value: Any) -> Any:
    """A result of a network as NumPy's: an array, a list of them for a sequence, None for an empty optional. Types that
    NumPy has not are arrays of ml_dtypes.

    >>> mo.onnx.to_numpy(mo.asarray([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if isinstance(value, Tensor):
        return bfloat16_array(value) if value.dtype is bfloat16 else value.numpy()
    if isinstance(value, list):
        return [to_numpy(item) for item in value]
    if isinstance(value, Coded):
        return to_array(value)
    return None if isinstance(value, Empty) else value
