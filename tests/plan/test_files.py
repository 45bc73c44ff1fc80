"""Cluster files: what they mean, and that every fault names the file and the field."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from morpho import plan
from morpho.base.errors import MorphoError

NODE = {"name": "a", "memory": "64GB", "memory_bandwidth": "40GB/s", "flops": {"f32": "1TFLOP/s", "f16": "2TFLOP/s"}}
OFFICE: dict[str, Any] = {
    "name": "office",
    "network": {"bandwidth": "1Gbit/s", "latency": "0.2ms"},
    "node": [NODE, {**NODE, "name": "desk", "count": 3, "memory": "16GiB", "flops": "500GFLOP/s", "efficiency": 0.5,
                    "measured": {"block": ["12ms", "1ms"]}}],
    "link": [{"between": ["a", "desk"], "bandwidth": "10Gbit/s", "latency": "50us"}],
}
TOML = """
name = "office"
[network]
bandwidth = "1Gbit/s"
latency = "0.2ms"
[[node]]
name = "a"
memory = "64GB"
memory_bandwidth = "40GB/s"
flops = { f32 = "1TFLOP/s", f16 = "2TFLOP/s" }
[[node]]
name = "desk"
count = 3
memory = "16GiB"
memory_bandwidth = "40GB/s"
flops = "500GFLOP/s"
efficiency = 0.5
measured = { block = ["12ms", "1ms"] }
[[link]]
between = ["a", "desk"]
bandwidth = "10Gbit/s"
latency = "50us"
"""


def load(folder: Path, tables: Any, name: str = "office.json") -> plan.Cluster:
    path = folder / name
    path.write_text(tables if isinstance(tables, str) else json.dumps(tables), encoding="utf-8")
    return plan.Cluster.load(path)


def test_what_a_file_means(tmp_path: Path) -> None:
    cluster = load(tmp_path, OFFICE)
    assert [node.name for node in cluster.nodes] == ["a", "desk-1", "desk-2", "desk-3"]
    assert cluster.name == "office" and cluster.node("desk-2").group == "desk"
    assert cluster.node("desk-1").memory_bytes == 16 << 30 and cluster.node("desk-1").efficiency == 0.5
    assert cluster.node("desk-1").measured == {"block": (0.012, 0.001)}
    assert cluster.node("a").rate("f16") == 2e12 and cluster.node("desk-1").rate("f16") == 5e11
    assert cluster.link("a", "desk-3") == plan.Link("a", "desk-3", 1.25e9, 5e-5)
    assert cluster.link("desk-3", "a").bandwidth_bytes_per_s == 1.25e9
    assert cluster.link("desk-1", "desk-2") == plan.Link("desk-1", "desk-2", 1.25e8, 2e-4)
    assert cluster.kinds() == ((0,), (1, 2, 3))


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    assert load(tmp_path, TOML, "office.toml") == load(tmp_path, OFFICE)


def test_a_matrix_of_links(tmp_path: Path) -> None:
    tables = {"node": [NODE, {**NODE, "name": "b"}],
              "network": {"bandwidth": [["", "2Gbit/s"], ["2Gbit/s", ""]], "latency": [["", "1ms"], ["1ms", ""]]}}
    assert load(tmp_path, tables).link("b", "a").seconds(250_000_000) == 1.001
    tables["network"]["bandwidth"][1][0] = "1Gbit/s"  # type: ignore[index]
    with pytest.raises(MorphoError, match=r"office\.json: \[network\] is asymmetric: the bandwidth a -> b is 2 Gbit/s, "
                                          r"and back 1 Gbit/s"):
        load(tmp_path, tables)
    tables["network"]["asymmetric"] = True  # type: ignore[index]
    assert load(tmp_path, tables).link("b", "a").bandwidth_bytes_per_s == 1.25e8


# Where, what to put there (`...`: take it away), and what the error must say.
FAULTS: list[tuple[str, Any, str]] = [
    ("node.0.memory", ..., "node 1 ('a') lacks the field 'memory'"),
    ("node.0.memory", "-64GB", "negative memory = '-64GB'"),
    ("node.0.memory", 64, "memory = 64 without a unit"),
    ("node.0.memory", "64", "memory = '64' without a unit"),
    ("node.0.memory", "0GB", "memory = '0GB'"),
    ("node.0.memory", "64 sheep", "memory = '64 sheep'"),
    ("node.0.memory_bandwidth", "40", "memory_bandwidth = '40'"),
    ("node.0.name", ..., "node 1 lacks the field 'name'"),
    ("node.0.name", "", "name = ''"),
    ("node.0.name", "desk-2", "describes the node 'desk-2' twice"),
    ("node.0.name", "desk", "two [[node]] called 'desk'"),
    ("node.0.name", "a -> b", "name = 'a -> b'"),
    ("node.0.flops", ..., "lacks the field 'flops'"),
    ("node.0.flops", {"f16": "1TFLOP/s"}, "lacks the field 'flops.f32'"),
    ("node.0.flops.f64", "1TFLOP/s", "unknown dtype flops.f64"),
    ("node.0.flops.f32", "-1TFLOP/s", "negative flops.f32"),
    ("node.0.memroy", "1GB", "unknown field 'memroy'. At"),
    ("node.1.count", 0, "count = 0"),
    ("node.1.count", "3", "count = '3'"),
    ("node.1.count", 10**15, "a whole number from 1 to 1024"),
    ("node.1.count", 1024, "more than 1024 nodes"),
    ("node.1.efficiency", -1, "efficiency = -1"),
    ("node.1.measured.block", ["1ms"], "measured.block = ['1ms']"),
    ("node", [], "has no [[node]]"),
    ("node", ..., "has no [[node]]"),
    ("node.0", 7, "node 1 is 7"),
    ("nodes", [], "unknown field 'nodes'"),
    ("network.bandwidth", ..., "[network] lacks the field 'bandwidth'"),
    ("network.latency", "-1ms", "negative latency"),
    ("network.bandwidth", "0Gbit/s", "bandwidth = '0Gbit/s'"),
    ("network.bandwidth", [["1Gbit/s"]], "not a matrix of 4 x 4"),
    ("network.asymmetric", 1, "asymmetric = 1"),
    ("network", ..., "leaves desk-2, desk-3 without a link to a"),
    ("link.0.between", ["a", "chair"], "link 1 names the unknown node 'chair'"),
    ("link.0.between", ["a", "a"], "joins 'a' with itself"),
    ("link.0.between", "a", "between = 'a'"),
    ("link.0.between", ..., "needs either 'between' or 'from' and 'to'"),
    ("link.0.from", "a", "needs either 'between' or 'from' and 'to'"),
    ("link.0.latency", ..., "link 1 lacks the field 'latency'"),
    ("link", {}, "link is one table"),
    ("link.1", {"between": ["desk-1", "a"], "bandwidth": "2Gbit/s", "latency": "1ms"}, "link 2 contradicts link 1"),
    ("link.1", {"from": "desk-1", "to": "desk-2", "bandwidth": "2Gbit/s", "latency": "1ms"}, "is asymmetric"),
]


@pytest.mark.parametrize(("where", "value", "complaint"), FAULTS, ids=[f"{row[0]}={row[1]}" for row in FAULTS])
def test_a_fault_names_file_and_field(tmp_path: Path, where: str, value: Any, complaint: str) -> None:
    tables = deepcopy(OFFICE)
    if where == "network":  # without a default, only what [[link]] joins is joined
        tables["link"][0]["between"] = ["a", "desk-1"]
    *path, last = [int(part) if part.isdigit() else part for part in where.split(".")]
    place: Any = tables
    for part in path:
        place = place[part]
    if value is ...:
        del place[last]
    elif last == len(place) and isinstance(place, list):
        place.append(value)
    else:
        place[last] = value
    with pytest.raises(MorphoError) as caught:
        load(tmp_path, tables)
    assert complaint in str(caught.value) and "office.json: " in str(caught.value)


@pytest.mark.parametrize(("text", "name", "complaint"), [
    ("{", "a.json", "a.json is not valid JSON"), ("[1]", "a.json", "a.json holds a list"),
    ("[[", "a.toml", "a.toml is not valid TOML"), ("[" * 100_000, "a.json", "a.json is nested too deeply"),
])
def test_files_that_are_no_tables(tmp_path: Path, text: str, name: str, complaint: str) -> None:
    with pytest.raises(MorphoError, match=complaint):
        load(tmp_path, text, name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MorphoError, match=r"no\.toml cannot be read"):
        plan.Cluster.load(tmp_path / "no.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MorphoError, match="not UTF-8"):
        plan.Cluster.load(tmp_path / "bytes.toml")


def test_the_file_in_the_guide_is_a_cluster(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "planner.md").read_text(encoding="utf-8")
    cluster = load(tmp_path, page.split("```toml\n")[1].split("```")[0], "office.toml")
    assert [node.name for node in cluster.nodes] == ["server", "desk-1", "desk-2", "desk-3"]
    assert cluster.link("server", "desk-3").bandwidth_bytes_per_s == 1.25e9


@pytest.mark.parametrize("times", [(1.0, -1.0), (float("nan"), 1.0), (1.0,)])
def test_measured_times_of_a_node_are_two_and_not_negative(times):
    with pytest.raises(ValueError, match="measured"):
        plan.Node("a", 1, 1.0, {"f32": 1.0}, measured={"block": times})
