"""A worker's record of all requests: enough to go on with any of them, and no more of those that are over.

>>> ledger = Ledger()
>>> for number in (1, 2, 3):
...     _ = ledger.add(Request(number, (5, 6), count=4))
>>> ledger.finish(3), ledger.finish(1)
(None, None)
>>> [request.number for request in ledger.open()], ledger.finished.all_below, 3 in ledger.finished
([2], 2, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from morpho.cluster.pipeline.request import Request


class Finished:
    """Numbers of requests that are over. They are given out one after another, so that a server that runs for months
    remembers one number, below which all are over, and a few others."""

    def __init__(self, all_below: int = 1) -> None:
        self.all_below = all_below
        self._others: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self.all_below or number in self._others

    def __len__(self) -> int:
        return len(self._others)

    def add(self, number: int) -> None:
        """One more is over."""
        if number >= self.all_below:
            self._others.add(number)
        while self.all_below in self._others:
            self._others.remove(self.all_below)
            self.all_below += 1

    def to_dict(self) -> dict[str, Any]:
        return {"all_below": self.all_below, "others": sorted(self._others)}

    def learn(self, said: Mapping[str, Any]) -> None:
        """Take over what another worker knows."""
        self.all_below = max(self.all_below, said["all_below"])
        known, self._others = self._others, set[int]()
        for number in sorted(known.union(said["others"])):
            self.add(number)


class Ledger:
    """The requests of a worker, and the tokens that it knows of each."""

    def __init__(self, finished: Mapping[str, Any] | None = None) -> None:
        self.requests: dict[int, Request] = {}
        self.made: dict[int, list[int]] = {}
        self.finished = Finished()
        if finished:
            self.finished.learn(finished)

    def add(self, request: Request, made: Sequence[int] = ()) -> bool:
        """Whether a request is new; `made` are tokens that it begins with."""
        if request.number in self.requests or request.number in self.finished:
            return False
        self.requests[request.number] = request
        self.made[request.number] = [*made]
        return True

    def finish(self, number: int) -> None:
        """A request has ended."""
        self.finished.add(number)
        self._forget(number)

    def learn(self, finished: Mapping[str, Any]) -> None:
        """Take over which requests have ended."""
        self.finished.learn(finished)
        for number in [number for number in self.requests if number in self.finished]:
            self._forget(number)

    def _forget(self, number: int) -> None:
        self.requests.pop(number, None)
        self.made.pop(number, None)

    def open(self) -> list[Request]:
        """Requests that have not ended, oldest first."""
        return [request for _, request in sorted(self.requests.items())]
