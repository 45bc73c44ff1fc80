"""Ranks: clocks that disagree, and traces put together on one of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.cluster.groups.threads import run_threads
from morpho.observe.export import perfetto
from morpho.observe.export.text import report
from morpho.observe.trace import merge
from morpho.observe.trace.merge import clock_offset, gathered, merged
from morpho.observe.trace.model import EventRow, OpRow, SpanRow, Trace

OFF_NS = 3_000_000_000


def test_a_clock_that_is_off_is_found() -> None:
    """Rank r's clock is r * 3 s ahead; what is found is within the error that is told."""
    def offset(group: Any) -> tuple[float, float]:
        return clock_offset(group, now=lambda: time.time_ns() + group.rank * OFF_NS)

    for rank, (offset_s, error_s) in enumerate(run_threads(3, offset)):
        assert abs(offset_s + 3.0 * rank) <= error_s + 1e-9


def part(rank: int, began_s: float, offset_s: float, network_s: float) -> Trace:
    """A rank's trace: one event 0.1 s after its beginning."""
    return Trace("job", 1.0, [OpRow("exp", seconds=0.2, calls=3)], {"kernels": 0.2, "network": network_s},
                 spans=[SpanRow("network", "all_reduce", 7, 0.5, network_s)],
                 events=[EventRow("step", "exp", 7, 0.1, 0.2, 0)], threads={7: "MainThread"}, rank=rank,
                 started_unix_s=began_s, clock_offset_s=offset_s, clock_error_s=1e-5 * rank)


def test_traces_are_put_on_rank_0s_clock() -> None:
    """Rank 1 began half a second later by rank 0's clock, though its own was 10 s ahead."""
    whole = merged([part(1, 110.5, -10.0, 0.1), part(0, 100.0, 0.0, 0.7)])
    assert whole.ranks == 2 and whole.clock_error_s == 1e-5
    assert {event.rank: event.start_s for event in whole.events} == pytest.approx({0: 0.1, 1: 0.6})
    assert len(whole.threads) == 2 and {row.rank for row in whole.ops} == {0, 1}
    assert whole.seconds["network"] == 0.1, "the rank that others wait for says what binds them all"
    names = {e["args"]["name"] for e in perfetto.events(whole) if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}


def test_the_rank_that_others_wait_for_is_named() -> None:
    told = "all of this is of rank 1, for which others wait up to 50 % of their time"
    assert told in report(merged([part(0, 10.0, 0.0, 0.6), part(1, 10.0, 0.0, 0.1)]))
    assert "others wait" not in report(merged([part(0, 10.0, 0.0, 0.6), part(1, 10.0, 0.0, 0.6)]))


def test_traces_come_by_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks need no folder in common; a long trace comes in pieces."""
    monkeypatch.setattr(merge, "PIECE_BYTES", 100)
    found = run_threads(3, lambda group: gathered(group, part(group.rank, 1.0, 0.5 * group.rank, 0.1)))
    assert found[1:] == [[], []] and found[0] == [part(rank, 1.0, 0.5 * rank, 0.1) for rank in range(3)]


def test_a_rank_that_is_there_twice_is_told() -> None:
    with pytest.raises(mo.errors.ArgumentError, match="twice"):
        merged([part(0, 1.0, 0.0, 0.1), part(0, 1.0, 0.0, 0.1)])
    with pytest.raises(mo.errors.ArgumentError, match="no trace"):
        merged([])


def test_collectives_of_several_ranks_are_seen() -> None:
    """Two ranks in threads under one profile: each collective is a span with its bytes."""
    with mo.profile() as p:
        run_threads(2, lambda group: group.all_reduce(np.ones(100, np.float32)))
    found = [span for span in p.trace.spans if span.kind == "network" and span.name == "all_reduce"]
    assert [span.detail["bytes"] for span in found] == [400, 400]
