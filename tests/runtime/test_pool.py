"""The pool: no two live blocks overlap, nothing live is recycled, the cap holds, idle memory goes back."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from morpho.base import dtypes
from morpho.base.errors import ArgumentError, DeviceError, MemoryLimit, ValueFault
from morpho.base.settings import settings
from morpho.runtime import pool as pool_module
from morpho.runtime.pool import ALIGNMENT_BYTES, MAPPED_BYTES, Block, Piece, Pool, size_class

SIZES = [0, 1, 63, 64, 65, 1000, 4096, 100_000, MAPPED_BYTES - 1, MAPPED_BYTES, MAPPED_BYTES + 1, 5_000_000]


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


# ------------------------------------------------------------------------------------------------- size classes


def test_classes_round_up_waste_at_most_a_quarter_and_are_aligned() -> None:
    for nbytes in [*range(1, 5000), *(2**k + d for k in range(12, 45) for d in (-1, 0, 1))]:
        capacity = size_class(nbytes)
        assert capacity >= nbytes
        assert capacity % ALIGNMENT_BYTES == 0
        assert capacity - nbytes < max(ALIGNMENT_BYTES, capacity / 4)
        assert size_class(capacity) == capacity
        assert size_class(capacity + 1) > capacity


def test_there_are_four_classes_per_power_of_two() -> None:
    assert len({size_class(n) for n in range(1025, 2049)}) == 4


def test_1500_after_releasing_1024_does_not_get_the_1024_block() -> None:
    pool = Pool()
    block = pool.acquire(1024)
    small = block.address
    del block
    larger = pool.acquire(1500)
    assert larger.address != small
    assert larger.capacity >= 1500
    larger.numpy(np.uint8, 1500)[:] = 7
    again = pool.acquire(1024)
    assert again.address == small


# ---------------------------------------------------------------------------------------------- blocks and views


@pytest.mark.parametrize("nbytes", SIZES)
def test_every_byte_asked_for_is_there_and_aligned(nbytes: int) -> None:
    pool = Pool()
    for _ in range(3):
        block = pool.acquire(nbytes)
        assert block.address % ALIGNMENT_BYTES == 0
        assert (block.nbytes, block.capacity) == (nbytes, size_class(nbytes))
        view = block.numpy(np.uint8, nbytes)
        view[:] = 255
        assert view.size == nbytes and (view == 255).all()
        assert np.asarray(block).nbytes == nbytes


@pytest.mark.parametrize("nbytes", SIZES)
def test_zero_is_zero_on_fresh_and_on_dirty_blocks(nbytes: int) -> None:
    pool = Pool()
    assert not pool.acquire(nbytes, zero=True).numpy(np.uint8, nbytes).any()
    dirty = pool.acquire(nbytes)
    dirty.numpy(np.uint8, nbytes)[:] = 255
    address = dirty.address
    del dirty
    clean = pool.acquire(nbytes, zero=True)
    assert clean.address == address, "the dirty block itself must come back"
    assert not clean.numpy(np.uint8, nbytes).any()


@pytest.mark.parametrize("nbytes", [1000, 5_000_000])
def test_a_released_block_is_reused(nbytes: int) -> None:
    pool = Pool()
    addresses = {pool.acquire(nbytes).address for _ in range(10)}
    assert len(addresses) == 1
    assert pool.stats()["hits"] == 9


@pytest.mark.parametrize("nbytes", [1000, 5_000_000])
def test_a_live_view_is_never_recycled(nbytes: int) -> None:
    pool = Pool()
    block = pool.acquire(nbytes)
    address = block.address
    view = block.numpy(np.uint8, nbytes)[1:][::2].reshape(-1, 1).T
    del block
    gc.collect()
    view[:] = 3
    others = [pool.acquire(nbytes) for _ in range(5)]
    assert address not in {other.address for other in others}
    for other in others:
        other.numpy(np.uint8, nbytes)[:] = 9
    assert pool.trim() == 0
    assert (view == 3).all()
    del view
    assert pool.acquire(nbytes).address == address


def test_numpy_sees_dtypes_strides_offsets() -> None:
    block = Pool().acquire(96)
    block.numpy(np.int32, 24)[:] = np.arange(24)
    assert block.numpy(dtypes.int32, (2, 3), offset=8).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert block.numpy("<i4", (3, 2), strides=(4, 12)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert block.numpy(np.int32, 24, strides=(-4,), offset=92).tolist() == list(range(23, -1, -1))
    assert block.numpy(np.float64, ()).shape == ()


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((25,), None, 0), ((24,), None, 4), ((2,), (96,), 0), ((2,), (-4,), 0), ((1,), None, -4), ((-2,), None, 0)],
)
def test_numpy_refuses_to_look_outside(shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int) -> None:
    with pytest.raises(ValueFault, match="96 bytes cannot be seen as"):
        Pool().acquire(96).numpy(np.int32, shape, strides, offset)


def test_a_read_only_view_stays_so() -> None:
    view = Pool().acquire(64).numpy(np.float32, 16, readonly=True)
    with pytest.raises(ValueError):
        view[0] = 1
    with pytest.raises(ValueError):
        view.flags.writeable = True
    with pytest.raises(ValueError):
        view[2:].flags.writeable = True


def test_a_handle_is_neither_copied_nor_pickled() -> None:
    block = Pool().acquire(64)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentError, match="neither be copied"):
            duplicate(block)


def test_bad_requests() -> None:
    pool = Pool()
    with pytest.raises(ValueFault, match="-1 bytes"):
        pool.acquire(-1)
    with pytest.raises(ArgumentError, match="not a number of bytes"):
        pool.acquire(1.5)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cuda:0"):
        pool.acquire(64, device="cuda:0")
    with pytest.raises(ValueFault, match="negative"):
        Pool(limit_bytes=-1)
    assert pool.stats()["acquires"] == 0


def test_a_block_keeps_its_pool() -> None:
    view = Pool().acquire(5_000_000).numpy(np.uint8, 5_000_000)
    gc.collect()
    view[:] = 1
    assert view.sum() == 5_000_000


# ------------------------------------------------------------------------------------------------- the collector


class Phoenix:
    """Comes back to life with its block when the collector finalises both."""

    risen: list[Phoenix] = []

    def __init__(self, block: Block) -> None:
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
        "from morpho.runtime import pool\n"
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


# ------------------------------------------------------------------------------------------------------- regions


def test_region_pieces_are_aligned_disjoint_and_released_at_once() -> None:
    pool = Pool()
    with pool.region() as region:
        pieces = [region.acquire(n, zero=True) for n in (1, 100, 0, 70_000, 64, 3_000_000)]
        views = [piece.numpy(np.uint8, piece.nbytes) for piece in pieces]
        assert not any(view.any() for view in views)
        for number, view in enumerate(views):
            view[:] = number + 1
        assert all((view == number + 1).all() for number, view in enumerate(views))
        assert all(piece.address % ALIGNMENT_BYTES == 0 and isinstance(piece, Piece) for piece in pieces)
        assert pool.stats()["regions"] == 1
        assert pool.stats()["live_bytes"] == region.capacity_bytes >= region.used_bytes
        del pieces, views, view
    assert (pool.stats()["live_bytes"], pool.stats()["regions"]) == (0, 0)
    with pytest.raises(ValueFault, match="closed"):
        region.acquire(1)


def test_a_planned_region_is_one_block() -> None:
    pool = Pool()
    with pool.region(1_000_000) as region:
        for _ in range(100):
            region.acquire(10_000)
        assert pool.stats()["live_blocks"] == 1


def test_a_view_of_a_piece_outlives_its_region() -> None:
    pool = Pool()
    with pool.region() as region:
        view = region.acquire(1000).numpy(np.float64, 125)
        view[:] = 2.5
    others = [pool.acquire(65_536) for _ in range(4)]
    for other in others:
        other.numpy(np.uint8, 65_536)[:] = 0
    pool.trim()
    assert (view == 2.5).all()
    assert pool.stats()["live_blocks"] == 5
    del view
    assert pool.stats()["live_blocks"] == 4


def test_a_region_closes_after_an_error() -> None:
    pool = Pool(limit_bytes=1 << 20)
    with pytest.raises(MemoryLimit), pool.region() as region:
        region.acquire(1000)
        region.acquire(1 << 21)
    assert (pool.stats()["live_blocks"], pool.stats()["regions"]) == (0, 0)


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
    threads = [threading.Thread(target=_hammer, args=(pool, seed, errors, 400)) for seed in range(1, 9)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
    assert not errors and not any(thread.is_alive() for thread in threads)
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
        self.live: list[tuple[Block | None, np.ndarray, int]] = []
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
