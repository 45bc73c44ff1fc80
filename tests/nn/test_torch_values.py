"""Layers, losses, optimisers and schedules against values that PyTorch gave (`benchmarks/torch_values.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn, optim

VALUES = json.loads((Path(__file__).parent / "torch_values.json").read_text())


def array(value: Any) -> Any:
    """Numbers, among them infinities as words, as an array."""
    found = np.array(value)
    return found.astype(np.float64) if found.dtype.kind == "U" else found


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, array(wanted), rtol=1e-9, atol=1e-10)


def named(row: dict[str, Any]) -> str:
    return row["name"] + "".join(f"-{key}={value}" for key, value in row["settings"].items())


MODULES = [*VALUES["layers"], *VALUES["losses"]]
FIRST = {row["name"]: number for number, row in reversed(list(enumerate(MODULES)))}


@pytest.mark.parametrize("number", range(len(MODULES)), ids=lambda number: named(MODULES[number]))
def test_module(number: int) -> None:
    """Outputs, gradients of inputs and weights, and the buffers afterwards; names of weights are PyTorch's. The first
    row of a name runs as native code, the others by NumPy: they differ in what is computed, not in how."""
    row = MODULES[number]
    with mo.settings(device="cpu" if FIRST[row["name"]] == number else "reference"):
        check_module(row)


def check_module(row: dict[str, Any]) -> None:
    arguments = [mo.asarray(np.array(one)) if isinstance(one, list) and isinstance(one[0], float) else
                 tuple(one) if isinstance(one, list) else one for one in row["arguments"]]
    module = getattr(nn, row["name"])(*arguments, **row["settings"]).astype(mo.float64)
    own = {name for name in module.state_dict() if not name.endswith("tracked")}
    assert own == set(row["state"])
    module.load_state_dict({name: array(value) for name, value in row["state"].items()}, strict=False)
    inputs = [mo.asarray(array(value)) for value in row["inputs"]]
    for given, gradient in zip(inputs, row["input_gradients"], strict=True):
        if gradient is not None:
            given.requires_grad_()
    results = module(mo.log_softmax(inputs[0]), *inputs[1:]) if row["name"] == "CTCLoss" else module(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    for found, wanted in zip(results, row["outputs"], strict=True):
        close(found.numpy(), wanted)
    total = sum((found * mo.asarray(array(weight))).sum() for found, weight in
                zip(results, row["weights"], strict=True))
    total.backward()  # type: ignore[union-attr]
    for given, gradient in zip(inputs, row["input_gradients"], strict=True):
        if gradient is not None:
            close(given.grad.numpy(), gradient)
    for name, parameter in module.named_parameters():
        close(parameter.grad.numpy(), row["gradients"][name])
    for name, buffer in module.named_buffers():
        if name in row["buffers"]:
            close(buffer.numpy(), row["buffers"][name])


@pytest.mark.parametrize("row", VALUES["optimisers"], ids=named)
def test_optimiser(row: dict[str, Any]) -> None:
    """The weights after each of four steps on a problem with a curved bottom."""
    matrix, wanted = mo.asarray(np.linspace(-1, 1, 12).reshape(4, 3)), mo.asarray(np.array([0.5, -1.0, 0.25, 1.0]))
    weights = nn.Parameter(mo.asarray(np.array([1.0, -0.5, 0.25])))
    optimiser = getattr(optim, row["name"])([weights], **row["settings"])

    def closure() -> Any:
        optimiser.zero_grad()
        loss = mo.sum((matrix @ weights - wanted) ** 2) + mo.sum(weights ** 4)
        loss.backward()
        return loss

    for after in row["weights"]:
        assert optimiser.step(closure).shape == ()
        np.testing.assert_allclose(weights.numpy(), after, rtol=1e-7)  # PyTorch keeps NAdam's product in float32


@pytest.mark.parametrize("row", VALUES["schedules"], ids=named)
def test_schedule(row: dict[str, Any]) -> None:
    optimiser = optim.SGD([nn.Parameter([0.0])], lr=0.5, momentum=0.9)
    schedule = getattr(optim, row["name"])(optimiser, **row["settings"])
    for rate, momentum in row["rates"]:
        group = optimiser.param_groups[0]
        assert (group["lr"], group["momentum"]) == (pytest.approx(rate, rel=1e-11), pytest.approx(momentum))
        schedule.step()
