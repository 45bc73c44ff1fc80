"""A change of the cluster in words, and the plan that follows from it.

    drop node-3                      link a-b 10Gbit/s 0.2ms
    node-2 memory 64GB               node-2 memory_bandwidth 80GB/s
    node-2 flops 4TFLOP/s            node-2 efficiency 0.8

The name of a group stands for each of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.units import parse_bytes, parse_bytes_per_s, parse_flops_per_s, parse_seconds
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import Node
from morpho.plan.predict.plan import Plan
from morpho.plan.replan.resolve import resolve

FORMS = '"drop a", "link a-b 10Gbit/s 0.2ms", "a memory 64GB", "a memory_bandwidth 80GB/s", "a flops 4TFLOP/s", ' \
        '"a efficiency 0.8"'


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change and what comes of it: a plan, or the reason why there is none.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [answer] = plan.what_if(p, "a memory 64GB")
    >>> answer.change, answer.plan is not None
    ('a memory 64GB', True)
    """

    change: str
    plan: Plan | None
    problem: str = ""


def what_if(plan: Plan, *changes: str) -> list[WhatIf]:
    """The best plan after each change by itself, and, if there are several, after all of them together.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [answer.change for answer in plan.what_if(p, "a memory 64GB", "link a-b 1Gbit/s 2ms")]
    ['a memory 64GB', 'link a-b 1Gbit/s 2ms', 'all together']
    """
    clusters = [changed(plan.cluster, change) for change in changes]
    answers = [_after(plan, change, lambda cluster=cluster: cluster) for change, cluster in zip(changes, clusters)]  # type: ignore[misc]
    if len(changes) > 1:
        answers.append(_after(plan, "all together", lambda: _all_of(plan.cluster, changes)))
    return answers


def _all_of(cluster: Cluster, changes: Sequence[str]) -> Cluster:
    """Each change has a meaning by itself; after others a node of it may be gone."""
    for number, change in enumerate(changes):
        gone = [drop for drop in changes[:number] if drop.split()[0] == "drop"]
        try:
            cluster = changed(cluster, change)
        except ArgumentError:
            left = {name for node in cluster.nodes for name in (node.name, node.group)}
            if not gone or (change.split()[0] == "drop" and change.split()[1] in left):
                raise  # it is about nodes that are there, and drops the last of them
            drops = " or ".join(map(repr, gone))
            raise fail(ArgumentError, "plan", f"{change!r} is about a node that {drops} takes away",
                       "leave one of them out") from None
    return cluster


def _after(plan: Plan, change: str, cluster: Callable[[], Cluster]) -> WhatIf:
    try:
        return WhatIf(change, resolve(plan, cluster()))
    except MorphoError as error:
        return WhatIf(change, None, str(error))


def changed(cluster: Cluster, change: str) -> Cluster:
    """A cluster after a change in words.

    >>> node = dict(memory_bytes=8, memory_bytes_per_s=1.0, flops_per_s={"f32": 1.0})
    >>> pair = Cluster.uniform([Node("a", **node), Node("b", **node)], 1e6, 0.0)
    >>> changed(pair, "a memory 64GB").node("a").memory_bytes
    64000000000
    >>> changed(pair, "link a-b 1Gbit/s 2ms").link("b", "a").seconds(125_000_000)
    1.002
    """
    words = change.split()
    if len(words) == 2 and words[0] == "drop":
        return cluster.without(members(cluster, words[1], change))
    if len(words) in (3, 4) and words[0] == "link":
        return _with_link(cluster, words, change)
    if len(words) == 3 and words[1] in _FIELDS:
        names = members(cluster, words[0], change)
        value = _parsed(_FIELDS[words[1]][0], words[2], change)
        nodes = tuple(_FIELDS[words[1]][1](node, value) if node.name in names else node for node in cluster.nodes)
        return replace(cluster, nodes=nodes)
    raise fail(ArgumentError, "plan", f"what-if {change!r} is not understood", f"write one of {FORMS}")


def members(cluster: Cluster, name: str, change: str) -> list[str]:
    """A node, or the nodes of a group."""
    found = [node.name for node in cluster.nodes if node.name == name] or [
        node.name for node in cluster.nodes if node.group == name]
    if not found:
        raise fail(ArgumentError, "plan", f"what-if {change!r} names the unknown node {name!r}",
                   f"the nodes are {', '.join(node.name for node in cluster.nodes)}")
    return found


def _parsed(parse: Callable[[str], float], text: str, change: str) -> float:
    try:
        value = parse(text)
    except (MorphoError, ValueError):
        value = -1.0
    if value < 0 or (value == 0 and parse is not parse_seconds):
        raise fail(ArgumentError, "plan", f"what-if {change!r} has the value {text!r}", f"write one of {FORMS}")
    return value


def _with_link(cluster: Cluster, words: list[str], change: str) -> Cluster:
    bandwidth = _parsed(parse_bytes_per_s, words[2], change)
    latency = _parsed(parse_seconds, words[3], change) if len(words) == 4 else None
    known = {name for node in cluster.nodes for name in (node.name, node.group) if name}
    pair, parts = words[1], words[1].split("-")
    # Names may hold hyphens themselves: the right one is where both sides are known.
    splits = [("-".join(parts[:k]), "-".join(parts[k:])) for k in range(1, len(parts))]
    fitting = [split for split in splits if split[0] in known and split[1] in known]
    if len(fitting) != 1:
        raise fail(ArgumentError, "plan", f"what-if {change!r} does not name two nodes in {pair!r}",
                   f"write a-b with two of {', '.join(node.name for node in cluster.nodes)}")
    first, second = (members(cluster, name, change) for name in fitting[0])
    pairs = {(cluster.index(a), cluster.index(b)) for a in first for b in second if a != b}
    pairs |= {(j, i) for i, j in pairs}
    return with_links(cluster, pairs, bandwidth, latency)


def with_links(cluster: Cluster, pairs: Iterable[tuple[int, int]], bandwidth_bytes_per_s: float,
               latency_s: float | None = None) -> Cluster:
    """A cluster in which the lines between these positions are others; without a latency they keep theirs."""
    wide, late = ([list(row) for row in matrix] for matrix in (cluster.bandwidth_bytes_per_s, cluster.latency_s))
    for i, j in pairs:
        wide[i][j] = bandwidth_bytes_per_s
        late[i][j] = late[i][j] if latency_s is None else latency_s
    return replace(cluster, bandwidth_bytes_per_s=tuple(map(tuple, wide)), latency_s=tuple(map(tuple, late)))


def _with_flops(node: Node, rate: float) -> Node:
    """Every dtype faster or slower by the same factor, f32 at the given rate."""
    factor = rate / node.flops_per_s["f32"]
    return replace(node, flops_per_s={dtype: value * factor for dtype, value in node.flops_per_s.items()})


_FIELDS: dict[str, tuple[Callable[[str], float], Callable[[Node, Any], Node]]] = {
    "memory": (parse_bytes, lambda node, value: replace(node, memory_bytes=int(value))),
    "memory_bandwidth": (parse_bytes_per_s, lambda node, value: replace(node, memory_bytes_per_s=value)),
    "flops": (parse_flops_per_s, _with_flops),
    "efficiency": (float, lambda node, value: replace(node, efficiency=value)),
}
