"""A call that says itself how long its measured part took, such as decoding without the prompt before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.peers.prepared import Prepared


class Made(NamedTuple):
    """Text, the number of its tokens, and the seconds of the part that counts."""

    seconds: float
    tokens: int
    text: str


class SelfTimed(Prepared):
    """Prepared, with the seconds taken from the results."""

    def loop(self) -> Callable[[int], float]:
        """A function that makes n calls and returns the seconds they report."""
        def run(calls: int) -> float:
            return sum(self.function(*self.arguments, **self.keywords).seconds for _ in range(calls))

        return run


def to_numpy(made: Made) -> tuple[Any, ...]:
    """What the cases check."""
    return made.tokens, made.text
