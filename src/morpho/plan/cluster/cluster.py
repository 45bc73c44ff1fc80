"""Machines and the links between them, as frozen data.

>>> fast = Node("a", memory_bytes=64_000_000_000, memory_bytes_per_s=2e11, flops_per_s={"f32": 2e12})
>>> slow = Node("b", memory_bytes=16_000_000_000, memory_bytes_per_s=4e10, flops_per_s={"f32": 2e11})
>>> office = Cluster.uniform((fast, slow), bandwidth_bytes_per_s=mbit_per_s(1000), latency_s=0.0)
>>> office.link("a", "b").seconds(1_000_000)
0.008
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, ValueFault, fail

# Where a node has no rate for a type, that of the first of these it has: what hardware does with such weights.
COMPUTES_AS = {
    "q4": ("q4", "int8", "f16", "bf16", "f32"), "int8": ("int8", "f16", "bf16", "f32"),
    "f16": ("f16", "bf16", "f32"), "bf16": ("bf16", "f16", "f32"), "f32": ("f32",),
}


def mbit_per_s(megabits: float) -> float:
    """Bytes per second of a line sold in megabits: 1000 Mbit/s is 125 MB/s.

    >>> mbit_per_s(1000)
    125000000.0
    """
    return megabits * 1e6 / 8


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: memory, bandwidth of that memory, FLOP/s by dtype, and what was measured on it.

    `efficiency` scales the roofline for layers nobody has measured. `measured` maps `Layer.key` to the seconds of that
    layer (prefill, decode), which then replace the roofline. `group` is a label for people and files; which nodes are
    interchangeable is found from their figures and links (`Cluster.kinds`).
    """

    name: str
    memory_bytes: int
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    group: str = ""
    efficiency: float = 1.0
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rates = {f"flops_per_s[{dtype}]": rate for dtype, rate in self.flops_per_s.items()}
        for what, value in {"memory_bytes": self.memory_bytes, "memory_bytes_per_s": self.memory_bytes_per_s,
                            "efficiency": self.efficiency, **rates}.items():
            if not (math.isfinite(value) and value > 0):
                raise fail(ValueFault, "plan", f"node {self.name!r} has {what} = {value}", "give a positive number")
        for key, times in self.measured.items():
            if len(times) != 2 or not all(math.isfinite(seconds) and seconds >= 0 for seconds in times):
                raise fail(ValueFault, "plan", f"node {self.name!r} has measured[{key!r}] = {times}",
                           "give the seconds of a prompt and of a token, 0 or more")
        for dtype in self.flops_per_s:
            if dtype not in COMPUTES_AS:
                raise fail(ValueFault, "plan", f"node {self.name!r} has a rate for the unknown dtype {dtype!r}",
                           f"use {', '.join(COMPUTES_AS)}")
        if "f32" not in self.flops_per_s:
            raise fail(ValueFault, "plan", f"node {self.name!r} has no FLOP/s for f32", "every node needs that one")

    def rate(self, dtype: str) -> float:
        """FLOP/s with weights of a dtype: its own figure, or that of the type the hardware computes it as.

        >>> Node("a", 1, 1.0, {"f32": 1e12, "bf16": 4e12}).rate("q4")
        4000000000000.0
        """
        return next(self.flops_per_s[name] for name in COMPUTES_AS[dtype] if name in self.flops_per_s)

    def figures(self) -> tuple[Any, ...]:
        """Everything that matters for speed and memory: equal figures and links make nodes interchangeable."""
        return (self.memory_bytes, self.memory_bytes_per_s, tuple(sorted(self.flops_per_s.items())), self.efficiency,
                tuple(sorted((key, tuple(value)) for key, value in self.measured.items())))


@dataclass(frozen=True, slots=True)
class Link:
    """A direction of a line: `latency_s` plus bytes over bandwidth. No bandwidth means no line."""

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def seconds(self, size_bytes: float) -> float:
        """How long a message takes; infinite where there is no line."""
        if self.bandwidth_bytes_per_s <= 0:
            return math.inf
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes and the matrix of links: `bandwidth_bytes_per_s[i][j]` and `latency_s[i][j]` from node i to node j.

    A bandwidth of 0 means that i cannot send to j. The diagonal is ignored. Links may differ by direction.
    """

    nodes: tuple[Node, ...]
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]
    latency_s: tuple[tuple[float, ...], ...]
    name: str = "cluster"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise fail(ArgumentError, "plan", f"the cluster {self.name!r} has no nodes", "give at least one node")
        names = [node.name for node in self.nodes]
        for name in names:
            if names.count(name) > 1:
                raise fail(ArgumentError, "plan", f"two nodes are called {name!r}", "names are unique")
        for what in ("bandwidth_bytes_per_s", "latency_s"):
            matrix = getattr(self, what)
            if len(matrix) != len(names) or any(len(row) != len(names) for row in matrix):
                raise fail(ArgumentError, "plan", f"{what} is not a matrix of {len(names)} x {len(names)}",
                           "one row and one column per node")
            for row, name in zip(matrix, names):
                for value, other in zip(row, names):
                    if not (math.isfinite(value) and value >= 0):
                        raise fail(ValueFault, "plan", f"the link {name} -> {other} has {what} = {value}",
                                   "give a finite number, 0 or more")

    @staticmethod
    def uniform(nodes: Iterable[Node], bandwidth_bytes_per_s: float, latency_s: float, name: str = "cluster"
                ) -> Cluster:
        """The same link between every two nodes."""
        nodes = tuple(nodes)
        wide, late = ((float(value),) * len(nodes) for value in (bandwidth_bytes_per_s, latency_s))
        return Cluster(nodes, (wide,) * len(nodes), (late,) * len(nodes), name)

    @staticmethod
    def load(path: str | Path) -> Cluster:
        """The cluster a TOML file describes."""
        from morpho.plan.cluster.files import load_cluster

        return load_cluster(path)

    def index(self, name: str) -> int:
        """The position of a node; an unknown name is an error that lists the known ones."""
        for position, node in enumerate(self.nodes):
            if node.name == name:
                return position
        known = ", ".join(node.name for node in self.nodes)
        raise fail(ArgumentError, "plan", f"the cluster has no node {name!r}", f"its nodes are {known}")

    def node(self, name: str) -> Node:
        """A node by name."""
        return self.nodes[self.index(name)]

    def link(self, source: str, target: str) -> Link:
        """The link from one node to another."""
        i, j = self.index(source), self.index(target)
        return Link(source, target, self.bandwidth_bytes_per_s[i][j], self.latency_s[i][j])

    def without(self, names: Iterable[str]) -> Cluster:
        """The cluster when some nodes are gone."""
        gone = {self.index(name) for name in names}
        return self.subset([i for i in range(len(self.nodes)) if i not in gone])

    def subset(self, kept: Sequence[int]) -> Cluster:
        """The nodes at these positions, in this order, with their links."""
        def pick(matrix: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
            return tuple(tuple(matrix[i][j] for j in kept) for i in kept)

        nodes = tuple(self.nodes[i] for i in kept)
        return Cluster(nodes, pick(self.bandwidth_bytes_per_s), pick(self.latency_s), self.name)

    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Positions of interchangeable nodes: equal figures, equal links to all others and among themselves.

        >>> node = dict(memory_bytes=8, memory_bytes_per_s=1.0, flops_per_s={"f32": 1.0})
        >>> other = Node("b", **{**node, "memory_bytes": 9})
        >>> Cluster.uniform([Node("a", **node), other, Node("c", **node)], 1, 0).kinds()
        ((0, 2), (1,))
        """
        found: list[list[int]] = []
        for i in range(len(self.nodes)):
            for kind in found:
                if all(self._alike(i, j) for j in kind) and self._inside_equal([*kind, i]):
                    kind.append(i)
                    break
            else:
                found.append([i])
        return tuple(tuple(kind) for kind in found)

    def _lines(self, i: int, j: int) -> tuple[float, ...]:
        wide, late = self.bandwidth_bytes_per_s, self.latency_s
        return wide[i][j], late[i][j]

    def _alike(self, i: int, j: int) -> bool:
        if self.nodes[i].figures() != self.nodes[j].figures():
            return False
        others = [k for k in range(len(self.nodes)) if k not in (i, j)]
        return all(self._lines(i, k) == self._lines(j, k) and self._lines(k, i) == self._lines(k, j) for k in others)

    def _inside_equal(self, kind: list[int]) -> bool:
        return len({self._lines(i, j) for i in kind for j in kind if i != j}) <= 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(self)
        return data

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Cluster:
        """The cluster that `to_dict` described."""
        nodes = tuple(
            Node(**{**node, "measured": {key: tuple(pair) for key, pair in node.get("measured", {}).items()}})
            for node in data["nodes"]
        )
        wide, late = ([tuple(map(float, row)) for row in data[key]] for key in ("bandwidth_bytes_per_s", "latency_s"))
        return Cluster(nodes, tuple(wide), tuple(late), data.get("name", "cluster"))
