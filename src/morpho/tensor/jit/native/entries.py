"""The native entries of all compiled functions, and whom they may serve.

Settings belong to a thread or task, an entry to the process. While no `mo.settings` block is open, everyone has
the same settings and an entry serves every caller. While one is, tables serve callers with the settings their code
was chosen for; native code looks those up, which costs some nanoseconds a call, then only.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from morpho.backends.driver.abi import ContextField, Enabled
from morpho.base import settings
from morpho.ir.op import listeners as registry_listeners
from morpho.runtime.trace import spans


class Tables(Protocol):
    """Fields of a signature's tables (`SignatureTables`) that the entries set."""

    serves: settings.Settings | None
    is_right: bool
    words: Any
    chosen: Any


class Entry(Protocol):
    """Interface of a compiled function for the entries (`native_entry.NativeEntry`)."""

    entry: int | None
    specialisations: dict[Any, Any]
    served: list[Any]
    retired: Any
    lock: Any

    def after_fork(self) -> None: ...


def _of_device(served: Tables) -> bool:
    """Whether the code is another device's, launched natively."""
    return getattr(served.chosen, "served", None) is not None


class Entries:
    """Every compiled function alive. `generation` counts what may mean other code: ops, passes, modes of modules."""

    def __init__(self) -> None:
        self.live: weakref.WeakSet[Entry] = weakref.WeakSet()
        self.lock = threading.Lock()
        self.generation = 0
        self.traces = 0

    def add(self, made: Entry) -> None:
        with self.lock:
            self.live.add(made)

    def enter_by(self, address: int) -> None:
        """Let every compiled function that has a native entry be called at this one: the plain driver's, or its timed
        twin's. Both read the same tables; a call that is on its way ends where it began."""
        with self.lock:
            for made in list(self.live):
                if made.entry:
                    made.entry = address

    def stop(self, served: Tables) -> None:
        """Before tables are changed."""
        with self.lock:
            self.set(served, False)

    def start(self, served: Tables, generation: int) -> None:
        """Let tables serve callers with this one's settings, unless it found their code before a change."""
        mine = settings.current.get()
        with self.lock:
            if self.refuses(generation) or (spans.sink is not None and _of_device(served)):
                return
            served.serves = mine  # held: native code knows its address
            served.words[ContextField.SETTINGS] = id(mine)
            self.set(served, True)

    def refuses(self, generation: int) -> bool:
        """Whether code that was found in this generation is not to be served: there was a change since, or every result
        is to be looked at, which Python does."""
        return generation != self.generation or bool(settings.get().nans)

    def watch_devices(self) -> None:
        """Somebody records: runs of other devices go through Python, which marks where each begins and ends in the
        device's queue, until the recording is over."""
        with self.lock:
            for served in self._all():
                if _of_device(served):
                    self.set(served, False)

    def forget(self) -> None:
        """Other ops, passes or modes may mean other code: the next call goes through Python and finds it."""
        with self.lock:
            self.generation += 1
            for served in self._all():
                self.set(served, False)

    def look_again(self) -> None:
        """A block of settings begins or ends: whether callers must be told apart may have changed."""
        with self.lock:
            for served in self._all():
                self.set(served, served.is_right)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a function is traced, compiled functions that it calls must be traced too, not run by their entries."""
        self._count_traces(1)
        try:
            yield
        finally:
            self._count_traces(-1)

    def _count_traces(self, change: int) -> None:
        with self.lock:
            self.traces = max(0, self.traces + change)  # in a child forked by the traced function it is 0 already
            if self.traces == max(change, 0):  # the first begins, or the last ends
                for served in self._all():
                    self.set(served, served.is_right)

    def _all(self) -> Iterator[Tables]:
        return (served for made in self.live for served in list(made.served))

    def set(self, served: Tables, right: bool) -> None:
        """Whether tables hold the right code, and so whom they serve: without a block open everyone has the settings of
        the process, and tables for others rest. Call it with the lock held."""
        served.is_right, blocks = right, settings.blocks()
        if not right or self.traces or (served.serves is not None and not blocks):
            enabled = Enabled.NONE
        else:
            enabled = Enabled.MATCHING if blocks else Enabled.ALL
        served.words[ContextField.ENABLED] = enabled

    def after_fork(self) -> None:
        """The entries' threads are gone in a child, and so are the other threads' traces: the next call goes through
        Python and finds new ones."""
        self.lock, self.traces = threading.Lock(), 0
        for made in list(self.live):
            made.after_fork()


entries = Entries()
settings.changed.append(entries.look_again)
registry_listeners.append(entries.forget)
os.register_at_fork(after_in_child=entries.after_fork)
