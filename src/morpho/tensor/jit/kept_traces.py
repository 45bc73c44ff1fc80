"""Traces of functions that are known by a digest, kept on disk for the next process (`runtime/plans/stored_trace.py`).

A function whose owner gives it a `TraceSource` promises that the digest and the arguments decide what it computes; its
captured tensors are those that the source can name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from morpho.backends.registry import HOST
from morpho.base.errors import MorphoError
from morpho.base.shapes import contiguous_strides
from morpho.base.trees import LEAF
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.runtime.code_cache.disk import Damaged
from morpho.runtime.plans import stored_trace
from morpho.runtime.plans.stored_trace import StoredTrace
from morpho.tensor.core import Tensor
from morpho.tensor.state.trace import Trace


class TraceSource(Protocol):
    """Source of a function: a model's file."""

    identity: str  # a digest of all of it

    def name_of(self, tensor: Tensor) -> Any:
        """How a captured tensor is found, as JSON; None where that cannot be said."""
        ...

    def tensor_of(self, name: Any) -> Tensor:
        """The tensor of such a name; a `MorphoError` or one of Python's where it is none."""
        ...

    def is_kept(self) -> None:
        """There is a kept trace of a call: what else the next process needs may be kept too."""
        ...


@dataclass
class Found:
    """A kept trace with its tensors."""

    graph: Graph
    structure: Any
    outputs: int
    captured: list[Tensor]
    notes: list[str]


class KeptTrace:
    """The place of one call's trace."""

    def __init__(self, source: TraceSource, structure: Any, specs: Sequence[tuple[Any, ...]]) -> None:
        self.source, self.specs = source, specs
        plain = all(tree is LEAF for _, tree in structure) and all(spec[-1] in ("", HOST) for spec in specs)
        self.key = stored_trace.trace_key(source.identity, len(structure), specs) if plain else None

    def load(self) -> Found | None:
        """The trace, if there is one that fits the call."""
        found = stored_trace.load(self.key) if self.key is not None else None
        if found is None:
            return None
        captured: list[Tensor] = []
        try:
            captured = [self.source.tensor_of(name) for name in found.captured]
            fits = all(self._fits(node, captured) for node in found.graph.parameters)
        except (Damaged, MorphoError, ValueError, TypeError, LookupError, AttributeError):
            fits = False
        if not fits:
            self.reject("it is of another call")
            return None
        self.source.is_kept()
        return Found(found.graph, found.structure, found.outputs, captured, found.notes)

    def reject(self, reason: str) -> None:
        """Remove what was found, because it does not mean what it should."""
        assert self.key is not None, "something was found"
        stored_trace.reject(self.key, reason)

    def _fits(self, node: Node, captured: Sequence[Tensor]) -> bool:
        """Whether what a parameter is read as is what the call gives there."""
        number = node["index"] - len(self.specs)
        if number < 0:
            dtype, shape, strides, _ = self.specs[node["index"]]
            return bool(node.dtype is dtype and node.shape == shape and node.attributes.get("strides") == strides)
        memory = captured[number].elements()
        strides = node.attributes.get("strides", contiguous_strides(memory.shape))
        return bool(node.dtype is memory.dtype and node.shape == memory.shape and strides == memory.strides)

    def save(self, graph: Graph, structure: Any, outputs: int, captured: Sequence[Tensor], trace: Trace) -> None:
        """Keep a trace that depends on nothing but the source and the arguments."""
        if self.key is None or trace.states or trace.assumed or trace.counted:
            return
        names = [self.source.name_of(tensor) for tensor in captured]
        if any(name is None for name in names):
            return
        if stored_trace.save(self.key, StoredTrace(graph, structure, outputs, names, list(trace.notes))):
            self.source.is_kept()
