"""What each stage takes for a token, as workers report it.

>>> times = StageTimes()
>>> times.add("a", 10, 0.5)
>>> times.all(), times.recent(), times.recent()
({'a': 0.05}, {'a': 0.05}, {})
"""

from __future__ import annotations

from morpho.cluster.frontend.adapting import LEAST_TOKENS


class StageTimes:
    """Tokens and seconds of each node, of one epoch."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}
        self._asked: dict[str, tuple[int, float]] = {}

    def begin(self) -> None:
        """A new epoch counts from nothing."""
        self._sums = {}

    def add(self, node: str, tokens: int, seconds: float) -> None:
        """What a worker has reported."""
        before = self._sums.get(node, (0, 0.0))
        self._sums[node] = (before[0] + tokens, before[1] + seconds)

    def all(self) -> dict[str, float]:
        """Seconds a token of each stage that has made enough."""
        return {node: seconds / tokens for node, (tokens, seconds) in self._sums.items() if tokens >= LEAST_TOKENS}

    def recent(self) -> dict[str, float]:
        """The same since the last time this was asked."""
        found = {}
        for node, (tokens, seconds) in self._sums.items():
            told, spent = self._asked.get(node, (0, 0.0))
            told, spent = (told, spent) if told <= tokens else (0, 0.0)  # a new epoch
            if tokens - told >= LEAST_TOKENS:
                found[node] = (seconds - spent) / (tokens - told)
                self._asked[node] = (tokens, seconds)
        return found
