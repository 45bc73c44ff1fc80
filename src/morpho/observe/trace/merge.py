"""Traces of several ranks as one, on one clock, and how clocks of ranks are compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.observe.trace.model import OpRow, Trace
from morpho.runtime.groups.group import Group

ROUNDS = 24  # messages to and fro; the fastest is the best
PIECE_BYTES = 64 << 20  # of a message: MPI counts up to 2 GiB


def clock_offset(group: Group, rounds: int = ROUNDS, now: Callable[[], int] = time.time_ns) -> tuple[float, float]:
    """Offset of rank 0's clock to this rank's, and its uncertainty, in seconds. All ranks call it.

    Rank 0 asks each rank for its time. The answer was given between question and answer; of several rounds the fastest
    says most, and half of what it took bounds the error."""
    mine = np.zeros(2, np.float64)
    for other in range(1, group.size):
        found = np.zeros(2, np.float64)
        if group.rank == 0:
            found[:] = _ask(group, other, rounds, now)
            group.send(found, other)
        elif group.rank == other:
            for _ in range(rounds):
                told = np.zeros(1, np.int64)
                group.recv(told, 0)
                told[0] = now()
                group.send(told, 0)
            group.recv(mine, 0)
    return float(mine[0]), float(mine[1])


def _ask(group: Group, other: int, rounds: int, now: Callable[[], int]) -> tuple[float, float]:
    best: tuple[int, float] | None = None
    for _ in range(rounds):
        told = np.zeros(1, np.int64)
        before = now()
        group.send(told, other)
        group.recv(told, other)
        after = now()
        if best is None or after - before < best[0]:
            best = after - before, (before + after) / 2 - float(told[0])
    assert best is not None
    return 1e-9 * best[1], 0.5e-9 * best[0]


def gathered(group: Group, trace: Trace) -> list[Trace]:
    """The traces of all ranks on rank 0, by messages: they need not see the same files. Nothing on the others."""
    if group.rank:
        written = np.frombuffer(json.dumps(trace.as_json()).encode(), np.uint8)
        group.send(np.array([len(written)]), 0)
        for start in range(0, len(written), PIECE_BYTES):
            group.send(written[start:start + PIECE_BYTES], 0)
        return []
    found = [trace]
    for other in range(1, group.size):
        length = np.zeros(1, np.int64)
        group.recv(length, other)
        read = np.empty(int(length[0]), np.uint8)
        for start in range(0, len(read), PIECE_BYTES):
            group.recv(read[start:start + PIECE_BYTES], other)
        found.append(Trace.of(json.loads(read.tobytes()), f"the trace of rank {other}"))
    return found


def merged(traces: Sequence[Trace]) -> Trace:
    """One trace of all ranks: events on rank 0's clock, rows marked with their rank, categories of the slowest rank.

    Nothing waits for a rank that is early: what binds the whole is what binds the rank that others wait for least."""
    if not traces:
        raise fail(ArgumentError, "profile", "there is no trace to merge", line="")
    ordered = sorted(traces, key=lambda one: one.rank)
    ranks = [one.rank for one in ordered]
    if len({*ranks}) < len(ranks):
        raise fail(ArgumentError, "profile", f"the traces are of ranks {ranks}: one is there twice", line="")
    origin = min(_began(one) for one in ordered)
    waits = [one.seconds.get("network", 0.0) / (one.wall_s or 1.0) for one in ordered]
    slowest = ordered[int(np.argmin(waits))]
    whole = replace(slowest, rank=ordered[0].rank, ranks=len(ordered), clock_offset_s=0.0, ops=[], events=[], spans=[],
                    threads={}, stacks=dict(slowest.stacks), lines=dict(slowest.lines), started_unix_s=origin,
                    counters={**slowest.counters, "slowest_rank": slowest.rank,
                              "waited_share": max(waits) - min(waits)},
                    clock_error_s=max(one.clock_error_s for one in ordered), memory=ordered[0].memory,
                    dropped=sum(one.dropped for one in ordered), lost=sum(one.lost for one in ordered))
    for one in ordered:
        _add(whole, one, _began(one) - origin)
    whole.ops.sort(key=lambda row: -row.seconds)
    return whole


def _began(trace: Trace) -> float:
    """When a trace began, on rank 0's clock."""
    return trace.started_unix_s + trace.clock_offset_s


def _add(whole: Trace, one: Trace, later_s: float) -> None:
    """Another rank's rows: threads get numbers of their own, since processes may use the same."""
    numbers = {thread: (one.rank << 48) + number for number, thread in enumerate(one.threads, 1)}
    rows: dict[int, OpRow] = {}
    for number, row in enumerate(one.ops):
        rows[number] = replace(row, rank=one.rank)
        whole.ops.append(rows[number])
    for thread, name in one.threads.items():
        whole.threads[numbers[thread]] = name
    for event in one.events:
        whole.events.append(replace(event, rank=one.rank, start_s=event.start_s + later_s, op=-1,
                                    thread=numbers.get(event.thread, event.thread)))
    for span in one.spans:
        whole.spans.append(replace(span, rank=one.rank, start_s=span.start_s + later_s,
                                   thread=numbers.get(span.thread, span.thread)))
