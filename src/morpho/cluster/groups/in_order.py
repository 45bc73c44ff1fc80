"""Collectives that go on while their process computes: on one thread, in the order in which they were started."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from morpho.runtime.groups.group import DONE, Later, Work


class InOrder:
    """Operations that a group has started and not waited for.

    >>> order, said = InOrder(), []
    >>> works = [order.run(lambda n=n: said.append(n), wait=False) for n in range(3)]
    >>> order.run(lambda: said.append("last"), wait=True).done(), said
    (True, [0, 1, 2, 'last'])
    >>> order.close()
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def is_idle(self) -> bool:
        """Whether a call that is waited for is made here and now."""
        return self._last is None or self._last.done()

    def run(self, call: Callable[[], None], wait: bool) -> Work:
        """Make a call after those before it: here and now where nothing is under way and it is waited for."""
        if wait and self.is_idle():
            call()
            return DONE
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "morpho-collectives")
        future = self._last = self._thread.submit(call)
        work = Later(future.result, future.done)
        if wait:
            work.wait()
        return work

    def settle(self) -> None:
        """Let what was started come to its end, well or not."""
        if self._last is not None:
            self._last.exception()

    def close(self) -> None:
        """No more calls."""
        self.settle()
        if self._thread is not None:
            self._thread.shutdown()
