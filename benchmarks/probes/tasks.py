"""Tasks: what scheduling one costs, beside a standard thread pool, and how evenly uneven work is spread."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_pool
from typing import Any

import numpy as np

import morpho as mo
from morpho.runtime.tasks.scheduler import imbalance

LONGEST = 400_000  # elements of the largest tile: some milliseconds
IDLE_S = 1.0


def nothing() -> None:
    """The cheapest task."""


def per_task_s(submit: Callable[..., Any], wait: Callable[[list[Any]], Any], count: int) -> float:
    """Seconds from the first submit to the last result, per task."""
    start = time.perf_counter()
    wait([submit(nothing) for _ in range(count)])
    return (time.perf_counter() - start) / count


def overhead(threads: int, count: int, rounds: int) -> dict[str, float]:
    """Medians over alternating rounds."""
    times: dict[str, list[float]] = {"submit": [], "chain": [], "map": [], "pool": []}
    with mo.tasks.Scheduler(threads) as scheduler, ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            times["submit"].append(per_task_s(scheduler.submit, mo.tasks.wait, count))
            times["pool"].append(per_task_s(pool.submit, wait_pool, count))
            start = time.perf_counter()
            future = scheduler.submit(int)
            for _ in range(count):
                future = scheduler.submit(abs, future)
            future.result()
            times["chain"].append((time.perf_counter() - start) / count)
            start = time.perf_counter()
            mo.tasks.map(abs, range(count), scheduler=scheduler)
            times["map"].append((time.perf_counter() - start) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def uneven(threads: int, tiles: int, submit: bool) -> dict[str, float]:
    """Tiles of very different sizes whose work gives up the interpreter lock."""
    lengths = (LONGEST * np.random.default_rng(0).random(tiles) ** 3).astype(int) + 1000
    source, targets = np.linspace(0, 9, LONGEST + 1000), np.empty((tiles, LONGEST + 1000))

    def work(number: int) -> None:
        np.sin(source[:lengths[number]], out=targets[number, :lengths[number]])

    with mo.tasks.Scheduler(threads) as scheduler:
        mo.tasks.map(work, range(tiles), scheduler=scheduler)  # touches all memory, starts all threads
        before = scheduler.stats()["busy_s"]
        cpu, wall = time.process_time(), time.perf_counter()
        if submit:
            mo.tasks.wait([scheduler.submit(work, number) for number in range(tiles)])
        else:
            mo.tasks.map(work, range(tiles), scheduler=scheduler)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        busy = [now - then for now, then in zip(scheduler.stats()["busy_s"], before, strict=True)]
    mean = sum(busy) / threads
    return {"imbalance": max(busy) / mean - 1, "cpu_share": cpu / (wall * threads), "seconds": wall}


def count(turns: int) -> tuple[int, float]:
    """Work of plain Python, in whatever process: which, and seconds of its processor."""
    begun, total = time.process_time(), 0
    for number in range(turns):
        total += number * number % 7
    return os.getpid(), time.process_time() - begun


def uneven_python(processes: int, tiles: int) -> dict[str, float]:
    """Tiles of very different sizes that hold the interpreter lock, on processes; shares are of processors' time."""
    turns = (2 * LONGEST * np.random.default_rng(0).random(tiles) ** 3).astype(int).tolist()
    with mo.tasks.Scheduler(processes=processes) as scheduler:
        mo.tasks.map(count, [LONGEST] * (2 * processes), 1, scheduler=scheduler)  # starts them all
        wall, used = time.perf_counter(), Counter[int]()
        for process, seconds in mo.tasks.map(count, turns, scheduler=scheduler):
            used[process] += seconds
        wall = time.perf_counter() - wall
    busy = [*used.values()]
    return {"imbalance": imbalance(busy, processes), "cpu_share": sum(busy) / (wall * processes), "seconds": wall}


def idle(threads: int) -> float:
    """Share of one core that sleeping workers use."""
    with mo.tasks.Scheduler(threads) as scheduler:
        mo.tasks.map(time.sleep, [0.001] * 20, scheduler=scheduler)
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(IDLE_S)
        return (time.process_time() - cpu) / (time.perf_counter() - wall)


def main(threads: int, quick: bool) -> None:
    """Print all figures."""
    count, rounds = (2_000, 3) if quick else (20_000, 7)
    runs = [{"submit": uneven(threads, 200, True), "map": uneven(threads, 200, False),
             "map of plain Python on processes": uneven_python(threads, 40 if quick else 200)} for _ in range(rounds)]
    tiles = {way: {name: statistics.median(run[way][name] for run in runs) for name in runs[0][way]}
             for way in runs[0]}
    print(json.dumps({"per_task_s": overhead(threads, count, rounds), "uneven": tiles, "idle_share": idle(threads)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), "quick" in sys.argv[2:])
