"""How long a search may take: a wall-clock deadline that every loop asks."""

from __future__ import annotations

import math
import time


class TimeUp(Exception):
    """The deadline passed inside a search; whoever started it has an answer without."""


class Deadline:
    """So many seconds from now, or none.

    >>> Deadline(None).passed(), Deadline(0.0).passed()
    (False, True)
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.begun = time.monotonic()
        self.until = math.inf if seconds is None else self.begun + seconds

    def left_s(self) -> float:
        """Seconds that remain; infinite without a deadline."""
        return max(0.0, self.until - time.monotonic()) if math.isfinite(self.until) else math.inf

    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self.until

    def check(self) -> None:
        """Leave the search if it is over."""
        if self.passed():
            raise TimeUp

    def share(self, part: float) -> Deadline:
        """A deadline after this part of what remains."""
        left = self.left_s()
        return Deadline(None if math.isinf(left) else part * left)


NEVER = Deadline()
