"""The machine's measured limits, and the times of steps against them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.runtime import measure


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small measurements: these tests look at what is kept, not at the figures."""
    monkeypatch.setattr(measure, "ROUNDS", 1000)
    monkeypatch.setattr(measure, "SWEEP_BYTES", 1 << 20)
    measure._measured.cache_clear()


def test_figures_are_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mo.settings(cache_dir=str(tmp_path), threads=1):
        first = measure.machine_profile()
        measure._measured.cache_clear()
        monkeypatch.setattr(measure, "fma_peak", lambda dtype: 1 / 0)
        assert measure.machine_profile() == first
    assert list(json.loads((tmp_path / "profile.json").read_text())) == [first.name]
    assert first.flops_per_s > 0 and first.bytes_per_s > 0


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 3}'])
def test_a_spoilt_file_is_measured_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "profile.json").write_text(text)
    with mo.settings(cache_dir=str(tmp_path), threads=1):
        assert measure.machine_profile().flops_per_s > 0


def test_measured_steps_stand_beside_their_limit(rng: np.random.Generator, tmp_path: Path) -> None:
    x = mo.asarray(rng.standard_normal((40, 40)).astype(np.float32))
    f = mo.compile(lambda a: mo.softmax(a @ a, axis=-1).sum(axis=0))
    with mo.settings(cache_dir=str(tmp_path)):
        times = f.measure(x, repeats=2)
        assert len(times["measured_s"]) == len(times["predicted_s"]) == f.stats["kernels"]
        assert all(second > 0 for row in times.values() for second in row)
        text = f.explain()
    assert "at the limit" in text and "share" in text and "%" in text
    with pytest.raises(ArgumentError, match="repeats=0"):
        f.measure(x, repeats=0)


def test_a_step_counts_its_operations() -> None:
    f = mo.compile(lambda a, b: mo.relu(a @ b))
    f(mo.ones((40, 30)), mo.ones((30, 50)))
    step = f.current.plan.program.steps[-1]
    assert 2 * 40 * 30 * 50 <= step.cost.flops <= 2 * 40 * 30 * 50 + 10 * 40 * 50
    assert step.cost.bytes >= 4 * (40 * 30 + 30 * 50 + 40 * 50)
