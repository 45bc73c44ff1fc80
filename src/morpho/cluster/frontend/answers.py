"""The tokens of a request on their way to who asked for it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

from morpho.cluster.pipeline.request import Request

Listener = Callable[[dict[str, Any]], None]


class Answer:
    """The tokens of one request as they come; those that come again after a death are not taken twice."""

    def __init__(self, request: Request, listener: Listener | None = None) -> None:
        self.request, self.made, self.listener = request, [0] * 0, listener
        self.news: queue.SimpleQueue[int | str | None] = queue.SimpleQueue()  # a token, an error, or the end
        self.over = False
        self.begun_s = time.perf_counter()
        self.times_s: list[float] = []

    def token(self, index: int, token: int, event: dict[str, Any]) -> None:
        if index < len(self.made):
            if self.made[index] != token:
                self.end(f"token {index} of request {self.request.number} came twice, as {self.made[index]} and "
                         f"{token}")
            return
        if index > len(self.made):
            self.end(f"token {len(self.made)} of request {self.request.number} is missing")
            return
        self.made.append(token)
        self.times_s.append(time.perf_counter())
        if not self.over and self.listener is not None:
            self.listener(event)
        elif not self.over:
            self.news.put(token)

    def end(self, error: str | None = None, finish: str = "") -> None:
        if not self.over:
            self.over = True
            self.news.put(error)
            if self.listener is not None:
                self.listener({"event": "end", "error": error, "finish": finish})
