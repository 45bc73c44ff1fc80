"""The worker threads: created when first needed, asleep when idle, made anew after a fork.

They are ordinary Python threads that enter the native worker loop once and stay there, without the interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
import threading

from morpho.base import settings
from morpho.base.machine import machine
from morpho.runtime.tables import PoolField
from morpho.runtime.thread_code import MASK_WORDS

_lock = threading.Lock()
_pools: dict[int, Workers] = {}


def wanted_threads() -> int:
    """How many threads a program may use here: the setting, or every core this process really has."""
    return settings.get().threads or machine().cores


class Workers:
    """A fixed number of threads and the words they meet at."""

    def __init__(self, threads: int, worker: int) -> None:
        self.threads = threads
        self.words = (ctypes.c_int64 * int(PoolField.SIZE))()
        library = ctypes.CDLL(None)
        for field, name in ((PoolField.LOCK, "pthread_mutex_lock"), (PoolField.UNLOCK, "pthread_mutex_unlock"),
                            (PoolField.WAIT, "pthread_cond_wait"), (PoolField.BROADCAST, "pthread_cond_broadcast")):
            self.words[field] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        address = ctypes.addressof(self.words)
        library.pthread_mutex_init(ctypes.c_void_p(address + 8 * PoolField.MUTEX), None)
        for field in (PoolField.WORK, PoolField.DONE):
            library.pthread_cond_init(ctypes.c_void_p(address + 8 * field), None)
        self.words[PoolField.THREADS] = threads
        loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(worker)
        self.identities = (ctypes.c_int64 * max(threads, 1))()
        for number in range(1, threads):
            thread = threading.Thread(target=loop, args=(address, number), daemon=True, name=f"morpho-{number}")
            thread.start()
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


def workers(threads: int, worker: int) -> Workers:
    """The process's workers for this number of threads; they are few, so each number keeps its own."""
    found = _pools.get(threads)
    if found is None:
        with _lock:
            found = _pools.get(threads)
            if found is None:
                found = _pools[threads] = Workers(threads, worker)
    return found


def _after_fork() -> None:
    """A child has none of its parent's threads: forget them; executables ask again."""
    global _lock, epoch
    _lock = threading.Lock()
    _pools.clear()
    epoch += 1


epoch = 0  # counts forks, so that an executable knows when its workers are gone
os.register_at_fork(after_in_child=_after_fork)
