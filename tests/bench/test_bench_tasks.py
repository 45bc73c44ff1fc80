"""The theme of tasks turns a probe's answer into tables, targets and a ratio; the probe itself runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.core import tasks
from benchmarks.harness.probe import ProbeError, probe

ANSWER = {
    "per_task_s": {"submit": 4e-6, "chain": 8e-6, "map": 2e-7, "pool": 16e-6},
    "uneven": {way: {"imbalance": 0.01, "cpu_share": 0.9, "seconds": 0.1} for way in ("submit", "map")},
    "idle_share": 0.0001,
}
SESSION = SimpleNamespace(threads=2, quick=True)


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "probe", lambda *arguments, **options: ANSWER)
    result = tasks.run(SESSION)
    assert result.ratios == {"submit vs ThreadPoolExecutor": 4.0} and not result.errors
    assert [target.verdict for target in result.targets] == ["PASS"] * 6
    uneven = {**ANSWER, "uneven": {"map": {"imbalance": 0.2, "cpu_share": 0.5, "seconds": 0.1}}}
    monkeypatch.setattr(tasks, "probe", lambda *arguments, **options: uneven)
    assert [target.verdict for target in tasks.run(SESSION).targets] == ["PASS", "MISS", "MISS", "PASS"]


def test_a_probe_that_fails_is_an_error_of_the_theme(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: str, **options: int) -> None:
        raise ProbeError("no answer")

    monkeypatch.setattr(tasks, "probe", fails)
    assert tasks.run(SESSION).errors == ["no answer"]


def test_the_probe_answers() -> None:
    answer = probe("tasks", "2", "quick")
    assert answer.keys() == ANSWER.keys() and answer["per_task_s"].keys() == ANSWER["per_task_s"].keys()
    assert all(figures.keys() == ANSWER["uneven"]["map"].keys() for figures in answer["uneven"].values())
