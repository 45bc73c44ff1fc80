"""One peer in its own process: reads a command per line, answers a line of JSON, and is blocked in between.

    python -m benchmarks.harness.worker benchmarks.peers.numpy.core 2       # peer module, threads
    {"command": "load"}
    {"command": "prepare", "label": "a", "case": "softmax", "shape": [16, 256], "round_seconds": 0.01}
    {"command": "round", "label": "a", "calls": 100}
    {"command": "drop"}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

LONG_CALL_S = 1.0  # calls beyond it are neither repeated in a round nor warmed up before it


class Worker:
    """Answers commands for one peer."""

    def __init__(self, module: str, threads: int) -> None:
        self.module = module
        self.threads = threads
        self.peer: ModuleType | None = None
        self.loops: dict[str, Callable[[int], float]] = {}
        self.long: set[str] = set()

    def load(self) -> dict[str, Any]:
        """Import the peer; a peer that is not installed is missing, not wrong."""
        try:
            self.peer = importlib.import_module(self.module)
            return {"versions": self.peer.load(self.threads)}
        except (ImportError, AttributeError) as error:
            return {"missing": str(error)}

    def prepare(self, label: str, case: str, shape: list[int], round_seconds: float) -> dict[str, Any]:
        """Make inputs, compile, check the answer against float64, find the number of calls that fill a round."""
        cases = importlib.import_module(getattr(self.peer, "CASES_MODULE", "benchmarks.core.cases"))
        inputs = cases.make_inputs(case, tuple(shape))
        prepared = self.peer.prepare(case, inputs)
        start = time.perf_counter()
        results = self.peer.to_numpy(prepared.function(*prepared.arguments, **prepared.keywords))
        elapsed = time.perf_counter() - start
        error_share = cases.check(case, inputs, results)
        answer = cases.answer(case, results) if hasattr(cases, "answer") else None  # to compare with other peers'
        del results  # an export of a result would keep `out=` from being written
        loop = self.loops[label] = prepared.loop()
        if elapsed > LONG_CALL_S:
            self.long.add(label)
        return {"error_share": error_share, "answer": answer,
                "calls": 1 if label in self.long else calls_per_round(loop, round_seconds)}

    def why_not(self, case: str) -> dict[str, Any]:
        """A sentence when the peer says that it cannot do a case."""
        ask = getattr(self.peer, "why_not", None)
        return {"reason": ask(case) if ask else None}

    def round(self, label: str, calls: int) -> dict[str, Any]:
        """One call to wake caches and threads, then the timed ones, without garbage collection."""
        loop = self.loops[label]
        if label not in self.long:
            loop(1)
        gc.disable()
        try:
            return {"seconds": loop(calls) / calls}
        finally:
            gc.enable()

    def drop(self) -> dict[str, Any]:
        """Forget the inputs and results of all that is prepared."""
        self.loops.clear()
        self.long.clear()
        gc.collect()
        return {}


def calls_per_round(loop: Callable[[int], float], round_seconds: float) -> int:
    """Double the calls until they fill a quarter of a round, then scale."""
    calls = 1
    while True:
        seconds = loop(calls)
        if seconds >= round_seconds / 4 or calls >= 1 << 24:
            return max(1, round(calls * round_seconds / max(seconds, 1e-9)))
        calls *= 2


def answer(worker: Worker, message: dict[str, Any]) -> dict[str, Any]:
    """Run a command; an exception becomes an answer that names it."""
    command = message.pop("command")
    try:
        return {"ok": True, **getattr(worker, command)(**message)}
    except KeyError as error:
        return {"ok": False, "error": f"no case {error} in this peer"}
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [""])[0]
        return {"ok": False, "error": f"{type(error).__name__}: {first_line}"}


def pin(threads: int) -> None:
    """Keep this process on as many cores as it may have threads: it binds even peers without a setting."""
    if hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, usable[:threads])


def main(module: str, threads: int) -> None:
    """Serve until the parent closes the pipe. What a peer prints goes to stderr, not into the protocol."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    pin(threads)
    worker = Worker(module, threads)
    waiting_cpu = waiting_wall = 0.0
    cpu, wall = time.process_time(), time.perf_counter()
    for line in iter(sys.stdin.readline, ""):
        waiting_cpu += time.process_time() - cpu
        waiting_wall += time.perf_counter() - wall
        reply = answer(worker, json.loads(line))
        reply["waiting_cpu_share"] = waiting_cpu / waiting_wall if waiting_wall else 0.0
        cpu, wall = time.process_time(), time.perf_counter()
        channel.write(json.dumps(reply) + "\n")
        channel.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
