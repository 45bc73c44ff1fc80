"""Functions that tasks run in other processes."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np


def square(x: Any) -> Any:
    return x * x


def add(a: Any, b: Any) -> Any:
    return a + b


def process_number(_: object) -> int:
    return os.getpid()


def look(array: np.ndarray) -> tuple[float, bool]:
    """The sum of an array, and whether its memory is the task's own."""
    return float(array.sum()), bool(array.flags.owndata)


def count_up(length: int) -> np.ndarray:
    return np.arange(length)


def fail(x: object) -> None:
    raise ValueError(f"no {x}")


def die_once(path: str) -> str:
    """Kill this process at the first call."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def threads_in_force() -> int:
    from morpho.base import settings

    return settings.get().threads


class Unreadable:
    """What can be written and not read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return fail_to_read, ()


def fail_to_read() -> None:
    raise OSError("cannot be read")


def unreadable(number: int) -> Unreadable:
    return Unreadable()


def lock(number: int) -> Any:
    return threading.Lock()


def leave(number: int) -> None:
    raise SystemExit(3)
