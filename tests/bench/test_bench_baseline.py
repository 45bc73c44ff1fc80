"""The regression gate, targets, and the choice of themes and peers."""

from __future__ import annotations

import importlib

import pytest

from benchmarks.harness import baseline
from benchmarks.harness.report import duration, render_table
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean, ratio
from benchmarks.harness.run import SUITES, Options, UsageError, choose_peers, choose_themes, finish

MACHINE = {"cpu": "test"}


def test_a_loss_of_more_than_a_fifth_is_a_regression():
    stored = {"a": 2.0, "b": 2.0, "c": 2.0}
    found = baseline.compare(stored, {"a": 1.61, "b": 1.59, "c": 9.0}, required=set())
    assert [regression.name for regression in found] == ["b"]
    assert "stored 2.000x (-20%)" in found[0].line() or "(-21%)" in found[0].line()


def test_a_ratio_that_vanished_counts_only_where_it_is_required():
    assert baseline.compare({"a": 2.0}, {}, required=set()) == []
    assert baseline.compare({"a": 2.0}, {}, required={"a"}) == [baseline.Regression("a", 2.0, None)]


def test_saving_keeps_other_ratios_of_the_same_machine_only(tmp_path):
    path = tmp_path / "baseline.json"
    baseline.save(path, MACHINE, {"a": 1.0})
    baseline.save(path, MACHINE, {"b": 2.0})
    assert baseline.load(path)["ratios"] == {"a": 1.0, "b": 2.0}
    baseline.save(path, {"cpu": "other"}, {"c": 3.0})
    assert baseline.load(path)["ratios"] == {"c": 3.0}


def run_gate(path, value: float | None, **options) -> int:
    """The exit status for one theme with one ratio."""
    result = ThemeResult("gelu", ratios={} if value is None else {"1000x512 vs numpy": value})
    return finish(Options(baseline=path, **options), {"machine": MACHINE}, [result])


def test_the_gate_decides_the_exit_status(tmp_path, capsys):
    path = tmp_path / "baseline.json"
    assert run_gate(path, 6.0, gate=True) == 1, "an empty baseline gates nothing and must say so"
    assert run_gate(path, 6.0, save_baseline=True) == 0
    assert run_gate(path, 5.0, gate=True) == 0
    assert run_gate(path, 4.7, gate=True) == 1
    assert run_gate(path, None, gate=True) == 1
    assert "MISS gelu/1000x512 vs numpy: 4.700x, stored 6.000x" in capsys.readouterr().out


def test_json_holds_machine_ratios_and_verdicts(tmp_path):
    import json

    result = ThemeResult("gelu", targets=[Target("speed", 7.0, 6.55)], ratios={"one": 7.0})
    finish(Options(json=tmp_path / "out.json"), {"machine": MACHINE}, [result])
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["machine"] == MACHINE
    assert content["ratios"] == {"gelu/one": 7.0}
    assert content["themes"][0]["targets"][0]["verdict"] == "PASS"


def test_targets():
    assert Target("a", 1.0, 1.0).verdict == "PASS"
    assert Target("a", 0.9, 1.0).verdict == "MISS"
    assert Target("a", 0.9, 1.0, at_least=False).verdict == "PASS"
    assert Target("a", None, 1.0).verdict == "N/A"
    assert Target("cold", 12.0, 30.0, False, " ms").line() == "PASS  cold: 12 ms (target <= 30 ms)"


def test_themes_and_peers_are_chosen_by_name_or_number():
    assert choose_themes("3,1") == ["small_calls", "fusion"]
    assert choose_themes("gelu") == ["gelu"]
    assert choose_themes("") == list(SUITES["core"].themes)
    assert list(choose_peers("numpy")) == ["morpho", "numpy"]
    with pytest.raises(UsageError, match="no theme '99'"):
        choose_themes("99")
    with pytest.raises(UsageError, match="no peer 'tensorflow'"):
        choose_peers("tensorflow")


def test_figures():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([]) is None
    assert ratio(4.0, 2.0) == 2.0
    assert ratio(None, 2.0) is None
    assert [duration(value) for value in (2.5, 2.5e-3, 2.5e-6, 2.5e-7, None)] == [
        "2.5 s", "2.5 ms", "2.5 us", "250 ns", "-"]
    assert render_table(Table("t", ["a", "b"], [["long", "1"]])).splitlines()[-1] == "long  1"


@pytest.mark.parametrize("suite", sorted(SUITES))
def test_every_theme_of_a_suite_can_run(suite: str) -> None:
    """A file that takes a theme's name breaks the command (found so)."""
    for theme in SUITES[suite].themes:
        assert callable(importlib.import_module(f"{SUITES[suite].package}.{theme}").run), theme
