"""Traces on disk: a function whose text is known by a digest (a model's file) is not traced again by another process.

The key is that digest with everything else that decides what a trace gives: the arguments' structure, shapes and
dtypes, settings, the machine, and the source of what makes plans; that of what traces is part of the digest. The value
is the traced graph as JSON, with where each captured tensor is found in what the digest is of. Of what was read only
the ends are looked at (`ir/deferred.py`): they must be those of the call, and the plan's must be the same; anything odd
is refused, and the function traced anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.backends.code.compiler import code
from morpho.backends.driver import threads
from morpho.base import settings
from morpho.base.dtypes import DType
from morpho.base.errors import MorphoError
from morpho.base.machine import machine
from morpho.base.target import current_isa
from morpho.base.trees import LEAF
from morpho.ir.deferred import DeferredGraph
from morpho.ir.graph import Graph, Unkeyed
from morpho.ir.node import Node, make
from morpho.ir.op import REGISTRY, Spec, foreign
from morpho.ir.serialise import dump_nodes, dump_value, load_value
from morpho.passes import pipeline
from morpho.runtime import thresholds
from morpho.runtime.code_cache.disk import Damaged

MOST_BYTES = 1 << 24  # of one trace: a longer one is not worth keeping


@dataclass
class StoredTrace:
    """Content of one file."""

    graph: Graph
    structure: Any  # of the results
    outputs: int
    captured: list[Any]  # how the owner of the function finds each tensor
    notes: list[str]


def trace_key(identity: str, structure: Any, specs: Sequence[Any]) -> str | None:
    """The disk key of a trace; None where none is kept: somebody's own operations may take part in it, or passes are
    being checked."""
    if code.disk_cache() is None or foreign or pipeline.checking:
        return None
    sizes = [(str(dtype), [dump_value(size) for size in shape], strides, device)
             for dtype, shape, strides, device in specs]
    here = machine()
    parts = ("trace", identity, structure, sizes, settings.get().code_key(), threads.wanted_threads(),
             here.cores, here.l1_bytes, here.l2_bytes, thresholds.current(), np.__version__,
             code.code_key("trace", current_isa()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


# -- writing ---------------------------------------------------------------------------------------------------------
def save(key: str, trace: StoredTrace) -> bool:
    """Keep a trace, and say whether the disk took it."""
    disk, graph = code.disk_cache(), trace.graph
    if disk is None or graph.written is None or any(node.op.name == "counted" for node in graph.nodes):
        return False
    place = {node.serial: number for number, node in enumerate(graph.written)}
    lines: dict[str, int] = {}
    try:
        content = {
            "digest": graph.digest(), "nodes": dump_nodes(graph.written, graph.outputs).decode(),
            "order": [place[node.serial] for node in graph.nodes],
            "lines": [lines.setdefault(node.origin, len(lines)) for node in graph.written], "texts": list(lines),
            "parameters": [{name: dump_value(value) for name, value in node.attributes.items()}
                           for node in graph.parameters],
            "results": [[dump_value(tuple(spec.shape)), spec.dtype.name] for spec in graph.specs],
            "structure": _dumped_tree(trace.structure), "outputs": trace.outputs, "captured": trace.captured,
            "notes": trace.notes}
    except (MorphoError, Unkeyed):
        return False
    data = json.dumps(content, separators=(",", ":")).encode()
    return len(data) <= MOST_BYTES and disk.put(key, data)


def _dumped_tree(tree: Any) -> Any:
    if tree is LEAF:
        return "*"
    if tree[0] in ("tuple", "list"):
        return [tree[0], [_dumped_tree(item) for item in tree[1]]]
    if tree[0] == "dict" and all(type(name) is str for name, _ in tree[1]):
        return ["dict", [[name, _dumped_tree(item)] for name, item in tree[1]]]
    raise Unkeyed("a result that is no tensor")


# -- reading ---------------------------------------------------------------------------------------------------------
def load(key: str) -> StoredTrace | None:
    """The trace of a key, its ends checked; None when the disk has none that holds."""
    disk = code.disk_cache()
    data = disk.get(key) if disk is not None else None
    if disk is None or data is None:
        return None
    try:
        return _trace(json.loads(data))
    except (Damaged, MorphoError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as reason:
        disk.reject(key, f"it holds no trace ({reason})")
        return None


def _trace(content: Any) -> StoredTrace:
    texts = [_checked(text, str) for text in content["texts"]]
    lines = [texts[_checked(number, int)] for number in content["lines"]]
    order = [_checked(number, int) for number in content["order"]]
    if sorted(order) != list(range(len(lines))):
        raise Damaged("nodes in no order")
    parameters = [_parameter(row, number) for number, row in enumerate(content["parameters"])]
    specs = [Spec(load_value(shape), _dtype(["dtype", name])) for shape, name in content["results"]]
    graph = DeferredGraph(_checked(content["nodes"], str).encode(), _checked(content["digest"], str), parameters, specs,
                          lines, order)
    structure, outputs = _loaded_tree(content["structure"]), _checked(content["outputs"], int)
    if outputs != _leaves(structure) or outputs > len(specs):
        raise Damaged("results of another number")
    return StoredTrace(graph, structure, outputs, _checked(content["captured"], list),
                       [_checked(note, str) for note in content["notes"]])


def _parameter(row: Any, number: int) -> Node:
    attributes = {_checked(name, str): load_value(value) for name, value in row.items()}
    if not {"index", "shape", "dtype"} <= attributes.keys() <= {"index", "shape", "dtype", "strides"}:
        raise Damaged("a parameter that is none")
    return make(REGISTRY["parameter"], (), attributes, origin="")


def _loaded_tree(row: Any) -> Any:
    if row == "*":
        return LEAF
    kind, content = row
    if kind == "dict":
        return ("dict", tuple((_checked(name, str), _loaded_tree(item)) for name, item in content))
    if kind not in ("tuple", "list"):
        raise Damaged("an unknown kind of tree")
    return (kind, tuple(_loaded_tree(item) for item in content))


def _leaves(tree: Any) -> int:
    if tree is LEAF:
        return 1
    return sum(_leaves(item[1] if tree[0] == "dict" else item) for item in tree[1])


def _dtype(row: Any) -> DType:
    found = load_value(row)
    if not isinstance(found, DType):
        raise Damaged("an unknown dtype")
    return found


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Damaged(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def reject(key: str, reason: str) -> None:
    """Remove a trace that was read, because it is not what it should be."""
    disk = code.disk_cache()
    if disk is not None:
        disk.reject(key, reason)
