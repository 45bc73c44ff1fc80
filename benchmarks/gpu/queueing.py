"""What queueing costs on this machine: the driver's launches, graphs and events alone, then compiled calls.

`python -m benchmarks.gpu.queueing [device]`.
"""

from __future__ import annotations

import cProfile
import ctypes
import pstats
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.cuda.driver import early_launch
from morpho.backends.registry import backend_of
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.runtime.memory.device_memory import allocate_on, part
from morpho.runtime.plans import on_device


def each_us(gpu: Any, work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Microseconds of one: to queue, and altogether."""
    work()
    gpu.synchronize()
    best = (1e9, 1e9)
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            work()
        queued = time.perf_counter()
        gpu.synchronize()
        best = min(best, (1e6 * (queued - started) / times, 1e6 * (time.perf_counter() - started) / times))
    return best


def chain(device: str, count: int) -> tuple[Any, Any]:
    """A program of so many launches that depend on each other, and a call of it."""
    a = mo.Tensor.of_node(build("parameter", index=0, shape=(64, 64), dtype=mo.float32))
    x = a
    for _ in range(count):
        x = mo.softmax(x @ a, axis=-1)
    graph = Graph((x.node,))
    executable: Any = on_device.executable(graph, device)
    given, made = (part(allocate_on(device, (64, 64), mo.float32)) for _ in range(2))
    return executable, lambda: executable.enqueue([given], [made], {})


def driver(device: str) -> None:
    """Launches one by one, and the same as a graph."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    handle, queue = gpu.driver.handle, gpu.stream(0)
    event = gpu.record(0).handle
    print("event record", each_us(gpu, lambda: handle.cuEventRecord(event, queue), 1000), flush=True)
    for count in (1, 50):
        executable, call = chain(device, count)
        call()
        (prepared,) = executable.prepared.values()
        table = prepared.table
        if table is None:
            continue
        print(f"program of {table.count} launches, enqueue:", each_us(gpu, call, 50), flush=True)
        slots = list(table.slots)
        again = lambda slots=slots, table=table: gpu.launch_all(table, slots, 0, 0, 0)
        print("   native loop alone:", each_us(gpu, again, 50), flush=True)
        plain = early_launch.launch_function(ctypes.cast(gpu._launch, ctypes.c_void_p).value or 0, 0)
        print("   the same by cuLaunchKernel:", each_us(gpu, partial(
            table.launch, slots, 0, 0, queue, plain, gpu._encode_address), 50), flush=True)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.driver.call("cuStreamBeginCapture_v2", queue, 1)
        again()
        gpu.driver.call("cuStreamEndCapture", queue, ctypes.byref(graph))
        started = time.perf_counter()
        gpu.driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        print(f"   instantiate {1e6 * (time.perf_counter() - started):.0f} us", flush=True)
        print("   graph launch:", each_us(gpu, lambda ready=ready: handle.cuGraphLaunch(ready, queue), 50), flush=True)


def library(device: str) -> None:
    """Products under `fast`: what they cost to queue, and their rate."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    for size in (256, 2048, 4096):
        a, b = (mo.asarray(np.ones((size, size), "f"), device=device).astype(mo.bfloat16).realise() for _ in range(2))
        for fast in (False, True):
            with mo.settings(fast=fast):
                f = mo.compile(lambda x, y: x @ y)
                queued, each = each_us(gpu, lambda f=f, a=a, b=b: f(a, b), 100)
            print(f"{size}^3 bfloat16, fast {fast}: {queued:.1f} us to queue, {each:.1f} us each, "
                  f"{2 * size ** 3 / each / 1e6:.0f} TFLOP/s, native {f.native_calls} of {f.calls}", flush=True)


def calls(device: str) -> None:
    """Compiled calls from Python, and where their time goes."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    small = mo.asarray(np.ones(1024, np.float32), device=device)
    f = mo.compile(lambda t: t * 2 + 1)
    out = mo.empty((1024,), device=device)
    print("a compiled call of one kernel:", each_us(gpu, lambda: f(small), 500), flush=True)
    print("   with out=:", each_us(gpu, lambda: f(small, out=out), 500), flush=True)
    print("   native calls:", f.native_calls, "of", f.calls, flush=True)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(1000):
        f(small)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    for work in (driver, library, calls):
        try:
            work(chosen)
        except Exception:
            traceback.print_exc()
