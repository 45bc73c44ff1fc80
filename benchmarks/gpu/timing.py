"""Device times: medians between CUDA events, of Morpho's programs and of PyTorch's."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from morpho.backends.registry import backend_of
from morpho.ir.graph import Graph
from morpho.runtime.memory.buffer import Buffer
from morpho.runtime.memory.device_memory import allocate_on, part
from morpho.runtime.plans import on_device


class Clock:
    """Two events of a stream."""

    def __init__(self, device: str) -> None:
        self.gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
        self.gpu.enter()
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            self.gpu.driver.call("cuEventCreate", ctypes.byref(event), 0)

    def seconds(self, work: Callable[[], Any], times: int) -> float:
        """Of one of so many in a row."""
        queue = self.gpu.stream(0)
        self.gpu.driver.call("cuEventRecord", self.events[0], queue)
        for _ in range(times):
            work()
        self.gpu.driver.call("cuEventRecord", self.events[1], queue)
        self.gpu.driver.call("cuEventSynchronize", self.events[1])
        found = ctypes.c_float()
        self.gpu.driver.call("cuEventElapsedTime", ctypes.byref(found), *self.events)
        return found.value / 1e3 / times


    def in_graph(self, work: Callable[[], Any], times: int) -> float:
        """Of one of so many in a row, replayed as a graph: what the host takes to queue them is not seen."""
        driver, queue = self.gpu.driver, self.gpu.stream(0)
        made, ready = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuStreamBeginCapture_v2", queue, 2)
        for _ in range(times):
            work()
        driver.call("cuStreamEndCapture", queue, ctypes.byref(made))
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), made, ctypes.c_uint64(0))
        found = statistics.median(self.seconds(lambda: driver.call("cuGraphLaunch", ready, queue), 1)
                                  for _ in range(7)) / times
        driver.call("cuGraphExecDestroy", ready)
        driver.call("cuGraphDestroy", made)
        return found


def morpho_seconds(device: str, outputs: Sequence[Any], inputs: Sequence[Buffer], repeats: int = 7,
                   target_s: float = 0.02) -> float:
    """The median time of a graph of tensors over parameters, results in memory that is there."""
    graph = Graph(tuple(tensor.node for tensor in outputs))
    executable = on_device.executable(graph, device)
    results = [allocate_on(device, node.shape, node.dtype) for node in graph.outputs]  # type: ignore[arg-type]
    given, made = [part(buffer) for buffer in inputs], [part(buffer) for buffer in results]
    call = getattr(executable, "native_call", lambda count: None)(len(given))
    if call is not None:  # as a compiled function's native entry queues it
        function = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(call.function)
        addresses = (ctypes.c_int64 * (len(given) + len(made)))(*[buffer.address for buffer in (*given, *made)])
        context = (ctypes.c_int64 * 1)(call.context)

    def work() -> None:
        if call is None:
            executable.enqueue(given, made, {})
        elif function(ctypes.addressof(addresses), ctypes.addressof(context)):
            raise RuntimeError("a launch failed")

    clock = Clock(device)
    for _ in range(2):
        work()
    backend_of(device).synchronize()
    once = max(clock.seconds(work, 3), 1e-7)
    times = max(1, min(200, int(target_s / once)))
    return statistics.median(clock.seconds(work, times) for _ in range(repeats))


def torch_seconds(work: Callable[[], Any], repeats: int = 7, target_s: float = 0.02) -> float:
    """The median time of PyTorch's."""
    import torch

    def once(times: int) -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(times):
            work()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3 / times

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = max(1, min(200, int(target_s / max(once(3), 1e-7))))
    return statistics.median(once(times) for _ in range(repeats))
