"""The thread pool: workers created on first use, parked when idle, recreated after a fork.

They are ordinary Python threads that enter the native worker loop once and stay there, without the interpreter lock.

One budget holds for them and for the workers of `tasks.py`: the words of `budget` say how many task workers are awake
and how many engine threads help a caller. An engine thread joins a kernel only while both together, and the caller,
stay within the pool's number, and leaves at its next piece when they do not.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from functools import cache
from typing import Any

from morpho.backends.driver.abi import LINE_WORDS, BudgetField, PoolField
from morpho.backends.driver.thread_code import MASK_WORDS
from morpho.base.python import blas
from morpho.base.target import wanted_threads as wanted_threads  # who asks about threads asks here

log = logging.getLogger("morpho")
_lock = threading.Lock()
_pools: dict[tuple[int, int], Workers] = {}  # by number of threads, and the driver whose loop they run
MOST_TASK_WORKERS = 4096  # rows of the table of their pthread identities
budget = (ctypes.c_int64 * (int(BudgetField.TABLE) + MOST_TASK_WORKERS))()


@cache
def _say_fewer(started: int, wanted: int, error: str) -> None:
    log.warning("the system gives %s of %s threads (%s); kernels run on those (said once)", started, wanted, error)


class Workers:
    """A fixed number of threads and the words they meet at."""

    def __init__(self, threads: int, worker: int) -> None:
        self.threads = threads
        self.words = (ctypes.c_int64 * int(PoolField.SIZE))()
        library = ctypes.CDLL(None)
        for field, name in ((PoolField.LOCK, "pthread_mutex_lock"), (PoolField.UNLOCK, "pthread_mutex_unlock"),
                            (PoolField.WAIT, "pthread_cond_wait"), (PoolField.BROADCAST, "pthread_cond_broadcast"),
                            (PoolField.SELF, "pthread_self"), (PoolField.TIMED_WAIT, "pthread_cond_timedwait")):
            self.words[field] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        address = ctypes.addressof(self.words)
        library.pthread_mutex_init(ctypes.c_void_p(address + 8 * PoolField.MUTEX), None)
        for field in (PoolField.WORK, PoolField.MORE, PoolField.DONE):
            library.pthread_cond_init(ctypes.c_void_p(address + 8 * field), None)
        self.words[PoolField.THREADS] = threads
        self.taken = (ctypes.c_int64 * (LINE_WORDS * max(threads, 1)))()
        self.words[PoolField.PIECES] = ctypes.addressof(self.taken)
        self.inside = (ctypes.c_int64 * (LINE_WORDS * max(threads, 1)))()
        self.words[PoolField.INSIDE] = ctypes.addressof(self.inside)
        self.words[PoolField.BUDGET] = ctypes.addressof(budget)
        loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(worker)
        self.identities = (ctypes.c_int64 * max(threads, 1))()
        for number in range(1, threads):
            thread = threading.Thread(target=loop, args=(address, number), daemon=True, name=f"morpho-{number}")
            try:
                thread.start()
            except RuntimeError as error:  # the others take what would be its pieces
                self.words[PoolField.THREADS] = number
                _say_fewer(number, threads, str(error))
                break
            self.identities[number] = thread.native_id or 0
        self._allow_placement(library)

    def _allow_placement(self, library: ctypes.CDLL) -> None:
        """Let the driver keep workers off the caller's processor, where the system can say and do that and there are
        processors enough."""
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        fits = self.threads <= len(allowed) and max(allowed, default=0) < 64 * MASK_WORDS
        if not hasattr(library, "sched_getcpu") or not fits:
            return
        self.mask = (ctypes.c_uint64 * MASK_WORDS)()
        self.words[PoolField.LAST_CPU] = -1
        self.words[PoolField.IDENTITIES] = ctypes.addressof(self.identities)
        self.words[PoolField.MASK] = ctypes.addressof(self.mask)
        self.words[PoolField.GETAFFINITY] = ctypes.cast(library.sched_getaffinity, ctypes.c_void_p).value or 0
        self.words[PoolField.SETAFFINITY] = ctypes.cast(library.sched_setaffinity, ctypes.c_void_p).value or 0
        self.words[PoolField.GETCPU] = ctypes.cast(library.sched_getcpu, ctypes.c_void_p).value or 0

    @property
    def address(self) -> int:
        return ctypes.addressof(self.words)

    @property
    def runs(self) -> int:
        """How many kernels were divided among threads so far."""
        return int(self.words[PoolField.RUNS])

    @property
    def pieces(self) -> list[int]:
        """The pieces of kernels that each thread took so far; the caller is the first."""
        return list(self.taken)[::LINE_WORDS]


def workers(threads: int, worker: int) -> Workers:
    """The process's workers for this number of threads; they are few, so each number keeps its own."""
    found = _pools.get((threads, worker))
    if found is None:
        with _lock:
            found = _pools.get((threads, worker))
            if found is None:
                found = _pools[threads, worker] = Workers(threads, worker)
    return found


def enter_task_worker() -> int | None:
    """Note the calling thread as a worker of tasks; the row to give back. The caller holds a lock around both. Where
    all rows are taken the thread counts as one beside the tasks, so that the engine takes fewer threads, never more."""
    rows = range(BudgetField.TABLE, BudgetField.TABLE + MOST_TASK_WORKERS)
    row = next((row for row in rows if not budget[row]), None)
    if row is not None:
        budget[row] = threading.get_ident()
        budget[BudgetField.WORKERS] = max(budget[BudgetField.WORKERS], row - BudgetField.TABLE + 1)
    return row


def leave_task_worker(row: int | None) -> None:
    """The row's thread ends."""
    if row is not None:
        budget[row] = 0


def count_running(change: int) -> None:
    """So many more task workers are awake. The caller holds a lock around it."""
    budget[BudgetField.RUNNING] += change


def threads_left() -> int:
    """How many threads the calling one may have at work, itself among them: those in force, less the tasks awake and
    the engine's threads that help other callers; never fewer than one."""
    workers = budget[BudgetField.TABLE:BudgetField.TABLE + budget[BudgetField.WORKERS]]
    counted = threading.get_ident() in workers  # among the tasks awake
    return max(1, wanted_threads() + counted - budget[BudgetField.RUNNING] - budget[BudgetField.HELPERS])


blas.threads_left = threads_left  # a floor below cannot ask this one


def engine_statistics() -> dict[str, Any]:
    """How kernels were divided so far: shared ones, pieces per thread, and what was left to tasks."""
    pools = list(_pools.values())
    return {
        "shared_kernels": sum(pool.runs for pool in pools),
        "pieces": {count: [sum(taken) for taken in zip(*(p.pieces for p in pools if p.threads == count), strict=True)]
                   for count in sorted({pool.threads for pool in pools if pool.threads > 1})},
        "alone_kernels": int(budget[BudgetField.ALONE]),
        "helpers_left": int(budget[BudgetField.LEFT]),
    }


def _after_fork() -> None:
    """A child has none of its parent's threads: forget them; executables ask again."""
    global _lock, epoch
    _lock = threading.Lock()
    _pools.clear()
    ctypes.memset(budget, 0, ctypes.sizeof(budget))
    epoch += 1


epoch = 0  # counts forks, so that an executable knows when its workers are gone
os.register_at_fork(after_in_child=_after_fork)
