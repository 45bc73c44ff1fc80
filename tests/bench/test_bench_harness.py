"""The measuring: order of rounds, medians, failures that leave the others standing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.harness import machine, run
from benchmarks.harness.client import PeerError, environment
from benchmarks.harness.rounds import Entry, Pace, Timing, measure, schedule
from benchmarks.harness.worker import calls_per_round
from benchmarks.peers.prepared import Prepared

FAST = Pace(rounds=3, round_seconds=0.001, pause_seconds=0.0, entry_seconds=1e9)


class ScriptedWorker:
    """Answers rounds from a list and writes down who was asked."""

    def __init__(self, name: str, seconds: list[float], log: list[str], fails_at: str = "") -> None:
        self.name, self.seconds, self.log, self.fails_at = name, iter(seconds), log, fails_at
        self.shapes: list[list[int]] = []

    def settle(self) -> None:
        """Nothing spins here."""

    def ask(self, command: str, **details: Any) -> dict[str, Any]:
        if command == self.fails_at:
            raise PeerError(f"{self.name}: scripted failure")
        if command == "prepare":
            self.shapes.append(details["shape"])
            return {"calls": 10, "error_share": 0.1}
        if command == "round":
            self.log.append(details["label"])
            return {"seconds": next(self.seconds)}
        return {}


def test_every_entry_has_one_turn_per_round_and_the_first_turn_rotates():
    assert list(schedule(["a", "b", "c"], 4)) == ["a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"]
    assert list(schedule([], 3)) == []


def test_the_median_ignores_one_disturbed_round():
    assert Timing("a", rounds=[1.0, 9.0, 1.1]).seconds == 1.1
    assert Timing("a").seconds is None
    assert Timing("a", rounds=[1.0], error="died").seconds is None


def test_rounds_alternate_between_workers():
    log: list[str] = []
    workers = [ScriptedWorker("a", [1.0, 2.0, 3.0], log), ScriptedWorker("b", [5.0, 5.0, 50.0], log)]
    timings = measure([Entry(worker.name, worker, "add") for worker in workers], (4,), FAST)
    assert log == ["a", "b", "b", "a", "a", "b"]
    assert (timings["a"].seconds, timings["b"].seconds) == (2.0, 5.0)


def test_one_worker_runs_two_cases_in_the_same_rounds():
    log: list[str] = []
    worker = ScriptedWorker("a", [1.0] * 6, log)
    measure([Entry("add", worker, "add"), Entry("triad", worker, "triad")], (4,), FAST)
    assert log == ["add", "triad", "triad", "add", "add", "triad"]
    assert worker.shapes == [[4], [4]]


def test_an_entry_may_have_a_shape_of_its_own():
    worker = ScriptedWorker("a", [1.0] * 6, [])
    measure([Entry("add", worker, "add"), Entry("read", worker, "read", (9, 2))], (4,), FAST)
    assert worker.shapes == [[4], [9, 2]]


@pytest.mark.parametrize("stage", ["prepare", "round", "drop"])
def test_a_failing_worker_is_reported_and_the_other_goes_on(stage):
    log: list[str] = []
    workers = [ScriptedWorker("bad", [1.0] * 3, log, fails_at=stage), ScriptedWorker("good", [2.0] * 3, log)]
    timings = measure([Entry(worker.name, worker, "add") for worker in workers], (4,), FAST)
    assert timings["good"].rounds == [2.0] * 3
    if stage != "drop":
        assert timings["bad"].error == "bad: scripted failure"
        assert timings["bad"].seconds is None


def test_an_entry_that_took_its_time_gets_no_further_round():
    log: list[str] = []
    workers = [ScriptedWorker("slow", [7.0] * 3, log), ScriptedWorker("quick", [0.1] * 3, log)]
    timings = measure([Entry(worker.name, worker, "add") for worker in workers], (4,), replace(FAST, entry_seconds=60))
    assert len(timings["slow"].rounds) == 1, "ten calls of 7 s are more than a minute"
    assert len(timings["quick"].rounds) == 3


def test_the_loop_passes_positional_and_keyword_arguments_and_applies_the_suffix():
    seen: list[tuple] = []

    def function(a, b, out=None):
        seen.append((a, b, out))
        return []

    loop = Prepared(function, (1, 2), {"out": 3}, suffix=".sort()").loop()
    assert loop(4) >= 0.0
    assert seen == [(1, 2, 3)] * 4


def test_calls_fill_a_round():
    assert calls_per_round(lambda calls: calls * 1e-4, 0.01) == 100
    assert calls_per_round(lambda calls: calls * 1.0, 0.01) == 1


def test_a_start_finds_its_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python is told to leave none beside the sources."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = environment(2)
    assert "PYTHONDONTWRITEBYTECODE" not in found and found["PYTHONPYCACHEPREFIX"]


@pytest.mark.parametrize(("later", "said"), [
    ("cpu 190 0 10 500 0 0 0 50 0 0", "took 20%"), ("cpu 340 0 10 9 0 0 0 1 0 0", ""), ("intr 1", ""), ("", "")])
def test_what_the_host_took_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], later: str,
                                    said: str) -> None:
    """A virtual machine's processors are others' too: figures of such a time are not to be believed."""
    lines = iter(["cpu 0 0 0 9 0 0 0 0 0 0", later])
    monkeypatch.setattr(machine, "read_text", lambda path: next(lines))
    run.run_theme("no_such_theme", None)  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert "no_such_theme" in printed and (said in printed if said else "the host" not in printed)
