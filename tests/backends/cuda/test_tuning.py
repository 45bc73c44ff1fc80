"""Kernels of the same bits race on a device: with a simulated clock, on the emulated grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.registry import backend_of
from morpho.base.errors import ArgumentError
from morpho.cost.tuned_choices import PLAIN, Choice
from morpho.runtime import thresholds
from morpho.runtime.plans import on_device
from morpho.runtime.tuner import space
from morpho.runtime.tuner.device_slices import DeviceSlice
from morpho.runtime.tuner.tuner import Tuner


def problems(f: Any, gpu: str) -> list[Any]:
    plan = f.current.plan
    return list(on_device.executable(plan.graph, gpu).program.problems.values())


def test_tiles_of_products_and_teams_of_rows_have_the_same_bits(gpu: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((40, 12)).astype("f"), device=gpu)
    w = mo.astype(mo.asarray(rng.standard_normal((64, 64)).astype("f"), device=gpu), mo.bfloat16).realise()
    a = mo.sparse.random(30, 40, density=0.2, key=mo.random.key(0)).to(gpu)
    f = mo.compile(lambda x, w, a: (x.T @ x, w @ w, a @ x))
    f(x, w, a)
    found = problems(f, gpu)
    kinds = sorted(problem.key.split()[0] for problem in found if problem.kind == "device")
    assert kinds == ["matmul", "matmul", "spmm"]
    for problem in found:
        if problem.kind == "device":
            part = DeviceSlice(problem, gpu)
            others = space.neighbours(problem, PLAIN)
            assert others and all(part.bits(other) == part.bits(PLAIN) for other in others), problem.key
            assert part.seconds(others[0], 0.0) > 0


def test_a_faster_tile_is_taken_kept_and_followed(gpu: str, rng: np.random.Generator, monkeypatch: Any,
                                                  tmp_path: Any) -> None:
    monkeypatch.setenv("MORPHO_CACHE_DIR", str(tmp_path))
    x = mo.asarray(rng.standard_normal((40, 24)).astype("f"), device=gpu)
    f = mo.compile(lambda x: x.T @ x)
    want = f(x).numpy()
    noise = np.random.default_rng(0)
    tuner = Tuner(thresholds.current(), 60.0, device=gpu, sample=lambda part, choice: (
        1e-3 if choice.way == "64x64" else 2e-3) * noise.uniform(0.98, 1.02))
    (found,) = tuner.tune(problems(f, gpu), (), {})
    assert found.row is not None and found.row.choice == Choice(way="64x64") and " on emulated " in found.key
    with thresholds.using(mo_choices(found)):
        again = mo.compile(lambda x: x.T @ x)
        assert np.array_equal(again(x).numpy(), want)
        (step,) = on_device.executable(again.current.plan.graph, gpu).program.steps
        assert step.kernel.tile[:2] == (64, 64)
        backend: Any = backend_of(gpu)
        code = backend.compile(backend.lower(again.current.plan.graph))
        backend.recent = None
    assert backend.load(code).program.steps[0].kernel.tile[:2] == (64, 64)  # as it was compiled, whatever is in force
    backend.choices = type(backend.choices)()


def mo_choices(found: Any) -> Any:
    from dataclasses import replace

    now = thresholds.current()
    return replace(now, choices=now.choices.with_choice(found.key, found.row.choice))


def test_tune_takes_functions_of_a_gpu(gpu: str) -> None:
    x = mo.ones((16, 16), device=gpu)
    report = mo.tune(lambda x: x @ x, x, budget_s=0.2)
    assert all(" on emulated " in one.key for one in report.found)
    with mo.device("reference"), pytest.raises(ArgumentError, match="neither for the CPU"):
        mo.tune(lambda x: x @ x, mo.ones((4, 4)), budget_s=0.2)
