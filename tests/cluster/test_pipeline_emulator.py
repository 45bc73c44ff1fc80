"""Unequal machines on this one: network namespaces with addresses, lines and shares of a core of their own, and an
agent instead of ssh; delays by the transport's shim, which no kernel refuses."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")

from emulator import Emulator
from pipeline_models import folder_of, plan_of

import morpho as mo
from morpho.cluster import Pipeline
from morpho.cluster.frontend.local import card_of
from morpho.plan import Cluster, Node, solve

PROMPT = [3, 14, 15, 9, 2, 6, 5]
UNEQUAL = """
[[node]]
name = "n0"
memory = "8GB"
memory_bandwidth = "10GB/s"
flops = { f32 = "8GFLOP/s" }

[[node]]
name = "n1"
memory = "8GB"
memory_bandwidth = "10GB/s"
flops = { f32 = "4GFLOP/s" }

[[link]]
between = ["n0", "n1"]
bandwidth = "12.5MB/s"
latency = "100us"
"""


def namespace(process):
    return os.readlink(f"/proc/{process}/ns/net")


def test_a_text_over_emulated_machines_is_that_of_one_process(tmp_path):
    reason = Emulator.refusal()
    if reason:
        pytest.skip(f"no network namespaces: {reason}")
    folder = folder_of(tmp_path, "llama")
    (tmp_path / "office.toml").write_text(UNEQUAL)
    cluster = Cluster.load(tmp_path / "office.toml")
    with Emulator(cluster) as machines, Pipeline(folder, plan_of(folder, [3]), hosts=machines.hosts,
                                                 threads=1) as pipeline:
        found = [*pipeline.wait().generate(PROMPT, max_new_tokens=20, temperature=0)]
        places = {namespace(process) for process in pipeline.processes.values()}
        assert len(places) == 2 and namespace("self") not in places
        if not machines.why_no_shares:
            assert machines.shares([pipeline.processes[node] for node in ("n0", "n1")]) == [1.0, 0.5]
    assert not any(group.exists() for group in machines.groups)
    assert found == [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=20, temperature=0)]


def test_a_plan_that_knows_the_links_and_a_text_over_those_that_it_avoids(tmp_path):
    """Two sites of two nodes, listed by turns, 5 ms apart; a node has memory for four of six layers."""
    folder = folder_of(tmp_path, "llama")
    card = card_of(folder, context=256)
    late = [[0.0 if a == b else 1e-4 if a % 2 == b % 2 else 5e-3 for b in range(4)] for a in range(4)]
    room = int(1.2 * card.memory_bytes(0, 4))
    cluster = Cluster(tuple(Node(f"n{number}", room, 1e8, {"f32": 1e8}) for number in range(4)), ((1.25e8,) * 4,) * 4,
                      tuple(map(tuple, late)))
    uniform, found = (solve(card, cluster, strategy, "latency") for strategy in ("uniform", "optimal"))
    assert [len(uniform.stages), len(found.stages)] == [4, 2]
    assert all(int(a.node[1]) % 2 == int(b.node[1]) % 2 for a, b in pairwise(found.stages))
    assert uniform.predicted.latency_s > 2 * found.predicted.latency_s
    shims = {f"n{a} -> n{b}": {"latency_s": late[a][b], "bytes_per_s": 1.25e8, "jitter": 0.2, "seed": 4 * a + b}
             for a in range(4) for b in range(4) if a != b}
    with Pipeline(folder, uniform, threads=1, shims=shims, chunk=3) as pipeline:
        text = [*pipeline.wait().generate(PROMPT, max_new_tokens=12, temperature=0)]
    assert text == [*mo.models.generate(mo.models.load(folder), PROMPT, max_new_tokens=12, temperature=0)]
