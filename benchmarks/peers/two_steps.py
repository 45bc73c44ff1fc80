"""A training step that has been made once: the loss of that first step goes with the next one to the check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.prepared import Prepared


class TwoSteps:
    """The first call (made by `prepare`, where code is compiled) and the one that is checked."""

    def __init__(self) -> None:
        self.first: list[Any] = []

    def prepared(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Prepared:
        """After one call."""
        self.first = [function(*arguments)]
        return Prepared(function, arguments)

    def losses(self, loss: Any) -> tuple[Any, ...]:
        """The losses of the first and of the checked step."""
        found, self.first = (*self.first, loss), []
        return found
