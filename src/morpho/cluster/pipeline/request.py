"""A request, and how far its text has come: enough to go on with it anywhere.

>>> stream = Stream(Request(1, (3, 4), count=5))
>>> import numpy as np
>>> stream.take(np.array([0.0, 2.0, 1.0])), stream.tokens
(1, [3, 4, 1])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from morpho.models.text.generation_keys import Defaults
from morpho.models.text.sampling import Sampling, forbidden


@dataclass(frozen=True)
class Request:
    """A prompt and how to go on from it. The seed is always a number: whoever draws again draws the same."""

    number: int
    prompt: tuple[int, ...]
    count: int
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    stops: tuple[int, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)  # for streams of another kind: plain data
    said: Defaults = field(default_factory=Defaults)  # by the model's files: which tokens are forced or never made

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Request:
        """The request that `to_dict` described."""
        return Request(data["number"], tuple(data["prompt"]), data["count"], Sampling(**data["sampling"]), data["seed"],
                       tuple(data["stops"]), dict(data.get("more", {})), Defaults(**data.get("said", {})))

    def length(self, two_parts: bool = False) -> int:
        """Positions that the text takes at most; an encoder's prompt and a decoder's text have a cache each."""
        return max(len(self.prompt), self.count + 1) if two_parts else len(self.prompt) + self.count


class Stream:
    """A request with the tokens made so far. One that begins with some draws as often as they took, so that the next
    token is the one it would have been.

    A server has streams of its own (`MakeStream`), made anew from request and tokens in every epoch: `told` is what
    they say with each token, `finish` why the text ended."""

    def __init__(self, request: Request, made: Sequence[int] = ()) -> None:
        self.request, self.made = request, list(made)
        self.told: dict[str, Any] = {}
        self.finish = "length"
        self._rng = np.random.default_rng(request.seed)
        if request.sampling.temperature:
            self._rng.random(len(self.made))
        self._seen = {*request.prompt, *self.made}
        self.ended = len(self.made) >= request.count

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer."""
        return [*self.request.prompt, *self.made]

    def take(self, logits: np.ndarray) -> int | None:
        """The next token, or None if it ends the text."""
        told = forbidden(logits, self.request.said, len(self.made), self.request.count)
        token = self.request.sampling.choose(told, self._seen, self._rng)
        if token in self.request.stops:
            self.ended, self.finish = True, "stop"
            return None
        self.made.append(token)
        self._seen.add(token)
        self.ended = len(self.made) >= self.request.count
        return token


MakeStream = Callable[[Request, Sequence[int]], Stream]


def longest(*made: list[int]) -> list[int]:
    """The longest known beginning of a text among several workers: each has its beginning.

    >>> longest([1, 2], [1, 2, 3], [])
    [1, 2, 3]
    """
    best: list[int] = max(made, key=len)
    return list(best)
