"""The tuner from a function to a choice in force, with times that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.cost.tuned_choices import PLAIN, Choice
from morpho.runtime import thresholds
from morpho.runtime.tuner import background, store
from morpho.runtime.tuner.slices import Slice
from morpho.runtime.tuner.tuner import Tuned, Tuner
from morpho.tensor.tools import tune as tools


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with mo.settings(cache_dir=str(tmp_path / "cache"), threads=2):
        yield tmp_path
    store._kept.cache_clear()
    thresholds.tuned_anew()


def made(rows: int = 40) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    x, w = (mo.asarray(rng.standard_normal(shape).astype(np.float32), copy=True) for shape in ((rows, 64), (64, 64)))
    compiled = mo.compile(lambda x, w: mo.relu(x @ w))
    compiled(x, w)
    return compiled, x, w


class Times:
    """Seconds by choice, with a little noise of a fixed kind; the clock goes on with each."""

    def __init__(self, fast: Choice, gain: float) -> None:
        self.fast, self.gain, self.now_s, self.count = fast, gain, 0.0, 0

    def __call__(self, part: Slice, choice: Choice) -> float:
        self.count += 1
        seconds = 1e-3 * (1 + 0.01 * (self.count % 7))
        wanted = self.fast.row()
        if all(getattr(choice, name) == value for name, value in wanted.items()):
            seconds /= self.gain
        self.now_s += seconds
        return seconds


def tuned(compiled: Any, times: Times, known: Any = None, anew: bool = False, budget_s: float = 10.0) -> list[Tuned]:
    plan = compiled.current.plan
    tuner = Tuner(thresholds.current(), budget_s, anew, clock=lambda: times.now_s, sample=times)
    return tuner.tune(plan.lowered.problems.values(), plan.constants, known or {})


def test_a_faster_choice_is_found_kept_followed_and_told() -> None:
    compiled, x, w = made()
    expected = compiled(x, w).numpy().tobytes()
    found = tuned(compiled, Times(Choice(vectors=2, height=8), 1.4))
    (one,) = [one for one in found if one.row is not None]
    assert one.row is not None and one.row.choice.vectors == 2 and 1.3 < one.row.gain < 1.5
    tools.keep(found)
    assert compiled(x, w).numpy().tobytes() == expected
    assert "from the tuner: mr 8, nr 2 vectors" in compiled.explain()
    with mo.settings(tune="off"):
        compiled(x, w)
        assert "from the tuner" not in compiled.explain()


def test_a_gain_below_the_margin_is_left_alone() -> None:
    compiled, *_ = made()
    assert all(one.row is None for one in tuned(compiled, Times(Choice(tile_rows=16), 1.06)))


def test_a_kept_choice_that_is_slower_now_is_rolled_back() -> None:
    compiled, x, w = made()
    times = Times(Choice(tile_rows=16), 1.4)
    tools.keep(tuned(compiled, times))
    known = store.kept().rows
    assert known
    stays = tuned(compiled, times, known)
    assert [one.row for one in stays if one.key in known] == list(known.values())
    found = tuned(compiled, Times(Choice(tile_rows=16), 0.7), known)
    assert any(one.rolled_back for one in found)
    tools.keep(found)
    assert not store.kept().rows
    compiled(x, w)
    assert "from the tuner" not in compiled.explain()


def test_the_time_box_is_kept() -> None:
    compiled, *_ = made()
    times = Times(Choice(tile_rows=16), 1.4)
    tuned(compiled, times, budget_s=0.02)
    assert times.now_s < 0.06


def test_tune_of_a_function_keeps_its_bits_and_reports() -> None:
    compiled, x, w = made()
    expected = compiled(x, w).numpy().tobytes()
    report = mo.tune(compiled, x, w, budget_s=0.5)
    assert compiled(x, w).numpy().tobytes() == expected
    assert "problems explored" in str(report)
    assert all(one.row is None or one.row.gain >= 1.1 for one in report.found)


def test_tune_refuses_what_it_cannot_tune() -> None:
    with pytest.raises(ValueError, match="budget_s=0 is not positive"):
        mo.tune(lambda x: x, mo.ones(3), budget_s=0)
    with pytest.raises(ValueError, match="is not a function"):
        mo.tune(3)


def test_slower_as_a_whole_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every problem by itself is faster, the whole is not: nothing is kept."""
    compiled, x, w = made()
    monkeypatch.setattr(tools, "_whole", lambda *given: (0.8, True))
    row = store.Row(Choice(tile_rows=16), 1.3, 5)
    key = next(iter(compiled.current.plan.lowered.problems))
    monkeypatch.setattr(tools, "explored", lambda *given: [Tuned(key, 1e-3, row, "made up")])
    report = mo.tune(compiled, x, w, budget_s=1.0)
    assert report.rolled_back and not report.switched and not store.kept().rows


def test_the_whole_is_compared_on_the_same_function() -> None:
    compiled, x, w = made()
    key = next(iter(compiled.current.plan.lowered.problems))
    choices = thresholds.current().choices.with_choice(key, Choice(tile_rows=16))
    gain, slower = tools._whole(compiled, choices, 0.05, (x, w), {})
    assert gain > 0 and slower in (True, False)


def test_what_changes_bits_is_never_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, *_ = made()
    plan = compiled.current.plan
    problem = next(iter(plan.lowered.problems.values()))
    part = Slice(problem, plan.constants, thresholds.current())
    monkeypatch.setattr(Slice, "bits", lambda self, choice: [b"1" if choice.tile_rows else b"0"])
    offered = Tuner(thresholds.current(), 1.0).offered(part, PLAIN)
    assert offered and not any(choice.tile_rows for choice in offered)


def test_a_script_is_recorded() -> None:
    with tools.Recorder() as recorder:
        made(41)
    assert len(recorder.plans) >= 1
    with tools.Recorder() as other:
        pass
    assert not other.plans


def test_background_work_keeps_to_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of its own: samples take a millisecond; when it is done, a hundredth of the time has been spent."""
    compiled, x, w = made()
    clock = Times(Choice(tile_rows=16), 1.5)
    worker = background.Background(clock=lambda: clock.now_s,
                                   sleep=lambda seconds: setattr(clock, "now_s", clock.now_s + seconds))
    monkeypatch.setattr(background, "Tuner", lambda *given, **named: Tuner(*given, **named, sample=clock))
    found = worker.explore(compiled.current.plan)
    assert any(one.row is not None for one in found)
    assert any(row.choice.tile_rows == 16 for row in store.kept().rows.values())
    worker.pay()
    assert worker.ration.spent_s > 0
    assert worker.ration.spent_s <= 0.01 * clock.now_s + 1e-6
    assert worker.explore(compiled.current.plan) == []  # looked at a moment ago


def test_plans_made_under_background_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(background, "note", noted.append)
    with mo.settings(tune="background"):
        made(43)
    assert noted
    count = len(noted)
    made(44)
    assert len(noted) == count


def test_a_user_who_names_threads_is_followed() -> None:
    x = mo.ones((40, 64))
    compiled = mo.compile(lambda x: mo.matmul(x, x.T, algorithm="kernel"))
    compiled(x)
    assert compiled.current is not None
    key = next(iter(compiled.current.plan.lowered.problems))
    here = thresholds.current()
    forced = replace(here, choices=here.choices.with_choice(key, Choice(threads="many")))
    with thresholds.using(forced):
        other = mo.compile(lambda x: mo.matmul(x, x.T, algorithm="kernel"))
        other(x)
    assert other.current is not None
    assert "many" not in [step.threads for step in other.current.plan.program.steps]


@pytest.mark.parametrize("looks", range(3, 40, 4))
def test_a_search_that_is_stopped_in_the_middle_changes_nothing(looks: int) -> None:
    """A clock that says infinity from some look on is how the thread in the background is stopped."""
    compiled, _, _ = made()
    plan, seen = compiled.current.plan, []

    def clock() -> float:
        seen.append(1)
        return 1e-3 * len(seen) if len(seen) < looks else float("inf")

    tuner = Tuner(thresholds.current(), 60.0, clock=clock)
    known = {key: store.Row(Choice(threads="one"), 2.0, 9) for key in plan.lowered.problems}
    problems = plan.lowered.problems.values()
    assert not any(found.row or found.rolled_back for found in tuner.tune(problems, plan.constants, {}))
    seen.clear()
    assert not any(found.rolled_back for found in tuner.tune(problems, plan.constants, known))
