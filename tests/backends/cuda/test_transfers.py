"""Pinned memory, batches that are copied ahead, and the device's own clock, on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.driver.memory import MemoryPool
from morpho.backends.registry import backend_of
from morpho.data import DataLoader
from morpho.runtime.trace import device_events, spans


def test_pinned_arrays_hold_what_they_were_made_from(gpu: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((300, 7)).astype("f")
    pinned = mo.pin(x[::2], device=gpu)
    x[:] = 0
    assert pinned.shape == (150, 7) and pinned.any()
    assert np.array_equal(mo.asarray(pinned, device=gpu).numpy(), pinned)


def test_a_loader_copies_the_next_batch_while_the_loop_has_one(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = backend_of(gpu).gpu  # type: ignore[attr-defined]
    begun: list[int] = []
    plain = device.copy_ahead

    def copy_ahead(address: int, source: Any) -> Any:
        begun.append(len(source))
        return plain(address, source)

    monkeypatch.setattr(device, "copy_ahead", copy_ahead)
    data = [(np.full(4, n, np.float32), n) for n in range(6)]
    loader = DataLoader(data, batch_size=2, device=gpu)
    seen = []
    for number, (x, y) in enumerate(loader):
        assert x.device == gpu and y.device == gpu
        assert len(begun) == 2 * min(number + 2, 3)  # two tensors of each batch, one batch ahead
        seen.append((x.numpy()[:, 0].tolist(), y.tolist()))
    assert seen == [([0.0, 1.0], [0, 1]), ([2.0, 3.0], [2, 3]), ([4.0, 5.0], [4, 5])]
    assert loader.state_dict()["epoch"] == 1


def test_runs_are_told_by_the_devices_clock(gpu: str) -> None:
    x = mo.ones((64, 64), device=gpu).realise()
    kept, spans.sink = spans.sink, []
    try:
        (x @ x).numpy()
        device_events.settle()
        found = [span for span in spans.sink if span.detail.get("on_device")]
    finally:
        spans.sink = kept
    assert found and all(span.detail["clock"] == "device" and span.end_ns > span.start_ns for span in found)


class Driver:
    """One that has a gigabyte, and gives addresses out one after another."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def status(self, name: str, address: Any, nbytes: Any) -> int:
        self.asked.append(nbytes.value)
        address._obj.value = sum(self.asked)
        return 0 if nbytes.value <= 1 << 30 else 2


def test_large_blocks_waste_a_page_at_most_and_are_taken_again() -> None:
    from types import SimpleNamespace

    driver = Driver()
    pool = MemoryPool(SimpleNamespace(driver=driver, number=0))  # type: ignore[arg-type]
    first = pool.allocate((1 << 30) - 5)  # nearly all there is
    assert driver.asked == [1 << 30]
    pool.free(first, 0)
    assert pool.allocate(1000 << 20) == first and len(driver.asked) == 1  # a little larger will do
    assert pool.allocate(800 << 20) != first and driver.asked[1:] == [800 << 20]
