"""The rates of a device, measured once in a process by small programs: a product in float32 and in bfloat16, an
elementwise operation, and copies to and from it. It takes some tenths of a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.backends.auto.choice import Rates
from morpho.backends.base import Backend
from morpho.base.dtypes import DType, bfloat16, float16, float32
from morpho.ir.graph import Graph
from morpho.ir.node import build

SIDE = {True: 1024, False: 384}  # of a product, on a GPU and on the CPU
ELEMENTS = 1 << 22
TIMES = 3


def rates_of(backend: Backend) -> Rates:
    """Best of three of each."""
    link = not backend.host_memory
    side = SIDE[link]
    products = {dtype: 2.0 * side**3 / _seconds(backend, "matmul", (side, side), dtype)
                for dtype in (float32, bfloat16)}
    wide, one = _seconds(backend, "add", (ELEMENTS,), float32), _seconds(backend, "add", (1,), float32)
    rate = 12.0 * ELEMENTS / max(wide - one, 1e-9)
    per_call = one if link else 1e-6
    return Rates(products[float32], max(products.values()), rate, 3e-6 if link else 1e-6,
                 _link(backend) if link else 0.0, per_call)


def node_rates(backend: Any) -> dict[str, float]:
    """A GPU as a node of the planner: its memory, what it reads and writes a second, FLOP/s of products in each type
    at sizes that fill it, and the way between it and the host."""
    sides = {"f32": (float32, 2048), "bf16": (bfloat16, 4096), "f16": (float16, 4096)}
    found = {name: 2.0 * side**3 / _seconds(backend, "matmul", (side, side), dtype)
             for name, (dtype, side) in sides.items()}
    wide, one = (_seconds(backend, "add", (count,), float32) for count in (1 << 27, 1))
    return {"memory_bytes": float(backend.memory_now()[1]), "memory_bytes_per_s": 12.0 * (1 << 27) / (wide - one),
            "link_bytes_per_s": _link(backend), "call_s": one, **found}


def _seconds(backend: Backend, name: str, shape: tuple[int, ...], dtype: DType) -> float:
    """Of one operation on operands that are there."""
    leaves = [build("parameter", index=n, shape=shape, dtype=dtype) for n in range(2)]
    graph = Graph((build(name, *leaves),))
    executable = backend.load(backend.compile(backend.lower(graph)))
    nbytes = int(np.prod(shape)) * dtype.itemsize
    buffers: list[Any] = [backend.allocate(nbytes) for _ in range(3)]
    try:
        for buffer in buffers:
            backend.copy_in(buffer, np.full(nbytes, 63, np.uint8).data).wait()
        return _best(lambda: executable.enqueue(buffers[:2], buffers[2:], {}).wait())
    finally:
        for buffer in buffers:
            backend.release(buffer)


def _link(backend: Backend) -> float:
    """Bytes per second to a device and back, the slower of both."""
    nbytes = 4 * ELEMENTS
    buffer, room = backend.allocate(nbytes), np.ones(nbytes, np.uint8)
    try:
        there = _best(lambda: backend.copy_in(buffer, room.data).wait())
        back = _best(lambda: backend.copy_out(buffer, memoryview(room)).wait())  # type: ignore[arg-type]
        return nbytes / max(there, back)
    finally:
        backend.release(buffer)


def _best(work: Callable[[], Any]) -> float:
    work()
    found = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return max(min(found), 1e-9)
