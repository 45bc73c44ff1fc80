"""Ranks of a launched script that hang are named: their collective, their line, and whom they wait for."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from morpho.base import settings
from morpho.cli.main import app
from morpho.cluster.groups.threads import ThreadGroup, run_threads
from morpho.cluster.launch import standing, told
from morpho.runtime.groups import waiting
from morpho.runtime.groups.group import Group

HERE = Path(__file__).name


def called(row: dict[str, Any], operation: str) -> list[dict[str, Any]]:
    return [call for call in row["calls"] if call["operation"] == operation]


def seen(count: int, operation: str) -> list[dict[str, Any]]:
    """What ranks that wait in an operation have noted, once so many do."""
    until = time.monotonic() + 20
    while len(found := called(waiting.row(), operation)) < count and time.monotonic() < until:
        time.sleep(0.001)
    return found


def test_a_rank_in_a_collective_says_which_and_where() -> None:
    def rank(group: Group) -> list[dict[str, Any]]:
        found = seen(2, "all_reduce") if group.rank == 2 else []
        work = group.all_reduce(np.ones(3, np.float32), wait=group.rank != 0)
        work.wait()
        return found

    found = run_threads(3, rank)[2]
    assert [call["ranks"] for call in found] == [(0, 1, 2)] * 2 and all(HERE in call["line"] for call in found)
    assert not called(waiting.row(), "all_reduce")  # nothing is left behind


def test_a_message_names_its_sender() -> None:
    def rank(group: Group) -> list[dict[str, Any]]:
        if group.rank == 0:
            group.recv(np.empty(1), 1)
            return []
        found = seen(1, "recv")
        group.send(np.ones(1), 0)
        return found

    [call] = run_threads(2, rank)[1]
    assert call["peer"] == 1


def test_a_fault_leaves_nothing_noted() -> None:
    def rank(group: Group) -> None:
        assert isinstance(group, ThreadGroup)
        if group.rank == 0:
            group.die()
            return
        with pytest.raises(ConnectionError):
            group.barrier()

    run_threads(2, rank)
    assert not called(waiting.row(), "barrier")


def line(rank: int, calls: tuple[dict[str, Any], ...] = (), count: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "process": 10 + rank, "state": "", "joining": False, "time": 100.0, "line": f"a.py:{rank}",
            "calls": [*calls], "counts": [[0, 1, 2, count]], **more}


def call(operation: str, number: int = 1, peer: int | None = None) -> dict[str, Any]:
    return {"operation": operation, "ranks": [0, 1, 2], "number": number, "peer": peer, "since": 90.0, "line": "b.py:7"}


@pytest.mark.parametrize(("rows", "said"), [
    ([line(0, (call("barrier"),), 1), line(1, (call("barrier"),), 1), line(2)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s for rank 2",
      "rank 1 (process 11) waits in barrier at b.py:7 since 10 s for rank 2",
      "rank 2 (process 12), for which others wait, is at a.py:2"]),
    ([line(0, (call("barrier"),), 1), line(1, count=1), line(2, state=standing.STOPPED)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s for rank 2",
      "rank 2 (process 12) is stopped by a signal; it was at a.py:2"]),
    ([line(0, (call("recv", 0, 1),)), line(1, (call("recv", 0, 0),)), line(2)],
     ["rank 0 (process 10) waits in recv from rank 1 at b.py:7 since 10 s for rank 1",
      "rank 1 (process 11) waits in recv from rank 0 at b.py:7 since 10 s for rank 0"]),
    ([line(0, (call("barrier"),), 1), line(1, (call("all_reduce"),), 1), line(2, count=2)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s while the others are elsewhere: rank 1 in all_reduce "
      "at b.py:7",
      "rank 1 (process 11) waits in all_reduce at b.py:7 since 10 s while the others are elsewhere: rank 0 in barrier "
      "at b.py:7"]),
    ([line(0, (call("barrier"),), 1), line(1, count=1)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s for rank 2 (not seen from this machine)"]),
    ([line(0, (call("barrier"),), 1), line(1, count=1), line(2, state="has ended with status 0", count=0)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s for rank 2",
      "rank 2 (process 12) has ended with status 0; it was at a.py:2"]),
    ([line(0, joining=True, time=90.0), line(1), line(2, joining=True, time=90.0)],
     ["rank 0 (process 10) waits in MPI's start since 10 s for rank 1",
      "rank 2 (process 12) waits in MPI's start since 10 s for rank 1",
      "rank 1 (process 11), for which others wait, is at a.py:1"]),
    ([line(0, ({**call("barrier"), "silent": [2]},), 1), line(1, count=1), line(2, count=1)],
     ["rank 0 (process 10) waits in barrier at b.py:7 since 10 s though all ranks have come to it, and hears nothing "
      "of rank 2: the line between their hosts is down"]),
    ([line(0), line(1, ({**call("barrier"), "since": 98.0},), 1), line(2)], []),  # who came just now
])
def test_who_waits_for_whom(rows: list[dict[str, Any]], said: list[str]) -> None:
    assert standing.diagnosis({"count": 3, "rows": rows}, now=100.0) == said


def test_doctor_and_status_read_what_ranks_write(tmp_path: Path) -> None:
    with settings.settings(cache_dir=str(tmp_path / "cache")), standing.listed(["train.py", "a"], 2, tmp_path):
        stop = threading.Event()
        noted = waiting.Call("all_reduce", (0, 1), 4, None, time.time() - 60)

        def wait() -> None:
            with waiting.inside(noted):
                stop.wait(20)

        thread = threading.Thread(target=wait)
        thread.start()
        while not called(waiting.row(), "all_reduce"):
            time.sleep(0.001)
        assert standing.write(tmp_path, 0)
        stop.set()
        thread.join()
        other = os.getppid()
        (tmp_path / str(other)).write_text(f"{told.JOINED} {told.started(other)} ")
        (tmp_path / f"{other}.where").write_text(json.dumps({
            "rank": 1, "process": other, "time": time.time(), "line": "train.py:8", "calls": [], "counts": []}))
        (tmp_path / "7.where").write_text("{")  # half of one
        printed = CliRunner().invoke(app, ["cluster", "doctor"]).output
        assert f"train.py: rank 0 (process {os.getpid()}) waits in all_reduce at {__file__}:" in printed
        assert "for rank 1\n" in printed
        assert f"rank 1 (process {other}), for which others wait, is at train.py:8" in printed
        printed = CliRunner().invoke(app, ["cluster", "status"]).output
        assert "train.py a: 2 ranks" in printed and f"rank 1: process {other}, at train.py:8" in printed
    with settings.settings(cache_dir=str(tmp_path / "cache")):
        assert standing.running() == []


def test_a_folder_that_is_gone_is_told_nothing(tmp_path: Path) -> None:
    assert not standing.write(tmp_path / "none", 0)


def test_what_is_left_of_a_launcher_that_is_gone(tmp_path: Path) -> None:
    with settings.settings(cache_dir=str(tmp_path)):
        standing.folder().mkdir(parents=True)
        file = standing.folder() / "1.json"
        gone = {"launcher": 1 << 30, "began": 5, "ranks": str(tmp_path), "program": [], "count": 1}
        file.write_text(json.dumps(gone))
        assert standing.running() == [] and not file.exists()


def test_a_cache_that_cannot_be_written_is_no_reason_not_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with settings.settings(cache_dir=str(tmp_path / "file")), standing.listed(["x.py"], 1, tmp_path):
        assert standing.running() == []
