"""Would a step of a small network gain by running what does not depend on one another side by side?

`python -m benchmarks.gpu.branches [device]`. The launches of a step of MLP 64-64-64 as CUDA graphs: one after the
other, with and without launches that come early, and in two streams, where a launch waits for those alone whose memory
it touches. Times of one replay.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from functools import partial
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.queueing import each_us
from morpho import nn, optim
from morpho.backends.cuda.driver import early_launch
from morpho.backends.cuda.driver.launch_code import ENTRY_WORDS
from morpho.backends.registry import backend_of


def step_of(device: str, sizes: tuple[int, ...], rows: int) -> Any:
    """A native call of a training step that was captured."""
    layers: list[Any] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.GELU()]
    model = nn.Sequential(*layers[:-1]).to(device)
    optimiser = optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        loss = nn.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    run = mo.compile(step)
    x = mo.asarray(np.random.default_rng(0).standard_normal((rows, sizes[0])).astype("f"), device=device)
    y = mo.asarray(np.arange(rows) % sizes[-1], device=device)
    for _ in range(6):
        run(x, y)
    (chosen,) = run.specialisations.values()
    return chosen, run, (x, y)


def touched(chosen: Any, device: str) -> list[tuple[set[Any], set[Any]]]:
    """Of every launch the places it reads and writes, temporaries by their bytes in the arena."""
    from morpho.runtime.plans import on_device

    executable: Any = on_device.executable(chosen.plan.graph, device)
    found = []
    for step in executable.program.steps:
        places = [set(), set()]  # type: ignore[var-annotated]
        for number, place in enumerate(step.views):
            if place is None:
                continue
            slot = executable.program.slots[place.slot]
            first, last = (slot.offset // 64, -(-(slot.offset + slot.nbytes) // 64))
            keys = ({("arena", line) for line in range(first, last)} if slot.kind == "temporary"
                    else {(slot.kind, slot.index)})
            places[number in step.writes] |= keys
        found.append((places[0], places[1]))
    return found


def needs(places: list[tuple[set[Any], set[Any]]]) -> list[set[int]]:
    """The launches that each must wait for; what writes a result waits for all readers of inputs: it may be theirs."""
    found: list[set[int]] = []
    for number, (reads, writes) in enumerate(places):
        results = any(key[0] == "result" for key in writes)
        found.append({before for before in range(number)
                      if places[before][1] & (reads | writes) or places[before][0] & writes
                      or (results and any(key[0] == "input" for key in places[before][0]))})
    return found


def captured(gpu: Any, work: Any) -> Any:
    """A graph of what is launched meanwhile, ready to be replayed."""
    queue, graph, ready = gpu.stream(0), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.driver.call("cuStreamBeginCapture_v2", queue, 2)
    work()
    gpu.driver.call("cuStreamEndCapture", queue, ctypes.byref(graph))
    gpu.driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
    return ready


def two_streams(gpu: Any, table: Any, waits: list[set[int]], early: bool) -> None:
    """Launches with their words as they are: the longest chain in stream 0, the others in stream 1."""
    depth = [0] * len(waits)
    for number in reversed(range(len(waits))):
        depth[number] = 1 + max((depth[later] for later in range(len(waits)) if number in waits[later]), default=0)
    chain, at = set(), max(range(len(waits)), key=lambda n: depth[n])
    while True:
        chain.add(at)
        following = [n for n in range(len(waits)) if at in waits[n]]
        if not following:
            break
        at = max(following, key=lambda n: depth[n])
    plain = early_launch.launch_function(ctypes.cast(gpu._launch, ctypes.c_void_p).value or 0, 0)
    kinds = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    launches = [ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address) for address in (plain, gpu._launch_address)]
    events: dict[int, Any] = {}
    streams = [gpu.stream(0), gpu.stream(2)]
    begun = gpu.record(0).handle
    gpu.driver.call("cuStreamWaitEvent", streams[1], begun, 0)
    behind = [set(), set()]  # type: ignore[var-annotated]
    for number, wanted in enumerate(waits):
        side = int(number not in chain)
        others = {n for n in wanted if int(n not in chain) != side} - behind[side]
        for other in sorted(others):
            gpu.driver.call("cuStreamWaitEvent", streams[side], events[other], 0)
            behind[side] |= {other} | {n for n in range(other) if int(n not in chain) != side}
        row = table.table[ENTRY_WORDS * number:ENTRY_WORDS * (number + 1)]
        first = number == min(n for n in range(len(waits)) if int(n not in chain) == side)
        attribute = 1 if early and not others and not first and side == 0 else None
        status = launches[attribute is not None](row[0], row[1], 1, 1, row[2], 1, 1, row[3], streams[side], row[5],
                                                 attribute)
        assert status == 0, status
        event = ctypes.c_void_p()
        gpu.driver.call("cuEventCreate", ctypes.byref(event), 2)
        gpu.driver.call("cuEventRecord", event, streams[side])
        events[number] = event
    last = [n for n in range(len(waits)) if n not in chain]
    if last:
        gpu.driver.call("cuStreamWaitEvent", streams[0], events[last[-1]], 0)
    print("   in stream 0:", sorted(chain), flush=True)


def compared(device: str, sizes: tuple[int, ...], rows: int) -> None:
    """Times of one network's step."""
    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    chosen, run, given = step_of(device, sizes, rows)
    call = chosen.served.executable.call
    table, waits = call.table, needs(touched(chosen, device))
    print(sizes, "waits", [sorted(one) for one in waits], flush=True)
    print("   a call:", each_us(gpu, lambda: run(*given), 200), flush=True)
    plain = early_launch.launch_function(ctypes.cast(gpu._launch, ctypes.c_void_p).value or 0, 0)
    slots, queue = list(table.slots), gpu.stream(0)

    def replayed(name: str, work: Any) -> None:
        ready = captured(gpu, work)
        print(f"   {name}:", each_us(gpu, lambda: gpu.driver.handle.cuGraphLaunch(ready, queue), 200), flush=True)

    for name, function in (("one by one", plain), ("early", gpu._launch_address)):
        replayed(name, partial(table.launch, slots, call.arena[2], 0, queue, function, gpu._encode_address))
    for early in (False, True):
        replayed(f"two streams, early {early}", partial(two_streams, gpu, table, waits, early))


def main(device: str = "cuda:0") -> None:
    """Two networks."""
    for sizes, rows in (((64, 64, 64), 32), ((784, 1024, 1024, 10), 256)):
        compared(device, sizes, rows)


if __name__ == "__main__":
    main(*sys.argv[1:2])
