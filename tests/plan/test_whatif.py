"""Changes in words: what they mean, what they lead to, and which are refused."""

from __future__ import annotations

import pytest
from planning import card, cluster

from morpho import plan
from morpho.base.errors import MorphoError
from morpho.plan.replan.what_if import changed

OFFICE = plan.Cluster.uniform(
    [plan.Node(name, 10**9, 1e10, {"f32": 1e11, "f16": 2e11}, group=name.rpartition("-")[0] or name)
     for name in ("a", "desk-1", "desk-2", "node-2-x")], 1e8, 1e-3)


def test_what_changes_mean() -> None:
    assert [node.name for node in changed(OFFICE, "drop desk-1").nodes] == ["a", "desk-2", "node-2-x"]
    assert [node.name for node in changed(OFFICE, "drop desk").nodes] == ["a", "node-2-x"]
    assert changed(OFFICE, "desk memory 64GB").node("desk-2").memory_bytes == 64_000_000_000
    assert changed(OFFICE, "a memory_bandwidth 80GB/s").node("a").memory_bytes_per_s == 8e10
    assert changed(OFFICE, "a flops 1TFLOP/s").node("a").flops_per_s == {"f32": 1e12, "f16": 2e12}
    assert changed(OFFICE, "a efficiency 0.5").node("a").efficiency == 0.5
    linked = changed(OFFICE, "link desk-1-node-2-x 10Gbit/s 0.2ms")
    assert linked.link("node-2-x", "desk-1") == plan.Link("node-2-x", "desk-1", 1.25e9, 2e-4)
    assert linked.link("a", "desk-1") == OFFICE.link("a", "desk-1")
    assert changed(OFFICE, "link a-desk 10Gbit/s").link("desk-2", "a") == plan.Link("desk-2", "a", 1.25e9, 1e-3)


@pytest.mark.parametrize(("change", "complaint"), [
    ("", "is not understood"), ("drop", "is not understood"), ("drop x", "unknown node 'x'"),
    ("a colour red", "is not understood"), ("a memory", "is not understood"), ("a memory much", "the value 'much'"),
    ("a memory -3GB", "the value '-3GB'"), ("a memory 0GB", "the value '0GB'"),
    ("link a-x 1Gbit/s", "does not name two nodes"), ("link a 1Gbit/s", "does not name two"),
    ("link a-desk-1 1", "the value '1'"), ("a efficiency none", "the value 'none'"),
    ("please drop a", "is not understood"), ("link a-desk-1 1Gbit/s 2 3", "is not understood"),
])
def test_what_is_not_understood(change: str, complaint: str) -> None:
    with pytest.raises(MorphoError) as caught:
        changed(OFFICE, change)
    assert complaint in str(caught.value)


def test_plans_follow_from_changes() -> None:
    p = plan.solve(card(8), cluster(100, 100, memory_mb=8))
    answers = plan.what_if(p, "a flops 200GFLOP/s", "drop b", "a memory 1GB")
    assert [answer.change for answer in answers] == ["a flops 200GFLOP/s", "drop b", "a memory 1GB", "all together"]
    faster, gone, roomier, together = answers
    assert faster.plan is not None and faster.plan.predicted.tokens_per_s > p.predicted.tokens_per_s
    assert gone.plan is None and "short" in gone.problem
    assert roomier.plan is not None and roomier.plan.optimal
    assert together.plan is not None and len(together.plan.stages) == 1


def test_changes_that_cannot_follow_each_other_are_still_tried_alone() -> None:
    p = plan.solve(card(8), cluster(100, 100))
    alone, larger, together = plan.what_if(p, "drop b", "b memory 1GB")
    assert alone.plan is not None and larger.plan is not None
    assert together.plan is None and "'b memory 1GB' is about a node that 'drop b' takes away" in together.problem
    assert plan.what_if(p, "b memory 1GB", "drop b")[-1].plan == alone.plan  # in the order given
    for link in ("link a-b 10Gbit/s", "link b-a 10Gbit/s 1ms"):
        assert f"{link!r} is about a node that 'drop b' takes away" in plan.what_if(p, "drop b", link)[-1].problem
    assert "takes away" not in plan.what_if(p, "drop a", "drop b")[-1].problem  # nothing is left: that is what is said
    with pytest.raises(MorphoError, match="unknown node 'x'"):
        plan.what_if(p, "drop x")
