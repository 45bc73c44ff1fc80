"""Work that begins before its result is asked for, in a thread: it takes the time in which others compute without
the interpreter, in native code or in NumPy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """A call that has begun. What it raises is raised by `result`, in the thread that asks.

    >>> from morpho.base.python.ahead import Ahead
    >>> begun = Ahead(lambda: 6 * 7)
    >>> begun.result()
    42
    """

    def __init__(self, call: Callable[[], T], name: str = "morpho-ahead") -> None:
        self._call = call
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._call())
        except BaseException as error:
            self._error = error

    def result(self) -> T:
        """Wait for the call and return its result."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found[0]
