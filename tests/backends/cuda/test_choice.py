"""`device="auto"`, the device manager, and a device without memory left: injected on emulated devices."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends import registry
from morpho.backends.auto.choice import Rates
from morpho.backends.auto.manager import DeviceState, best_of
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base.errors import DeviceError, MemoryLimit
from morpho.runtime.plans import on_device

SLOW, FAST = Rates(1e9, 1e9, 1e9, 1e-6), Rates(1e13, 1e14, 1e12, 3e-6, 1e10, 1e-5)


@pytest.fixture
def small() -> Iterator[str]:
    """A GPU with a megabyte."""
    registry.register("cuda_small", lambda number: CudaBackend(
        f"cuda_small:{number}", EmulatedDevice(number, (9, 0), 1 << 20)), count=lambda: 2, numbered=True)
    yield "cuda_small:0"
    registry.unregister("cuda_small")


@pytest.fixture
def auto(small: str) -> Iterator[Any]:
    """The backend of `auto` with rates that are given: no clock decides in a test."""
    backend: Any = registry.backend_of("auto")
    kept, backend.rates = backend.rates, {"cpu": SLOW, "cuda_small:0": FAST, "cuda_small:1": FAST}
    names, backend.names = backend.names, lambda: ["cpu", "cuda_small:0", "cuda_small:1"]
    yield backend
    backend.rates, backend.names = kept, names


def test_large_products_go_to_the_gpu_and_small_ones_stay(auto: Any, rng: np.random.Generator) -> None:
    f = mo.compile(lambda a, b: a @ b + 1)
    with mo.device("auto"):
        for side, where in ((4, "cpu"), (96, "cuda_small")):
            a, b = (mo.asarray(rng.standard_normal((side, side)).astype("f")) for _ in range(2))
            before = sum(count for name, count in auto.runs.items() if name.startswith(where))
            got = f(a, b)
            assert got.device == "cpu"
            np.testing.assert_allclose(got.numpy(), a.numpy() @ b.numpy() + 1, rtol=1e-4, atol=1e-4)
            assert sum(count for name, count in auto.runs.items() if name.startswith(where)) == before + 1
        said = f.explain()
    assert "auto: runs on cuda_small:" in said and "100 % of" in said


def test_views_of_any_strides_are_brought_there(auto: Any, rng: np.random.Generator) -> None:
    auto.rates["cpu"] = Rates(1e3, 1e3, 1e3, 1.0)  # nothing stays here
    x = rng.standard_normal((20, 30)).astype("f")
    with mo.device("auto"):
        t = mo.asarray(x)
        for view, want in ((t[::-1, 3:], x[::-1, 3:]), (t.T[::2], x.T[::2]), (t[5:5], x[5:5])):
            assert np.array_equal((view * 2).numpy(), want * 2)


def test_without_a_gpu_everything_stays(auto: Any) -> None:
    auto.names = lambda: ["cpu"]
    with mo.device("auto"):
        assert mo.sum(mo.ones((100, 100))).item() == 10000
    assert "auto" not in mo.devices()


def test_rates_are_measured_once_through_the_seam(gpu: str) -> None:
    from morpho.backends.auto import measure

    found = measure._seconds(registry.backend_of(gpu), "add", (64,), mo.float32)
    assert found > 0 and measure._seconds(registry.backend_of("cpu"), "matmul", (16, 16), mo.bfloat16) > 0


def test_no_memory_is_an_error_that_says_who_holds_it(small: str) -> None:
    held = mo.ones((700, 256), device=small).realise()
    with pytest.raises(MemoryLimit, match=r"hold 717 kB of 1 MB"):
        mo.ones((700, 256), device=small).realise()
    assert held.device == small


def test_fallback_computes_on_the_cpu_counted_and_said(small: str, caplog: pytest.LogCaptureFixture) -> None:
    x = mo.asarray(np.arange(40000, dtype="f"), device=small)
    f = mo.compile(lambda a: mo.sum(mo.cumulative_sum(a.reshape(200, 200).T, axis=0) @ a.reshape(200, 200)))
    want = float(f(mo.asarray(x.numpy())))
    filler = mo.ones((200000,), device=small).realise()
    with pytest.raises(MemoryLimit):
        f(x).item()
    before = on_device.counts["fallbacks"]
    with mo.settings(fallback=True), caplog.at_level(logging.WARNING, "morpho"):
        for _ in range(2):
            got = f(x)
            assert got.device == small and float(got) == want
    assert on_device.counts["fallbacks"] == before + 2
    assert sum("runs on the CPU instead of cuda_small:0" in record.message for record in caplog.records) == 1
    del filler
    gc.collect()
    assert float(f(x)) == want and on_device.counts["fallbacks"] == before + 2


def test_auto_falls_back_too(auto: Any, rng: np.random.Generator) -> None:
    auto.rates["cpu"] = Rates(1e3, 1e3, 1e3, 1.0)
    a = rng.standard_normal((120, 120)).astype("f")
    with mo.device("auto"):
        f = mo.compile(lambda x: (x @ x) @ (x + 1))
        want = f(mo.asarray(a)).numpy()
        held = [mo.ones((240000,), device=f"cuda_small:{n}").realise() for n in range(2)]
        with pytest.raises(MemoryLimit):
            f(mo.asarray(a)).numpy()
        before = auto.fallbacks
        with mo.settings(fallback=True):
            assert np.allclose(f(mo.asarray(a)).numpy(), want)
        assert auto.fallbacks == before + 1
    del held


def test_work_goes_to_the_device_with_room_and_the_least_queued(small: str, gpu: str) -> None:
    states = [DeviceState(f"cuda:{n}", free, 200, queued) for n, (free, queued) in enumerate(
        ((100, 0), (150, 0), (190, 2)))]
    assert best_of(states, 0).device == "cuda:1" and best_of(states, 160).device == "cuda:2"
    with pytest.raises(MemoryLimit, match="no device has 195 B free: cuda:0 100 B"):
        best_of(states, 195)
    with pytest.raises(DeviceError, match="there is no GPU"):
        best_of([], 0)
    held = mo.ones((1000,), device=small).realise()
    found = {state.device: state for state in mo.device_states()}
    assert found[small].free_bytes < found["cuda_small:1"].free_bytes
    assert mo.choose_device(kind="cuda_small") == "cuda_small:1"
    assert mo.choose_device(1 << 10, "cuda_small") == "cuda_small:1" and held.device == small
