"""The planner's benchmark: its clusters are fixed, its instances seeded, its themes known to the command."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.harness.run import SUITES, choose_peers, choose_themes
from benchmarks.plan import clusters
from benchmarks.plan.instances import instance
from morpho import plan


def test_the_400_clusters_are_those_drawn():
    data = clusters.load()
    assert data == clusters.draw() and len(data) == 400
    assert {entry["links"] for entry in data} == set(clusters.LINK_KINDS) and len(clusters.LINK_KINDS) == 4
    assert {len(entry["nodes"]) for entry in data} == {3, 4, 5, 6}
    assert {kind for entry in data for kind in entry["nodes"]} == set(clusters.DEVICES) and len(clusters.DEVICES) == 11


def test_clusters_have_symmetric_links_of_their_kind():
    for entry in clusters.load()[:8]:
        made = clusters.cluster(entry)
        for i in range(len(made.nodes)):
            for j in range(i):
                assert made.bandwidth_bytes_per_s[i][j] == made.bandwidth_bytes_per_s[j][i] > 0
    gigabit = clusters.cluster(next(entry for entry in clusters.load() if entry["links"] == "gigabit"))
    assert gigabit.bandwidth_bytes_per_s[0][1] == 125e6


def test_nodes_of_a_kind_are_interchangeable():
    card, cluster = instance(1, 20, [3, 2])
    assert sorted(map(len, cluster.kinds())) == [2, 3] and card.depth == 20
    assert instance(1, 20, [3, 2])[1] == cluster != instance(2, 20, [3, 2])[1]
    assert plan.solve(card, cluster, constraints=plan.Constraints(headroom=0.0)).optimal


@pytest.mark.parametrize("theme", SUITES["plan"].themes)
def test_every_theme_can_be_run(theme):
    assert callable(importlib.import_module(f"benchmarks.plan.{theme}").run)
    assert choose_themes(theme, SUITES["plan"]) == [theme] and choose_peers("", SUITES["plan"]) == {}
