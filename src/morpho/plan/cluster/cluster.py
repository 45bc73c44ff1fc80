"""Machines and the links between them, as frozen data.

>>> fast = Node("a", memory_bytes=64_000_000_000, memory_bytes_per_s=2e11, flops_per_s={"f32": 2e12})
>>> slow = Node("b", memory_bytes=16_000_000_000, memory_bytes_per_s=4e10, flops_per_s={"f32": 2e11})
>>> office = Cluster.uniform((fast, slow), bandwidth_bytes_per_s=mbit_per_s(1000), latency_s=0.0)
>>> office.link("a", "b").seconds(1_000_000)
0.008
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.plan.cluster.node import Link, Node, mbit_per_s  # noqa: F401 (the example above)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes and the matrix of links: `bandwidth_bytes_per_s[i][j]` and `latency_s[i][j]` from node i to node j.

    A bandwidth of 0 means that i cannot send to j. The diagonal is ignored. Links may differ by direction.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> cluster = plan.Cluster.uniform(nodes, 1e9, 1e-4)
    >>> cluster.link("a", "b").seconds(1_000_000), cluster.node("b").memory_bytes
    (0.0011, 8589934592)
    """

    nodes: tuple[Node, ...]
    bandwidth_bytes_per_s: tuple[tuple[float, ...], ...]
    latency_s: tuple[tuple[float, ...], ...]
    name: str = "cluster"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise fail(ArgumentError, "plan", f"the cluster {self.name!r} has no nodes", "give at least one node")
        names = [node.name for node in self.nodes]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise fail(ArgumentError, "plan", f"two nodes are called {twice!r}", "names are unique")
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
        from morpho.plan.cluster.files import read_cluster

        return Cluster(*read_cluster(path))

    @staticmethod
    def from_tables(data: Mapping[str, Any], file: str = "the cluster", name: str = "cluster") -> Cluster:
        """The cluster of tables as a TOML file holds them.

        >>> node = {"name": "a", "memory": "8GB", "memory_bandwidth": "20GB/s", "flops": "500GFLOP/s"}
        >>> network = {"bandwidth": "1Gbit/s", "latency": "1ms"}
        >>> Cluster.from_tables({"node": [node | {"count": 2}], "network": network}).link("a-1", "a-2").seconds(125_000)
        0.002
        """
        from morpho.plan.cluster.files import fields_of_tables

        return Cluster(*fields_of_tables(data, file, name))

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
        wide, late = np.array(self.bandwidth_bytes_per_s), np.array(self.latency_s)
        found: list[list[int]] = []
        by_figures: dict[tuple[Any, ...], list[list[int]]] = {}
        for i, node in enumerate(self.nodes):
            alike = by_figures.setdefault(node.figures(), [])
            # Equal to the first of a group in all links, and by the group's inner link: then equal to each of them.
            home = next((kind for kind in alike if all(
                _swap_changes_nothing(links, kind[0], i)
                and (len(kind) == 1 or links[kind[0], i] == links[kind[0], kind[1]]) for links in (wide, late))), None)
            if home is None:
                alike.append([i])
                found.append(alike[-1])
            else:
                home.append(i)
        return tuple(tuple(kind) for kind in found)

    def to_dict(self) -> dict[str, Any]:
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


def _swap_changes_nothing(links: np.ndarray, i: int, j: int) -> bool:
    """Whether two nodes have equal links to all others, from all others, and to each other."""
    other = np.ones(len(links), dtype=bool)
    other[[i, j]] = False
    return bool(links[i, j] == links[j, i] and (links[i, other] == links[j, other]).all()
                and (links[other, i] == links[other, j]).all())
