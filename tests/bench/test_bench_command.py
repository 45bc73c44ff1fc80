"""``morpho bench`` without its command line: finds the checkout, hands options on."""

from __future__ import annotations

import pytest

from morpho.base.errors import MorphoError
from morpho.cli.machine import bench


def test_options_reach_the_harness(capsys):
    assert bench.run_suite("core", only="99") == 2
    assert "no theme '99'" in capsys.readouterr().out


def test_a_file_without_a_place_is_told_before_anything_runs(capsys, tmp_path):
    assert bench.run_suite("kernels", only="mlp", json=tmp_path) == 2
    assert "is a folder" in capsys.readouterr().out
    assert bench.run_suite("kernels", only="mlp", json=tmp_path / "nowhere" / "figures.json") == 2
    assert capsys.readouterr().out == f"[bench] there is no folder {tmp_path / 'nowhere'} for figures.json.\n"


def test_an_installed_wheel_has_no_benchmarks_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    with pytest.raises(MorphoError, match=r"\[bench\] the benchmarks are in the repository.* Hint: clone"):
        bench.run_suite("core")
