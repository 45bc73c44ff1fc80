"""The pool: threads and forks, statistics, and all of it at random."""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from callers import together
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pools import SIZES, Clock

from morpho.base.errors import MemoryLimit
from morpho.runtime.memory import pool as pool_module
from morpho.runtime.memory.pool import Allocation, Pool, size_class

# ---------------------------------------------------------------------------------------------- threads and fork


def _hammer(pool: Pool, seed: int, errors: list[str], rounds: int) -> None:
    random = np.random.default_rng(seed)
    held: list[np.ndarray] = []
    for step in range(rounds):
        nbytes = int(random.choice([64, 100, 1000, 5000, 70_000, 1_100_000]))
        view = pool.acquire(nbytes).numpy(np.uint32, nbytes // 4)
        view[:] = seed * 1_000_000 + step
        held.append(view)
        if len(held) > 8:
            gone = held.pop(int(random.integers(len(held))))
            if not (gone == gone[0]).all() or gone[0] // 1_000_000 != seed:
                errors.append(f"thread {seed} found {gone[0]}")
        if step % 97 == 0:
            pool.trim()
            pool.stats()


def test_eight_threads_never_see_each_others_data() -> None:
    pool, errors = Pool(idle_s=0.001), []
    together(lambda number: _hammer(pool, number + 1, errors, 400), 8, switch_s=1e-5)
    assert not errors
    stats = pool.stats()
    assert stats["live_blocks"] == stats["live_bytes"] == stats["fragmentation_bytes"] == 0
    assert pool.trim() == stats["free_bytes"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_its_copies_and_can_allocate() -> None:
    pool = Pool()
    view = pool.acquire(2_000_000).numpy(np.uint8, 2_000_000)
    small = pool.acquire(100).numpy(np.uint8, 100)
    view[:], small[:] = 1, 1
    pool.acquire(5000)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            pool.acquire(3_000_000)
            pool.trim()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    view[:], small[:] = 2, 2
                    mine = pool.acquire(2_000_000, zero=True).numpy(np.uint8, 2_000_000)
                    fine = not mine.any() and (view == 2).all() and pool.stats()["live_blocks"] >= 3
                    other = threading.Thread(target=pool.trim, daemon=True)
                    other.start()
                    other.join(5)
                    code = 0 if fine and not other.is_alive() else 2
                finally:
                    os._exit(code)
            deadline = time.monotonic() + 20
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    pytest.fail("the child hangs")
                time.sleep(0.001)
            assert os.waitstatus_to_exitcode(ended[1]) == 0
    finally:
        stop.set()
        thread.join()
    assert (view == 1).all() and (small == 1).all()


# ---------------------------------------------------------------------------------------------------- statistics


def test_statistics() -> None:
    pool = Pool()
    block = pool.acquire(1500)
    pool.acquire(100)
    pool.acquire(100)
    assert pool.stats() == {
        "live_bytes": 1536, "live_blocks": 1, "free_bytes": 128, "free_blocks": 1, "peak_bytes": 1664,
        "acquires": 3, "hits": 1, "misses": 2, "hit_rate": 1 / 3, "fragmentation_bytes": 36,
        "fragmentation": 36 / 1536, "limit_bytes": 0, "regions": 0,
    }  # fmt: skip
    assert block.nbytes == 1500
    assert set(Pool().stats()) == set(pool.stats())


def test_the_module_is_the_process_pool() -> None:
    before = pool_module.stats()["live_blocks"]
    block = pool_module.acquire(777)
    assert pool_module.pool().stats()["live_blocks"] == before + 1
    with pool_module.region() as region:
        assert region.acquire(5).nbytes == 5
    del block
    assert pool_module.trim() >= size_class(777)


class PoolMachine(RuleBasedStateMachine):
    """Any order of acquire, view, release, trim, time passing: live memory is disjoint, intact and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.pool = Pool(limit_bytes=8_000_000, idle_s=1.0, clock=self.clock)
        self.live: list[tuple[Allocation | None, np.ndarray, int]] = []
        self.serial = 0

    @rule(nbytes=st.one_of(st.integers(0, 3000), st.sampled_from(SIZES)), zero=st.booleans())
    def acquire(self, nbytes: int, zero: bool) -> None:
        try:
            block = self.pool.acquire(nbytes, zero)
        except MemoryLimit:
            live = sum(size_class(view.nbytes) for _, view, _ in self.live)
            assert live + size_class(nbytes) > 8_000_000
            return
        view = block.numpy(np.uint8, nbytes)
        assert not zero or not view.any()
        self.serial = self.serial % 250 + 1
        view[:] = self.serial
        self.live.append((block, view, self.serial))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000))
    def release(self, which: int) -> None:
        self.live.pop(which % len(self.live))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000))
    def keep_only_the_view(self, which: int) -> None:
        _, view, serial = self.live[which % len(self.live)]
        self.live[which % len(self.live)] = (None, view, serial)

    @rule()
    def trim(self) -> None:
        self.pool.trim()
        assert self.pool.stats()["free_bytes"] == 0

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @invariant()
    def live_blocks_are_disjoint_and_intact(self) -> None:
        spans = []
        for _, view, serial in self.live:
            assert (view[:: max(1, view.size // 50)] == serial).all() and (view[-1:] == serial).all()
            address = view.__array_interface__["data"][0]
            if view.size:
                spans.append((address, address + size_class(view.nbytes)))
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))

    @invariant()
    def the_books_balance(self) -> None:
        stats = self.pool.stats()
        assert stats["live_blocks"] == len(self.live)
        assert stats["live_bytes"] == sum(size_class(view.nbytes) for _, view, _ in self.live)
        assert stats["fragmentation_bytes"] == stats["live_bytes"] - sum(view.nbytes for _, view, _ in self.live)
        assert stats["live_bytes"] + stats["free_bytes"] == self.pool._held_bytes <= stats["peak_bytes"] <= 8_000_000
        assert stats["hits"] + stats["misses"] == stats["acquires"]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
