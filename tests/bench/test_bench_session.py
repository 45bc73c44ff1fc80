"""Real worker processes with a fake peer: right, wrong, missing, crashing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.kept import Kept
from benchmarks.harness.rounds import Pace
from benchmarks.harness.run import Options, run
from benchmarks.harness.session import Session

FAST = Pace(rounds=2, round_seconds=0.0005, pause_seconds=0.0)


def session(fault: str = "") -> Session:
    """A session whose only peer has a fault."""
    extra = {"FAKE_FAULT": fault, "PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parent}"}
    return Session({"fake": "fake_peer"}, threads=1, pace=FAST, extra_environment=extra)


@pytest.fixture
def open_session():
    """Sessions that are closed after the test."""
    opened: list[Session] = []

    def make(fault: str = "") -> Session:
        opened.append(session(fault))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_a_peer_is_measured_and_blocked_while_it_waits(open_session):
    running = open_session()
    timing = running.measure("add", (64,), ["fake", "not asked for"])["fake"]
    assert timing.error is None
    assert len(timing.rounds) == 2
    assert timing.error_share <= 1.0
    assert running.versions == {"fake": {"fake": "1.0"}}
    assert running.waiting_cpu_shares()["fake"] < 0.5
    assert "no case 'softmax'" in running.measure("softmax", (4, 4), ["fake"])["fake"].error


def test_a_wrong_result_is_an_error(open_session):
    timing = open_session("wrong").measure("add", (64,), ["fake"])["fake"]
    assert "wrong result" in timing.error
    assert timing.seconds is None


def test_a_missing_peer_is_listed_with_the_way_to_get_it(open_session):
    running = open_session("missing")
    assert running.measure("add", (64,), ["fake"]) == {}
    assert running.missing_lines() == ["missing: fake (No module named 'fake'); pip install -e '.[bench]'"]


def test_a_crash_is_reported_and_the_peer_started_anew(open_session):
    running = open_session("crash")
    timing = running.measure("add", (64,), ["fake"])["fake"]
    assert "status 7 during 'prepare'" in timing.error
    first = running.processes["fake"]
    assert running.worker("fake") is not first
    first.close()


def test_a_run_goes_on_where_it_was(tmp_path, open_session):
    file = tmp_path / "out.json"
    running = open_session()
    running.kept = Kept(file)
    first = running.measure("add", (64,), ["fake"])
    assert "no case" in running.measure("softmax", (4, 4), ["fake"])["fake"].error
    again = open_session("crash")  # nothing that is kept reaches the peer
    again.kept = Kept(file, resume=True)
    assert again.measure("add", (64,), ["fake"]) == first
    assert not again.processes and list(again.kept.found) == list(running.kept.found)
    assert "status 7" in again.measure("add", (65,), ["fake"])["fake"].error
    again.kept.deadline = -1.0
    assert again.measure("add", (66,), ["fake"]) == {} and again.kept.left == 1
    assert again.measure("add", (64,), ["fake"]) == first


def test_a_file_to_go_on_with_is_one_or_a_sentence(tmp_path, capsys):
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"kept": 3}')
    assert run(Options(suite="linalg", json=wrong, resume=True)) == 2
    assert run(Options(suite="linalg", resume=True)) == 2
    said = capsys.readouterr().out.splitlines()
    assert "has no measurements to go on with" in said[0] and "none is named" in said[1]
    assert Kept(tmp_path / "not yet.json", resume=True).found == {}
