"""How one kernel is divided among the engine's threads: own pieces first, then those of others; and tasks come first.

The kernels here are Python callbacks, so that a test decides which piece is costly; driver and threads are real.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver import threads
from morpho.backends.driver.abi import BudgetField, ProgramField, StepField
from morpho.backends.driver.executable import native
from morpho.backends.driver.thread_code import FEW_THREADS
from morpho.program.co_schedule import CHUNKS_PER_THREAD, TILES_PER_THREAD

LIMIT_S = 60
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_void_p)


def workers(count: int) -> threads.Workers:
    """The engine's threads for that number, started."""
    mo.compile(lambda x: x + 1)(mo.ones(2))  # the driver is compiled
    return threads.workers(count, native().worker)


def run_divided(count: int, rows: int, body: Callable[[int, int], None], pieces: int = CHUNKS_PER_THREAD,
                alternates: bool = False, sharers: int = 0) -> list[int]:
    """Run a kernel on `count` threads, calling `body(first, last)` per piece; how many pieces each thread took."""
    def kernel(places: int, values: int, first: int, last: int, left: int, right: int, scratch: int) -> int:
        assert (left, right) == (0, 1 << 20)
        body(first, last)
        return 0

    pool, callback = workers(count), KERNEL(kernel)
    before = pool.pieces
    step = np.zeros(int(StepField.SIZE), np.int64)
    table, values = np.zeros(2, np.int64), np.array([rows, 1 << 20], np.int64)
    step[StepField.FUNCTION] = ctypes.cast(callback, ctypes.c_void_p).value
    step[StepField.PLACE_TABLE], step[StepField.COLUMNS] = table.ctypes.data, 1
    step[StepField.WORK], step[StepField.PIECES] = 4, pieces
    step[StepField.ALTERNATES] = alternates
    step[StepField.SHARE] = (rows << 22) // sharers if sharers else 0
    program = np.zeros(int(ProgramField.SIZE), np.int64)
    program[ProgramField.STEPS], program[ProgramField.STEP_TABLE] = 1, step.ctypes.data
    program[ProgramField.POOL] = pool.address
    slots = np.zeros(1, np.int64)
    assert native().run_long(program.ctypes.data, slots.ctypes.data, values.ctypes.data, slots.ctypes.data) == 0
    return [now - then for now, then in zip(pool.pieces, before, strict=True)]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("rows", [2, 7, 64, 1000])
def test_every_row_once(count: int, rows: int) -> None:
    seen: list[tuple[int, int]] = []
    taken = run_divided(count, rows, lambda first, last: seen.append((first, last)))
    assert sum(taken) == len(seen) <= count * CHUNKS_PER_THREAD
    assert sorted(n for first, last in seen for n in range(first, last)) == list(range(rows))
    largest = max(last - first for first, last in seen)
    assert largest == -(-rows // (count * CHUNKS_PER_THREAD))


@pytest.mark.parametrize("costly", [0, 3])
def test_a_costly_piece_leaves_the_rest_to_the_other_thread(costly: int) -> None:
    """While one thread is at a piece that ends only when all others are done, the other takes every one of them."""
    done, pieces = threading.Semaphore(0), 2 * CHUNKS_PER_THREAD
    at_costly = threading.Event()

    def body(first: int, last: int) -> None:
        if first == costly:
            at_costly.set()
            assert all(done.acquire(timeout=LIMIT_S) for _ in range(pieces - 1))
            return
        if first > costly:
            assert at_costly.wait(LIMIT_S)
        done.release()

    taken = run_divided(2, pieces, body)
    assert sum(taken) == pieces
    # The costly thread took that one, and at most what lay before it: everything after went to the other.
    assert max(taken) >= pieces - 1 - costly


@pytest.mark.parametrize(("pieces", "alternates"), [(CHUNKS_PER_THREAD, False), (TILES_PER_THREAD, False),
                                                    (TILES_PER_THREAD, True)])
def test_threads_begin_with_pieces_of_their_own(pieces: int, alternates: bool) -> None:
    """The same ones in every kernel: side by side, or every n-th one where they differ in size."""
    count, rows = 3, 3 * CHUNKS_PER_THREAD
    for _ in range(3):
        together, seen = threading.Barrier(count), []

        def body(first: int, last: int, seen=seen, together=together) -> None:
            seen.append((threading.get_ident(), first))
            if sum(who == threading.get_ident() for who, _ in seen) <= CHUNKS_PER_THREAD:
                together.wait(LIMIT_S)  # so no thread is ahead of the others, and none takes what is not its own

        assert run_divided(count, rows, body, pieces, alternates) == [CHUNKS_PER_THREAD] * count
        shares = {tuple(first for who, first in seen if who == one) for one, _ in seen}
        step = count if alternates else 1
        starts = range(0, rows, CHUNKS_PER_THREAD) if step == 1 else range(count)
        assert shares == {tuple(start + step * n for n in range(CHUNKS_PER_THREAD)) for start in starts}
        assert (threading.get_ident(), 0) in seen, "the caller begins with the first"


def test_a_little_work_is_for_a_few_threads() -> None:
    """Which are woken by themselves; the others are there again when there is more."""
    count, rows = 8, 32
    for sharers in (FEW_THREADS, count, 2, FEW_THREADS, count):
        time.sleep(0.002)  # they are asleep
        together, here = threading.Barrier(sharers), set()

        def body(first: int, last: int, together=together, here=here) -> None:
            if threading.get_ident() not in here:
                here.add(threading.get_ident())
                together.wait(LIMIT_S)

        taken = run_divided(count, rows, body, sharers=sharers)
        assert all(taken[:sharers]) and not any(taken[sharers:])


def test_a_late_thread_is_not_waited_for() -> None:
    """The caller does everything while its helpers have not come: there is no share that is theirs."""
    threads.count_running(1)  # as if one task ran: the caller and it are the budget
    try:
        assert run_divided(2, 64, lambda first, last: None) == [2 * CHUNKS_PER_THREAD, 0]
    finally:
        threads.count_running(-1)


def test_helpers_leave_when_tasks_begin() -> None:
    """Of four threads, two leave at their next piece when two tasks begin meanwhile."""
    count, pieces = 4, 4 * CHUNKS_PER_THREAD
    barrier, after = threading.Barrier(count), []
    left = threads.budget[BudgetField.LEFT]
    begun = threading.Lock()
    state = {"running": False}

    def body(first: int, last: int) -> None:
        if first % CHUNKS_PER_THREAD == 0:  # the first piece of every thread's own: all four are at work
            barrier.wait(LIMIT_S)
            with begun:
                if not state["running"]:
                    state["running"] = True
                    threads.count_running(2)
            barrier.wait(LIMIT_S)
        else:
            after.append(threading.get_ident())

    try:
        taken = run_divided(count, pieces, body)
    finally:
        threads.count_running(-2 * state["running"])
    assert sum(taken) == pieces and all(taken)
    assert threads.budget[BudgetField.LEFT] == left + 2
    assert len(set(after)) <= 2 and threads.budget[BudgetField.HELPERS] == 0


def test_statistics() -> None:
    before = threads.engine_statistics()
    run_divided(3, 64, lambda first, last: None)
    after = threads.engine_statistics()
    assert after["shared_kernels"] == before["shared_kernels"] + 1
    assert sum(after["pieces"][3]) - sum(before["pieces"].get(3, [])) == -(-64 // -(-64 // (3 * CHUNKS_PER_THREAD)))
    assert mo.tasks.stats()["engine"] == after
