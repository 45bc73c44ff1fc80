"""Several threads that begin at once, for tests of what they may do to each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def together(work: Callable[[int], Any], threads: int = 8, switch_s: float | None = None) -> None:
    """Call `work(number)` in so many threads at the same time; what one raises is raised here, and none may hang. With
    `switch_s` Python turns from one to another that often."""
    barrier, errors = threading.Barrier(threads), []

    def body(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=body, args=(number,)) for number in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval if switch_s is None else switch_s)
    try:
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(120)
            assert not thread.is_alive(), "a thread hangs"
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
