"""Programs that nobody compiled, on a GPU: recorded as the CPU's are, with its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho.base.errors import DeviceError, IndexFault
from morpho.tensor.steps import Step, counts


def _steps(device: str) -> list[float]:
    """Losses of a model that is trained without `compile`, by a rate that changes."""
    mo.nn.seed(3)
    model = mo.nn.Linear(8, 4).to(device)
    optimiser = mo.optim.AdamW(model.parameters(), 1e-2)
    x = mo.asarray(np.random.default_rng(0).standard_normal((16, 8), dtype=np.float32)).to(device)
    losses = []
    for turn in range(4):
        loss = mo.mean((model(x) - 0.25 * turn) ** 2)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        assert loss.device == device
        losses.append(loss.item())
    return losses


def test_a_training_step_is_one_program(gpu: str) -> None:
    want = _steps("cpu")
    _steps(gpu)
    plans, runs, apart = counts.plans, counts.runs, sum(counts.unrecorded.values())
    assert _steps(gpu) == want
    assert counts.plans - plans <= 1 and counts.runs - runs <= 8 and sum(counts.unrecorded.values()) == apart


def test_a_look_is_a_native_call(native: Native) -> None:
    x = mo.asarray(np.arange(8, dtype=np.float32), device="cuda")
    for _ in range(3):
        y = mo.exp(x * 0.5) + 1.0
        assert type(y._node) is Step and y.device == x.device
        np.testing.assert_allclose(y.numpy(), np.exp(np.arange(8) * 0.5) + 1, rtol=1e-6)
    plan = [plan for step in _above(x) for plan in step.plans.values()][0]
    assert plan.native_calls >= 1


def _above(x: mo.Tensor) -> list[Any]:
    from morpho.tensor.steps import root_of

    steps, stack = [], [root_of(x.device)]
    while stack:
        steps.append(stack.pop())
        stack += [step for step in steps[-1].following.values() if isinstance(step, Step)]
    return steps


def test_values_of_no_operand_lie_where_new_values_go(gpu: str) -> None:
    x = mo.asarray(np.arange(6, dtype=np.float32), device=gpu)
    before = mo.arange(6) > 3  # in no recording of the GPU's
    chosen = mo.where(before, x, 0)
    inside = mo.ones(3) + 1.0  # in one
    assert (before.device, chosen.device, inside.device) == ("cpu", gpu, "cpu")
    np.testing.assert_array_equal(chosen.numpy(), [0, 0, 0, 0, 4, 5])
    np.testing.assert_array_equal(inside.numpy(), [2, 2, 2])
    assert inside.device == "cpu" and before.numpy().sum() == 2
    with mo.device(gpu):
        there = mo.arange(4) * 2
        assert there.device == gpu and type(there._node) is Step
        np.testing.assert_array_equal((x * 2 + mo.ones(6)).numpy(), np.arange(6) * 2 + 1)
        np.testing.assert_array_equal(there.numpy(), [0, 2, 4, 6])


def test_devices_in_turn(gpu: str) -> None:
    here, there = mo.asarray(np.ones(4, np.float32)), mo.asarray(np.full(4, 2, np.float32), device=gpu)
    for _ in range(3):
        first, second = here * 3.0, there * 3.0
        third = first + 1.0
        assert (first.device, second.device, third.device) == ("cpu", gpu, "cpu")
        assert third.numpy().tolist() == [4] * 4 and second.numpy().tolist() == [6] * 4
    with pytest.raises(DeviceError, match="operands lie on"):
        here + there
    assert (there + np.ones(4, np.float32)).numpy().tolist() == [3] * 4  # an array lies nowhere
    mo.synchronize(gpu)
    mo.synchronize()
    with pytest.raises(DeviceError):
        mo.synchronize("nowhere")


def test_arrays_beside_tensors_go_where_those_are(gpu: str) -> None:
    """Also where what was computed from them waits in a recording of another device, among values of that device."""
    here, there = mo.asarray(np.ones(4, np.float32)), mo.asarray(np.full(4, 2, np.float32), device=gpu)
    image = mo.asarray(np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6))
    wanted = mo.nn.interpolate(image, size=(8, 7), mode="bilinear").numpy()
    first = here * 3.0
    np.testing.assert_array_equal(mo.nn.interpolate(image.to(gpu), size=(8, 7), mode="bilinear").numpy(), wanted)
    second = there * 3.0
    np.testing.assert_array_equal(mo.nn.interpolate(image, size=(8, 7), mode="bilinear").numpy(), wanted)
    assert first.numpy().tolist() == [3] * 4 and second.numpy().tolist() == [6] * 4


def test_a_fault_reaches_all_that_follows_from_it(gpu: str) -> None:
    """A recording is computed by several programs the first times; the last of them is the one that is waited for."""
    x, rows = mo.asarray(np.ones((3, 4), np.float32), device=gpu), mo.asarray(np.array([0, 9]), device=gpu)
    for _ in range(3):
        with pytest.raises(IndexFault, match="outside its axis"):
            (x[rows] * 2.0).numpy()
    with mo.settings(record=False):
        chosen = x[rows].realise()
        later = (chosen * 2.0).realise() + 1.0
        for value in (later, chosen, later):
            with pytest.raises(IndexFault, match="outside its axis"):
                value.numpy()
    assert (x * 2.0).numpy().sum() == 24


@pytest.mark.parametrize("record", [True, False])
def test_a_named_device_wins_over_that_of_the_block(gpu: str, record: bool) -> None:
    with mo.settings(record=record):
        for block in ("cpu", gpu):
            with mo.device(block):
                waiting = mo.ones(2) * 2.0
                for name in ("cpu", gpu):
                    values = [mo.ones(2, device=name), mo.ones(2).to(name), mo.ones_like(waiting, device=name)]
                    assert [value.device for value in values] == [name] * 3
                    assert sum(values[1:], values[0]).numpy().tolist() == [3, 3] and values[0].device == name
                assert waiting.device == block


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
def test_a_mask_of_any_count_takes_one_program(gpu: str, rng: np.random.Generator, dtype: str) -> None:
    values = (rng.standard_normal((30, 40)) * 9).astype(dtype)
    x = mo.asarray(values, device=gpu)
    for turn, limit in enumerate((0, -3, 5, 100)):
        mask = values > limit
        plans = counts.plans
        np.testing.assert_array_equal(x[mo.asarray(mask, device=gpu)].numpy(), values[mask])
        assert turn < 2 or counts.plans == plans
        for got, want in zip(mo.nonzero(mo.asarray(mask, device=gpu)), np.nonzero(mask), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
