"""The machine's measured limits, and the times of steps against them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.cost.estimate import Profile
from morpho.runtime import measure
from morpho.tensor.jit.bounds import step_bounds


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small measurements: these tests look at what is kept, not at the figures."""
    mo.zeros(1).realise()  # the tensor floor, which is loaded when first asked for, tells where things lie in tensors
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
        assert "bounds" not in text
        table = f.explain(bounds=True)
        assert all(words in table for words in ("memory  arithmetic      launch    at least    measured  share",
                                                "operations, by ", "all kernels: at least", "merg"))
        bounds = [bound for bound in step_bounds(f) if bound is not None]
        assert len(bounds) == f.stats["kernels"] and all(bound.seconds >= bound.launch_s > 0 for bound in bounds)
        assert sum(bound.flops for bound in bounds) >= 2 * 40 ** 3
    assert "at the limit" in text and "share" in text and "%" in text
    with pytest.raises(ArgumentError, match="repeats=0"):
        f.measure(x, repeats=0)


def _steps(function: Callable[..., mo.Tensor], *arguments: mo.Tensor) -> list[str]:
    """The steps that `explain` shows, without their lines, and without packing."""
    f = mo.compile(function)
    f(*arguments)
    lines = [line.split("kernel ")[1].split("  (")[0] for line in f.explain().splitlines() if " kernel " in line]
    return [line for line in lines if not line.startswith("pack")]


def test_products_are_explained_with_their_own_sizes() -> None:
    w, plane = mo.ones((40, 160)), mo.ones((2, 160, 841))
    assert _steps(lambda a, b: mo.relu(a @ b), mo.ones((37, 96)), mo.ones((96, 70))) == ["matmul+maximum  37 x 96 x 70"]
    assert _steps(lambda a, b: a @ b, mo.ones((8, 37, 96)), mo.ones((8, 96, 70))) == ["matmul  8 x 37 x 96 x 70"]
    assert _steps(lambda a, b: a @ b, mo.ones((2, 96)), mo.ones((96, 50))) == ["matmul (unpacked)  2 x 96 x 50"]
    assert _steps(lambda b: w @ b, plane) == ["matmul  2 x 40 x 160 x 841"]  # as a convolution by its pixels
    columns = _steps(lambda a, b: a @ b, mo.ones((300, 96)), mo.ones((96, 1)))  # computed as a row
    assert len(columns) == 1 and columns[0].endswith("300 x 96 x 1")
    whole = mo.ones((5, 4), dtype=mo.int64)
    assert _steps(lambda a: a @ a.T, whole)[-1] == "matmul  5 x 4 x 5"


def test_names_that_are_left_out_are_shown_as_dots() -> None:
    x = mo.ones((300, 300))
    long = lambda a: mo.sin(mo.exp(mo.tanh(a * 2 + 1) - 3) / 7 + 1)
    assert _steps(lambda a: long(a @ a), x) == ["matmul+multiply+add+tanh+subtract+exp+divide+...  300 x 300 x 300"]
    with mo.settings(threads=1):  # many threads have too few rows each for a prologue
        assert _steps(lambda a: long(a) @ x, x) == ["multiply+add+tanh+subtract+exp+divide+...+matmul  300 x 300 x 300"]
    assert _steps(long, x) == ["multiply+add+tanh+subtract+exp+divide+...  1 x 90000"]


def test_measuring_calls_once_more_than_it_repeats() -> None:
    count = mo.State(mo.zeros((), dtype=mo.int64))

    def step(x: mo.Tensor) -> mo.Tensor:
        count.value = count.value + 1
        return x + count.value

    mo.compile(step).measure(mo.ones(3), repeats=4)
    assert count.value.item() == 5


def test_a_step_counts_its_operations() -> None:
    f = mo.compile(lambda a, b: mo.relu(a @ b))
    f(mo.ones((40, 30)), mo.ones((30, 50)))
    step = f.current.plan.program.steps[-1]
    assert 2 * 40 * 30 * 50 <= step.cost.flops <= 2 * 40 * 30 * 50 + 10 * 40 * 50
    assert step.cost.bytes >= 4 * (40 * 30 + 30 * 50 + 40 * 50)


def test_the_limit_is_that_of_the_sizes_that_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the largest ones; double floats take two vectors, and steps of the host have no limit."""
    monkeypatch.setattr(measure, "machine_profile", lambda: Profile("any", 1e11, 1e11))  # a busy one measures others
    f = mo.compile(lambda x, w: x @ w, dynamic={"x": {0: mo.Dim("n", 1, 4096)}})
    few, many = (sum(f.measure(mo.ones((rows, 64)), mo.ones((64, 64)), repeats=1)["predicted_s"]) for rows in (8, 800))
    assert 3 * few < many
    squares = (mo.ones((1024, 1024), dtype=dtype) for dtype in (mo.float32, mo.float64))  # memory is no limit
    single, double = (mo.compile(lambda x: x @ x).measure(x, repeats=1)["predicted_s"][-1] for x in squares)
    assert double == pytest.approx(2 * single, rel=0.01)
    g = mo.compile(lambda x: mo.matmul(x, x, algorithm="blas") + 1)
    assert g.measure(mo.ones((64, 64)), repeats=1)["predicted_s"][0] == 0
    assert " - matmul_blas" in g.explain()


def test_attention_counts_the_keys_that_are_seen() -> None:
    q = mo.ones((1, 2, 40, 16))
    for how, pairs in (({}, 40 * 40), ({"causal": True}, 40 * 41 // 2), ({"causal": True, "window": 3}, 1 + 2 + 38 * 3),
                       ({"causal": True, "offset": -10}, 30 * 31 // 2)):
        f = mo.compile(lambda q, how=how: mo.attention(q, q, q, **how))
        f(q)
        assert f.current.plan.program.steps[-1].cost.flops == 2 * pairs * 2 * 32


def test_bandwidth_is_that_of_pieces_where_sweeps_are_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which every sweep, and most pieces, contain a pause: others had the core."""
    now, calls = [0.0], []  # type: ignore[var-annotated]

    def run(plan: object, addresses: list[int], results: list[int], sizes: dict[str, int]) -> None:
        calls.append(addresses[0])
        whole = len(calls) <= measure.WHOLE
        now[0] += 32e-3 + 200e-3 if whole else 1e-3 + (0 if len(calls) % 4 == 0 else 50e-3)

    monkeypatch.setattr(measure, "run_plan", run)
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(measure, "SWEEP_BYTES", 32 << 20)
    assert measure.read_bandwidth(1) == pytest.approx((1 << 20) / 1e-3)
    pieces = set(calls[measure.WHOLE:])
    assert len(pieces) == measure.PIECES and max(pieces) - min(pieces) == (31 << 20), "each part of memory in turn"
