"""The pool: what it gives back, to whom and when: the collector, the cap, decay."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from pools import SIZES, Clock

from morpho.base.errors import MemoryLimit
from morpho.base.settings import settings
from morpho.runtime.memory import pool as pool_module
from morpho.runtime.memory.pool import Allocation, Pool, size_class

# ------------------------------------------------------------------------------------------------- the collector


class Phoenix:
    """Comes back to life with its block when the collector finalises both."""

    risen: list[Phoenix] = []

    def __init__(self, block: Allocation) -> None:
        self.block = block
        self.myself = self

    def __del__(self) -> None:
        Phoenix.risen.append(self)


def test_a_resurrected_block_is_not_recycled() -> None:
    pool = Pool()
    address = (phoenix := Phoenix(pool.acquire(1000))).block.address
    del phoenix
    gc.collect()
    assert Phoenix.risen[0].block.address == address
    others = [pool.acquire(1000) for _ in range(3)]
    assert address not in {other.address for other in others}
    assert pool.stats()["live_blocks"] == 4
    Phoenix.risen.pop().myself = None  # type: ignore[assignment]
    gc.collect()
    assert pool.stats()["live_blocks"] == 3
    assert pool.acquire(1000).address == address


def test_finalisers_that_allocate_during_collection_do_not_deadlock() -> None:
    pool = Pool()

    class Allocates:
        def __init__(self) -> None:
            self.myself = self
            self.block = pool.acquire(2_000_000)

        def __del__(self) -> None:
            pool.acquire(3_000_000)
            pool.stats()

    def work() -> None:
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for _ in range(50):
                Allocates()
        finally:
            gc.set_threshold(*threshold)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    gc.collect()
    assert pool.stats()["live_blocks"] == 0


def test_a_chunk_lost_to_an_interrupt_is_found() -> None:
    pool = Pool()
    pool.acquire(1000)
    pool._shelves[1024].pop()  # as a KeyboardInterrupt between taking and handing out would
    assert len(pool._chunks) == 1
    assert pool.stats()["free_blocks"] == 1
    pool._shelves[1024].pop()
    assert pool.trim() == 1024
    assert pool.stats()["free_blocks"] == pool.stats()["live_blocks"] == 0


def test_nothing_is_printed_at_exit() -> None:
    code = (
        "from morpho.runtime.memory import pool\n"
        "import builtins, sys, threading\n"
        "block = pool.acquire(100); big = pool.acquire(5_000_000).numpy('uint8', 10)\n"
        "builtins.kept = pool.acquire(2_000_000); sys.kept = [pool.acquire(7)]\n"
        "cycle = [pool.acquire(7)]; cycle.append(cycle)\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --------------------------------------------------------------------------------------------------- cap, decay


def test_the_cap_trims_free_blocks_first_then_refuses() -> None:
    pool = Pool(limit_bytes=10_000_000)
    for nbytes in (1_000_000, 3_000_000, 6_000_000, 8_000_000):
        pool.acquire(nbytes)
        stats = pool.stats()
        assert stats["live_bytes"] + stats["free_bytes"] <= 10_000_000
    held = pool.acquire(6_000_000)
    with pytest.raises(MemoryLimit, match=r"5 MB \(5000000 bytes.*6\.3 MB \(6291456 bytes\).*10 MB \(10000000 bytes\)"):
        pool.acquire(5_000_000)
    with pytest.raises(MemoryError):
        pool.acquire(5_000_000)
    assert pool.stats()["hits"] + pool.stats()["misses"] == pool.stats()["acquires"]
    del held
    pool.acquire(5_000_000)
    assert pool.stats()["peak_bytes"] <= 10_000_000


def test_the_cap_gives_back_the_block_idle_longest() -> None:
    clock = Clock()
    pool = Pool(limit_bytes=7_000_000, idle_s=1.0, clock=clock)
    pool.acquire(3_000_000)
    clock.now_s = 1.5
    younger = pool.acquire(2_000_000).address
    both = pool.stats()["free_bytes"]
    pool.acquire(2_500_000)
    assert pool.stats()["free_bytes"] == both - size_class(3_000_000) + size_class(2_500_000)
    assert pool.acquire(2_000_000).address == younger


def test_garbage_in_cycles_makes_room() -> None:
    pool = Pool(limit_bytes=10_000_000)
    gc.disable()
    try:
        cycle: list[object] = [pool.acquire(8_000_000)]
        cycle.append(cycle)
        del cycle
        assert pool.acquire(8_000_000).nbytes == 8_000_000
    finally:
        gc.enable()


def test_the_process_pool_obeys_the_settings_even_when_they_are_lowered() -> None:
    pool = Pool(limit_bytes=None)
    pool.acquire(5_000_000)
    with settings(pool_bytes=2_000_000):
        assert pool.limit_bytes == 2_000_000
        with pytest.raises(MemoryLimit):
            pool.acquire(5_000_000)
        assert pool.acquire(1_000_000).nbytes == 1_000_000
    assert pool.acquire(5_000_000).nbytes == 5_000_000
    kept = pool.acquire(5_000_000)
    pool.acquire(100)
    with settings(pool_bytes=2_000_000), pytest.raises(MemoryLimit):
        pool.acquire(100)
    assert kept.nbytes == 5_000_000


def test_a_request_no_machine_can_meet() -> None:
    for nbytes in (1 << 60, 1 << 70):
        with pytest.raises(MemoryLimit, match="the system has no"):
            Pool().acquire(nbytes)


def test_idle_blocks_go_back_busy_ones_stay() -> None:
    clock = Clock()
    pool = Pool(idle_s=5.0, clock=clock)
    pool.acquire(4_000_000)
    busy = pool.acquire(1_000)
    busy_address = busy.address
    del busy
    for _ in range(1000):
        clock.now_s += 0.1
        assert pool.acquire(1_000).address == busy_address
    assert pool.stats()["free_bytes"] == size_class(1_000)


def test_nothing_goes_back_before_its_time() -> None:
    clock = Clock()
    pool = Pool(idle_s=5.0, clock=clock)
    clock.now_s = 100.0
    address = pool.acquire(4_000_000).address
    clock.now_s = 104.9
    for _ in range(1000):
        pool.acquire(64)
    assert pool.acquire(4_000_000).address == address


def test_releasing_large_blocks_sweeps_too() -> None:
    clock = Clock()
    pool = Pool(idle_s=1.0, clock=clock)
    blocks = [pool.acquire(2_000_000) for _ in range(20)]
    while blocks:
        blocks.pop()
        clock.now_s += 1.0
    assert pool.stats()["free_blocks"] <= 3


def test_trim_gives_all_free_memory_back() -> None:
    pool = Pool()
    kept = pool.acquire(3_000_000)
    blocks = [pool.acquire(n) for n in SIZES]
    expected = sum(block.capacity for block in blocks)
    blocks.clear()
    assert pool.trim() == expected
    assert pool.trim() == 0
    assert (pool.stats()["free_bytes"], pool.stats()["live_bytes"]) == (0, kept.capacity)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_trimmed_memory_really_returns_to_the_system() -> None:
    def resident_bytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pool = Pool()
    before = resident_bytes()
    block = pool.acquire(200_000_000)
    block.numpy(np.uint8, 200_000_000)[:] = 1
    assert resident_bytes() - before > 190_000_000
    del block
    assert resident_bytes() - before > 190_000_000
    pool.trim()
    assert resident_bytes() - before < 20_000_000


def test_a_watch_sees_the_most_in_use() -> None:
    """As asked for, without what size classes add; nested, and over threads' blocks alike."""
    mine = Pool()
    held = mine.acquire(1000)
    with mine.watch() as outer:
        first = mine.acquire(3000)
        with mine.watch() as inner:
            del first
            second = mine.acquire(500)
        assert (inner.base_bytes, inner.peak_bytes) == (4000, 4000)
        del second
    third = mine.acquire(10_000)
    assert (outer.base_bytes, outer.peak_bytes) == (1000, 4000)
    assert mine.asked_bytes() == 11_000
    del held, third
    assert mine.asked_bytes() == 0


def test_a_large_block_takes_the_place_of_free_ones() -> None:
    """What lies around unused does not add to the peak of a large arena."""
    pool = Pool()
    blocks = [pool.acquire(nbytes) for nbytes in (10_000_000, 20_000_000, 30_000_000)]
    del blocks
    assert pool.stats()["free_bytes"] >= 60_000_000
    large = pool.acquire(pool_module.LARGE_BYTES)
    found = pool.stats()
    assert found["free_bytes"] == 0 and found["live_bytes"] == large.capacity
