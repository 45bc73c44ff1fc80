"""Cluster files: TOML (or the same tables as JSON) to a `Cluster`; every fault names file and field.

    name = "office"

    [network]                        # the link between any two nodes, unless a [[link]] says otherwise
    bandwidth = "1Gbit/s"
    latency = "0.2ms"

    [[node]]
    name = "desk"
    count = 2                        # desk-1, desk-2
    memory = "32GB"
    memory_bandwidth = "40GB/s"
    flops = { f32 = "1.2TFLOP/s", f16 = "2TFLOP/s" }

    [[link]]
    between = ["desk-1", "desk-2"]   # the name of a group stands for each of its nodes
    bandwidth = "10Gbit/s"
    latency = "50us"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from morpho.base.checks import shown
from morpho.base.errors import MorphoError
from morpho.base.units import parse_bytes, parse_bytes_per_s, parse_flops_per_s, parse_seconds
from morpho.plan.cluster.network import Network
from morpho.plan.cluster.node import Node
from morpho.plan.cluster.toml_tables import TomlTable, read_tables
from morpho.plan.model.layer import BYTES_OF

MOST_NODES = 1024  # a cell of the link matrix for every pair: more is a mistake
NAME = re.compile(r"[\w.-]+")  # what tables, options and what-ifs can tell apart
_TOP = ("name", "network", "node", "link")
_NODE = ("name", "count", "memory", "memory_bandwidth", "flops", "efficiency", "measured")


Matrix = tuple[tuple[float, ...], ...]
Fields = tuple[tuple[Node, ...], Matrix, Matrix, str]  # of a `Cluster`: nodes, bandwidths, latencies, name


def read_cluster(path: str | Path) -> Fields:
    """The cluster that a file describes; `.json` holds the same tables as TOML."""
    path = Path(path)
    return fields_of_tables(read_tables(path), path.name, path.stem)


def fields_of_tables(data: Mapping[str, Any], file: str, name: str) -> Fields:
    """See `Cluster.from_tables`."""
    top = TomlTable(file, "the file", data, _TOP)
    entries = data.get("node")
    if not isinstance(entries, list) or not entries:
        top.complain("has no [[node]]", "describe at least one node")
    groups: dict[str, tuple[str, ...]] = {}  # the name of an entry -> its nodes
    nodes: list[Node] = []
    known: set[str] = set()
    for position, entry in enumerate(entries):
        made = _nodes(file, position, entry)
        if len(nodes) + len(made) > MOST_NODES:
            top.complain(f"has more than {MOST_NODES} nodes", "leave some out")
        if made[0].group in groups:
            top.complain(f"has two [[node]] called {made[0].group!r}", "names are unique; count = n makes equal nodes")
        groups[made[0].group] = tuple(node.name for node in made)
        for node in made:
            if node.name in known:
                top.complain(f"describes the node {node.name!r} twice", "names are unique; count = n makes equal nodes")
            known.add(node.name)
        nodes += made
    named = top.text("name") if "name" in data else name
    network = Network(file, [node.name for node in nodes], groups)
    network.read(data.get("network"), data.get("link", []))
    return (tuple(nodes), network.matrix("bandwidth"), network.matrix("latency"), named)


def _nodes(file: str, position: int, entry: Any) -> list[Node]:
    """The nodes of one [[node]]: one, or `count` equal ones called name-1, name-2, ..."""
    called = f" ({shown(entry['name'])})" if isinstance(entry, Mapping) and "name" in entry else ""
    table = TomlTable(file, f"node {position + 1}{called}", entry, _NODE)
    name, count = table.text("name"), entry.get("count", 1)
    if not NAME.fullmatch(name):
        table.complain(f"has name = {name!r}", "use letters, digits, hyphens, dots and underscores")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_NODES:
        table.complain(f"has count = {shown(count)}", f"it is a whole number from 1 to {MOST_NODES}")
    figures: dict[str, Any] = {
        "memory_bytes": int(table.quantity("memory", parse_bytes, "64GB")),
        "memory_bytes_per_s": table.quantity("memory_bandwidth", parse_bytes_per_s, "40GB/s"),
        "flops_per_s": _flops(table), "efficiency": table.number("efficiency", 1.0), "measured": _measured(table),
    }
    names = [name] if "count" not in entry else [f"{name}-{number}" for number in range(1, count + 1)]
    try:
        return [Node(one, group=name, **figures) for one in names]
    except MorphoError as error:
        table.complain(f"is not possible: {error}", "repair the field")


def _flops(table: TomlTable) -> dict[str, float]:
    """`flops = "1TFLOP/s"` for every dtype, or a rate for each."""
    value = table.data.get("flops")
    if isinstance(value, str):
        return {"f32": table.quantity("flops", parse_flops_per_s, "1.2TFLOP/s")}
    if not isinstance(value, Mapping) or not value:
        table.complain("lacks the field 'flops'" if value is None else f"has flops = {shown(value)}",
                       'write flops = { f32 = "1.2TFLOP/s" }')
    for dtype in value:
        if dtype not in BYTES_OF:
            table.complain(f"has the unknown dtype flops.{dtype}", f"use {', '.join(BYTES_OF)}")
    if "f32" not in value:
        table.complain("lacks the field 'flops.f32'", "every node needs that rate; the others default to it")
    return {dtype: table.parsed(f"flops.{dtype}", rate, parse_flops_per_s, "1.2TFLOP/s")
            for dtype, rate in value.items()}


def _measured(table: TomlTable) -> dict[str, tuple[float, float]]:
    """Seconds of layers that were measured on the node: key = [prefill, decode]."""
    found = {}
    value = table.data.get("measured", {})
    if not isinstance(value, Mapping):
        table.complain(f"has measured = {shown(value)}", 'write measured = { "key of a layer" = ["12ms", "0.8ms"] }')
    for key, pair in value.items():
        if not isinstance(pair, list) or len(pair) != 2:
            table.complain(f"has measured.{key} = {shown(pair)}",
                           'give prefill and decode time, as in ["12ms", "0.8ms"]')
        # An encoder has nothing to do when a token is decoded: that time may be 0.
        first, second = (table.parsed(f"measured.{key}", part, parse_seconds, "12ms", zero=late)
                         for part, late in zip(pair, (False, True)))
        found[key] = (first, second)
    return found
