"""The time of every kernel of a language model's forward pass.

`python -m benchmarks.gpu.steps [device] [rows] [length]`. Each launch of the program is repeated by itself, with the
addresses of a whole run.
"""

from __future__ import annotations

import collections
import ctypes
import sys
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.first import GPT2
from benchmarks.gpu.timing import Clock
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.registry import backend_of
from morpho.runtime.plans import on_device


def main(device: str = "cuda:0", rows: str = "8", length: str = "1024") -> None:
    """Print the time of each kind of step."""
    model = mo.models.create("gpt2", **GPT2).astype(mo.bfloat16).to(device)
    shape = int(rows), int(length)
    tokens = mo.asarray(np.random.default_rng(0).integers(0, GPT2["vocab_size"], shape), device=device)
    run = mo.compile(lambda t: model(t))
    for _ in range(3):
        run(tokens)
    show_steps(run, device)


def show_steps(run: Any, device: str) -> None:
    """The time of every kernel of a compiled function, which the native entry has called."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    gpu.synchronize()
    if run.current.served is None:
        print("it goes through Python")
        return
    plan = run.current.plan
    executable: Any = on_device.executable(plan.graph, plan.device)
    call = run.current.served.executable.call
    clock, found, words_of = Clock(device), collections.defaultdict(list), call.table
    labels = [(number, executable.program.steps[number]) for number, _ in executable._prepare({}).launches]
    for place, (_, step) in enumerate(labels):
        function, blocks, threads, shared, words = words_of.entry(place)[:5]
        given = (gpu_words(words), Geometry(blocks, threads, shared))
        handle = type(gpu.context)(function)
        taken = clock.in_graph(lambda handle=handle, given=given: gpu.launch(handle, given[1], given[0], 0), 20)
        found[f"{step.label} {step.choice} {[v.shape for v in step.views if v is not None][-1]}"].append(taken)
    total = sum(sum(times) for times in found.values())
    print(f"{total * 1e3:.2f} ms in {len(labels)} launches")
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1])):
        print(f"{1e6 * sum(times):9.1f} us  {len(times):3} x {1e6 * sum(times) / len(times):8.1f}  {name}", flush=True)


def leave_out(run: Any, device: str) -> None:
    """The time of all launches of a compiled function as one graph, and what is saved where one kind is left out."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    plan, call = run.current.plan, run.current.served.executable.call
    executable: Any = on_device.executable(plan.graph, plan.device)
    steps = [executable.program.steps[number] for number, _ in executable._prepare({}).launches]
    labels = [f"{step.label} {[v.shape for v in step.views if v is not None][-1]}" for step in steps]
    launch, table, clock = gpu._launch_address, call.table, Clock(device)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)(launch)

    def seconds(without: str, early: bool) -> float:
        def work() -> None:
            for place, label in enumerate(labels):
                if label != without:
                    kernel, blocks, threads, shared, _, arguments = table.entry(place)[:6]
                    function(kernel, blocks, 1, 1, threads, 1, 1, shared, gpu.stream(0), arguments,
                             int(early and place > 0))

        return clock.in_graph(work, 1)

    for early in (False, True):
        whole = seconds("", early)
        print(f"{'early' if early else 'plain'} launches: {1e6 * whole:.0f} us", flush=True)
        for label in dict.fromkeys(labels):
            count = labels.count(label)
            saved = whole - seconds(label, early)
            print(f"{1e6 * saved:9.1f} us less without {count:3} x {1e6 * saved / count:6.2f}  {label}", flush=True)


def gpu_words(address: int) -> Any:
    """The words of a launch where they lie."""
    return (ctypes.c_int64 * 1).from_address(address)


if __name__ == "__main__":
    main(*sys.argv[1:4])
