"""Layers that come to a device for their turn: a model that does not fit runs, with the CPU's bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends import registry
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import ArgumentError, MemoryLimit


@pytest.fixture
def small() -> Iterator[str]:
    """A GPU with 96 KiB."""
    registry.register("cuda_tiny", lambda number: CudaBackend(
        f"cuda_tiny:{number}", EmulatedDevice(number, (9, 0), 96 << 10)), numbered=True)
    yield "cuda_tiny:0"
    registry.unregister("cuda_tiny")


def test_a_model_that_does_not_fit_runs_layer_by_layer(small: str, rng: np.random.Generator) -> None:
    layers = [mo.nn.Linear(64, 64) for _ in range(8)]  # 16 KiB each
    x = mo.asarray(rng.standard_normal((3, 64)).astype("f"))
    want: Any = x
    for layer in layers:
        want = layer(want)
    run = mo.nn.stream(layers, device=small)
    for turn in range(2):
        got = run(x)
        assert got.device == small and got.numpy().tobytes() == want.numpy().tobytes()
        assert run.uploads == 8 * (turn + 1)
    assert all(layer.weight.device == "cpu" for layer in layers)  # they are as they were
    with pytest.raises(MemoryLimit):
        mo.nn.Sequential(*layers).to(small)


def test_what_is_no_module_is_said() -> None:
    with pytest.raises(ArgumentError, match="int is no module"):
        mo.nn.stream([3], device="cpu")  # type: ignore[list-item]
