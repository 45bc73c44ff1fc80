"""Steps that several threads share, under random delays before and after their pieces: the bits of one thread.

Everything, however small, is divided; the driver is one that pauses. `python -m pytest --shuffle tests/backends/cpu
tests/fuzz` runs tests in random order within one process: what one leaves behind, another finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver import executable, threads
from morpho.base.machine import available_isas, machine
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.program import co_schedule
from morpho.runtime import thresholds

ISAS = tuple(name for name in available_isas(machine()) if name not in ("vector128", "vector256"))  # as others do
THREADS = (2, 5)
POOLS: dict[int, threads.Workers] = {}  # of that driver; kept, since threads sleep in their memory


@cache
def pausing_driver() -> executable.Native:
    assert executable._distances is not None
    return executable.Native(executable._distances, pauses=True)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    mo.ones(1).realise()  # the tensor floor is there
    monkeypatch.setattr(executable, "_native", pausing_driver())
    monkeypatch.setattr(threads, "_pools", POOLS)
    monkeypatch.setattr(co_schedule, "WORK_PER_THREAD", 1)
    divided = replace(DEFAULT, parallel_macs=1, unpacked_bytes=(), unpacked_transposed_bytes=())
    with thresholds.using(divided), mo.settings(cache=False):
        yield


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> mo.Tensor:
    if dtype.startswith("int"):
        return mo.asarray(rng.integers(-9, 9, shape).astype(dtype))
    return mo.asarray(rng.standard_normal(shape).astype("f")).astype(getattr(mo, dtype)).realise()


def _product(x: Any) -> Any:
    return mo.gelu(x @ x.mT + 1) if x.dtype.is_float else mo.matmul(x, x.mT, dtype=mo.int32)


def _attention(x: Any) -> Any:
    heads = mo.reshape(x, (1, 2, 35, 32))
    return mo.attention(heads, heads, heads, causal=True)


def _attention_gradient(x: Any) -> Any:
    return mo.grad(lambda y: mo.sum(_attention(y) ** 2))(x)


def _convolution(x: Any) -> Any:
    image, kernel = mo.reshape(x[:64, :20], (1, 2, 40, 16)), mo.reshape(x[:4, :18], (4, 2, 3, 3))
    return mo.relu(mo.conv2d(image, kernel, padding=1))


def _rows(x: Any) -> Any:
    return mo.softmax(x, axis=-1), mo.sum(x), mo.sum(x, axis=0), mo.cumulative_sum(x, axis=1)


def _together(x: Any) -> Any:
    """Small steps that need nothing of each other run as one launch."""
    return [mo.exp(x[i:i + 7]) @ mo.sin(x[i:i + 3]).mT for i in range(0, 60, 10)]


def _scattered(x: Any) -> Any:
    return mo.take(x, mo.asarray([3, 1, 3, 0]), axis=0), mo.grad(lambda y: mo.sum(mo.take(
        y, mo.asarray([3, 1, 3, 0]), axis=0) ** 2))(x)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "product": (_product, ("float32", "bfloat16", "int8", "float64")),
    "attention": (_attention, ("float32", "bfloat16")),
    "gradient of attention": (_attention_gradient, ("float32",)),
    "convolution": (_convolution, ("float32",)),
    "rows": (_rows, ("float32", "float16")),
    "together": (_together, ("float32", "bfloat16")),
    "scattered": (_scattered, ("float32",)),
}


def bits(function: Callable[[Any], Any], x: Any) -> list[bytes]:
    found = mo.compile(function)(x)
    return [part.numpy().tobytes() for part in (found if isinstance(found, tuple | list) else (found,))]


@pytest.mark.sampled
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_delays_change_no_bit(pauses: None, rng: np.random.Generator, name: str, isa: str) -> None:
    function, dtypes = PROGRAMS[name]
    for dtype in dtypes if isa == ISAS[-1] or "amx" in isa else dtypes[:1]:
        x = values(rng, (70, 32), dtype)
        with mo.settings(isa=isa, threads=1):
            want = bits(function, x)
        with mo.settings(device="reference"):
            about = [part.numpy() for part in _listed(function(x))]
        for count in THREADS:
            with mo.settings(isa=isa, threads=count):
                f = mo.compile(function)
                for _ in range(6):
                    assert [part.numpy().tobytes() for part in _listed(f(x))] == want, (dtype, count)
        for found, reference in zip(_listed(f(x)), about, strict=True):
            np.testing.assert_allclose(found.numpy().astype("d"), reference.astype("d"), rtol=0.05, atol=0.2)
    assert sum(pool.runs for pool in threads._pools.values()) > 0, "nothing was divided"


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]
