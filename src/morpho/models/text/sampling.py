"""Choosing the next token from one row of logits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.models.text.generation_keys import Defaults


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. Temperature 0 takes the likeliest one; otherwise one is drawn, from the `top_k` likeliest
    ones and from the likeliest ones that together have the probability `top_p`. `repetition_penalty` > 1 makes tokens
    that occurred already less likely."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise fail(ArgumentError, "generate", f"temperature={self.temperature} is not a number from 0 on")
        if self.top_k is not None and self.top_k < 1:
            raise fail(ArgumentError, "generate", f"top_k={self.top_k} leaves no token", "leave it out for all")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise fail(ArgumentError, "generate", f"top_p={self.top_p} does not lie in (0, 1]")
        if not 0 < self.repetition_penalty < float("inf"):
            raise fail(ArgumentError, "generate", f"repetition_penalty={self.repetition_penalty} is not positive")

    def scores(self, logits: np.ndarray, seen: Iterable[int] = ()) -> np.ndarray:
        """Logits after penalty, temperature and cuts, -inf where cut; float64."""
        found = logits.astype(np.float64)
        if self.repetition_penalty != 1:
            ids = np.fromiter(set(seen), np.int64)
            old = found[ids]
            found[ids] = np.where(old < 0, old * self.repetition_penalty, old / self.repetition_penalty)
        if not self.temperature:
            return found
        found = _cooled(found, self.temperature)
        if self.top_k is not None and self.top_k < found.size:
            least = np.partition(found, -self.top_k)[-self.top_k]
            found[found < least] = -np.inf
        if self.top_p is not None and self.top_p < 1:
            found[~_nucleus(found, self.top_p)] = -np.inf
        return found

    def choose(self, logits: np.ndarray, seen: Iterable[int], rng: np.random.Generator) -> int:
        """The next token; of equally likely ones the first."""
        found = self.scores(logits, seen)
        if np.isnan(found).any() or not np.isfinite(found.max()):
            raise fail(ArgumentError, "generate", "the logits are not finite", "look at the model's weights")
        if not self.temperature:
            return int(found.argmax())
        heights = np.cumsum(probabilities(found))
        return int(np.searchsorted(heights, rng.random() * heights[-1], side="right"))


def _cooled(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Scores over the temperature; from the largest on, where one as small as 1e-320 leaves no finite number."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: np.ndarray = scores / temperature
        if not np.isfinite(found.max()):
            found = (scores - scores.max()) / temperature
    return found


def probabilities(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()  # type: ignore[no-any-return]


def _nucleus(scores: np.ndarray, top_p: float) -> np.ndarray:
    """True for the likeliest tokens up to, and with, the one that brings their sum to `top_p`."""
    order = np.argsort(-scores, kind="stable")
    before = np.cumsum(probabilities(scores)[order])
    before = np.concatenate([[0.0], before[:-1]])
    kept = np.zeros(scores.size, bool)
    kept[order[before < top_p]] = True
    return kept


def forbidden(logits: np.ndarray, said: Defaults, made: int, most: int) -> np.ndarray:
    """Logits with -inf at tokens that a model's files forbid after `made` of at most `most` tokens, or at all but the
    one they force.

    >>> from morpho.models.text.generation_keys import Defaults
    >>> from morpho.models.text.sampling import forbidden
    >>> forbidden(np.zeros(3), Defaults(suppress_tokens=[1]), 0, 8)
    array([  0., -inf,   0.])
    """
    forced = said.forced_bos_token_id if made == 0 else None
    forced = said.forced_eos_token_id if forced is None and made == most - 1 else forced
    if forced is not None:
        found = np.full_like(logits, -np.inf)
        found[forced] = 0
        return found
    wrong = [*(said.suppress_tokens or ()), *((said.begin_suppress_tokens or ()) if made == 0 else ())]
    wrong = [token for token in wrong if token < logits.size]
    if not wrong:
        return logits
    found = np.array(logits)
    found[wrong] = -np.inf
    return found
