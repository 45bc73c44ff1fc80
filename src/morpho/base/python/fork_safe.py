"""Locks over a fork: it waits until nobody is in the middle of a change, and the child gets locks of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


class ForkSafe:
    """An object with a `_lock` that a `fork` in another thread never leaves locked, nor its data half changed.

    The fork waits until every such lock is free, and the child gets new ones. It takes them in any order: while holding
    `_lock`, take no other lock, do not log, and run nobody else's code.
    """

    _make_lock: Callable[[], Any] = staticmethod(threading.Lock)  # or RLock, where methods call one another

    def __init__(self) -> None:
        self._lock = self._make_lock()
        with _registry:
            _everyone.add(self)

    def _after_fork_in_child(self) -> None:
        self._lock = self._make_lock()


_registry = threading.Lock()
_everyone: WeakSet[ForkSafe] = WeakSet()
_held: list[ForkSafe] = []


def _before_fork() -> None:
    _registry.acquire()
    _held.extend(_everyone)
    for member in _held:
        member._lock.acquire()


def _after_fork_in_parent() -> None:
    for member in _held:
        member._lock.release()
    _held.clear()
    _registry.release()


def _after_fork_in_child() -> None:
    global _registry
    _registry = threading.Lock()
    for member in _held:
        member._after_fork_in_child()
    _held.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
