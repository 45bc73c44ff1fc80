"""Reports of workers on their stages, added up over an epoch: seconds for a token, for a prompt's token, for messages.

>>> times = StageTimes()
>>> times.add("a", {"tokens": 8, "compute_s": 0.04, "handled": 8, "handling_s": 0.004})
>>> times.all(), times.handling()
({'a': 0.005}, {'a': 0.0005})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAST_TOKENS = 8  # of a stage, before its time is believed
COUNTED = ("tokens", "calls", "compute_s", "prompt_tokens", "prompt_s", "handled", "handling_s")


class StageTimes:
    """Sums over the runs of each stage; runs that compiled are not among them."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, float]] = {}
        self._asked: dict[str, tuple[float, float]] = {}

    def add(self, node: str, said: Mapping[str, Any]) -> None:
        """Add a worker's report on the time since its last one."""
        sums = self._sums.setdefault(node, dict.fromkeys(COUNTED, 0.0))
        for name in COUNTED:
            sums[name] += said.get(name, 0)

    def begin(self) -> None:
        """A new epoch: the layers may be others, so that nothing of before says anything."""
        self._sums.clear()
        self._asked.clear()

    def _mean(self, count: str, seconds: str) -> dict[str, float]:
        return {node: sums[seconds] / sums[count] for node, sums in self._sums.items() if sums[count] >= LEAST_TOKENS}

    def all(self) -> dict[str, float]:
        """Seconds that each stage takes for a token; a stage that made too few has none."""
        return self._mean("tokens", "compute_s")

    def rows(self) -> dict[str, float]:
        """Tokens of different texts in one call of each stage.

        >>> times = StageTimes()
        >>> times.add("a", {"tokens": 9, "calls": 3})
        >>> times.rows()
        {'a': 3.0}
        """
        return {node: sums["tokens"] / sums["calls"] for node, sums in self._sums.items() if sums["calls"]}

    def prompts(self) -> dict[str, float]:
        """Seconds for a token of a prompt."""
        return self._mean("prompt_tokens", "prompt_s")

    def handling(self) -> dict[str, float]:
        """Seconds for a token beside its stage: receiving, checking, choosing, sending."""
        return self._mean("handled", "handling_s")

    def recent(self) -> dict[str, float]:
        """Seconds for a token since the last time this was asked; a stage that made too few in between has none."""
        found = {}
        for node, sums in self._sums.items():
            told, spent = self._asked.get(node, (0.0, 0.0))
            tokens, seconds = sums["tokens"], sums["compute_s"]
            if tokens - told >= LEAST_TOKENS:
                found[node] = (seconds - spent) / (tokens - told)
                self._asked[node] = (tokens, seconds)
        return found
