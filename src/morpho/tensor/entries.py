"""The native entries of all compiled functions, and whom they may serve.

Settings belong to a thread or task, an entry to the process. While no `mo.settings` block is open, everyone has
the same settings and an entry serves every caller. While one is, it serves callers with the settings its code was
chosen for; native code looks them up, which costs some nanoseconds a call, then only.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from morpho.base import settings
from morpho.ir.op import listeners as registry_listeners
from morpho.runtime.tables import ContextField, Enabled

if TYPE_CHECKING:
    from morpho.tensor.native_entry import NativeEntry


class Entries:
    """Every compiled function alive. `generation` counts what may mean other code: settings, ops and passes."""

    def __init__(self) -> None:
        self.live: weakref.WeakSet[NativeEntry] = weakref.WeakSet()
        self.lock = threading.Lock()
        self.generation = 0
        self.traces = 0

    def add(self, made: NativeEntry) -> None:
        with self.lock:
            self.live.add(made)

    def stop(self, made: NativeEntry) -> None:
        """Before a function's tables are changed."""
        with self.lock:
            made.uses += 1
            made.words[ContextField.ENABLED] = Enabled.NONE

    def start(self, made: NativeEntry, generation: int) -> None:
        """Let a function's entry serve the code that its caller found, unless that was before a change."""
        mine = settings.current.get()
        with self.lock:
            if generation != self.generation or self.traces or settings.get().nans:
                return  # or every result is to be looked at, which Python does
            made.serves = mine  # held: native code knows its address
            made.words[ContextField.SETTINGS] = id(mine)
            made.words[ContextField.ENABLED] = Enabled.MATCHING if settings.blocks() else Enabled.ALL

    def forget(self) -> None:
        """Other settings, ops or passes may mean other code: the next call goes through Python and finds it."""
        with self.lock:
            self.generation += 1
            for made in self.live:
                made.words[ContextField.ENABLED] = Enabled.NONE

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a function is traced, compiled functions that it calls must be traced too, not run by their entries."""
        with self.lock:
            self.traces += 1
            generation = self.generation
            stopped = [(made, made.uses, made.words[ContextField.ENABLED]) for made in self.live
                       if made.words[ContextField.ENABLED]]
            for made, _, _ in stopped:
                made.words[ContextField.ENABLED] = Enabled.NONE
        try:
            yield
        finally:
            with self.lock:
                self.traces = max(0, self.traces - 1)  # in a child forked by the traced function it is 0 already
                for made, uses, enabled in stopped:
                    if made.uses == uses and generation == self.generation and not self.traces:
                        made.words[ContextField.ENABLED] = enabled

    def after_fork(self) -> None:
        """The entries' threads are gone in a child, and so are the other threads' traces: the next call goes through
        Python and finds new ones."""
        self.lock, self.traces = threading.Lock(), 0
        for made in list(self.live):
            made.after_fork()


entries = Entries()
settings.changed.append(entries.forget)
registry_listeners.append(entries.forget)
os.register_at_fork(after_in_child=entries.after_fork)
