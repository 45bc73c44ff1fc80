"""After thousands of requests, many of them cancelled, the engine holds what it held after hundreds."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest
from engine_models import llama

from morpho.runtime.memory.pool import pool
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Event, QueueFull, Request, SamplingParams
from morpho.serve.engine.sequence import Group, Sequence
from morpho.serve.engine.stream import RequestStream

REQUESTS = 300
AT_ONCE = 24


class Client:
    """Keeps some requests on their way; each event may cancel its own."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.draw = engine, random.Random(seed)
        self.ends: Counter[str] = Counter()
        self.room = threading.Semaphore(AT_ONCE)

    def send(self) -> None:
        draw = self.draw
        shared = [7] * draw.choice((0, 0, 70, 130))
        prompt = (*shared, *(draw.randrange(97) for _ in range(draw.choice((1, 3, 20, 66, 150)))))
        params = SamplingParams(temperature=draw.choice((0.0, 1.0)), max_tokens=draw.randrange(1, 12),
                                n=draw.choice((1, 1, 1, 3)), seed=1)
        self.room.acquire()
        try:
            stream = self.engine.submit(Request(prompt, params, "r", deadline_s=draw.choice((None, None, 0.02))))
        except QueueFull:
            self.ends["full"] += 1
            self.room.release()
            time.sleep(0.01)
            return
        leave, left = draw.randrange(1, 5) if draw.random() < 0.4 else 0, [params.n]

        def heard(event: Event) -> None:
            nonlocal leave
            leave -= 1
            if leave == 0:
                stream.cancelled = True
            if event.finish is not None:
                self.ends[event.finish] += 1
                left[0] -= 1
                if not left[0]:
                    self.room.release()
        stream.on_event(heard)

    def settle(self) -> None:
        """Until nothing is on its way."""
        for _ in range(AT_ONCE):
            assert self.room.acquire(timeout=120)
        for _ in range(AT_ONCE):
            self.room.release()


def held(engine: Engine) -> dict[str, Any]:
    """What could grow, counted."""
    gc.collect()
    pages = engine.scheduler.pages
    nodes, stack = 0, [*pages.roots.values()]
    while stack:
        node = stack.pop()
        nodes += 1
        stack += node.children.values()
    kinds = Counter(type(each).__name__ for each in gc.get_objects()
                    if isinstance(each, Sequence | Group | RequestStream | Event))
    return {"nodes": nodes, "heap": len(pages._leaves), "free": len(pages.free), "cached": pages.cached,
            "used": pages.used, "siblings": len(engine.stepper.siblings), "waiting": len(engine.scheduler.waiting),
            "functions": len(engine.runner.functions), "objects": sum(kinds.values()),
            "recompiles": engine.stats().recompiles, "pool": pool().stats()["live_bytes"]}


@pytest.mark.parametrize("pages", [40])
def test_after_thousands_of_requests_it_holds_what_it_held_after_hundreds(pages: int, seed: int) -> None:
    with Engine(llama(), pages=pages, max_batch=8, max_waiting=20, warm=True) as engine:
        for _ in range(6):  # turns in which all five functions are loaded: which are used when depends on the load
            engine.refresh()
        client = Client(engine, seed)
        seen = []
        for _ in range(3):
            for _ in range(REQUESTS // 3):
                client.send()
            client.settle()
            seen.append(held(engine))
        assert client.ends["cancelled"] > 50 and client.ends["length"] > 50, client.ends
        for found in seen:
            assert found["used"] == found["siblings"] == found["waiting"] == found["recompiles"] == 0, found
            assert found["free"] + found["cached"] == pages
            assert found["nodes"] <= pages + 1 and found["heap"] <= 4 * pages + 64
            assert found["objects"] < 60, found
        assert seen[2]["functions"] == seen[1]["functions"]
        assert seen[2]["pool"] <= seen[1]["pool"] + (1 << 16), seen
