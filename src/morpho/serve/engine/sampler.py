"""Choosing a token from a row of logits: `morpho run`'s sampling, with what requests may ask for besides.

In this order: bias, penalties, the masks of the grammar and the request, then what `Sampling` does (temperature, top_k,
top_p), then min_p.
Every text draws from random numbers of its own, so that what others draw does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.models.text.log_probabilities import row_log_probabilities
from morpho.models.text.sampling import Sampling, probabilities
from morpho.serve.engine.request import SamplingParams, TokenScore

NO_TOKEN = "the request allows no token at this position"  # its lists of tokens and its grammar contradict each other
Without = Callable[[int, np.ndarray], np.ndarray | None]


class Sampler:
    """Chooses the tokens of one text. Number 0 of a request draws as `mo.models.generate` with its seed does.

    >>> from morpho.serve.engine.sampler import Sampler
    >>> from morpho.serve.engine.request import SamplingParams
    >>> Sampler(SamplingParams(temperature=0.0), (1, 2)).choose(np.array([0.0, 3.0, 1.0], np.float32))
    1
    """

    def __init__(self, params: SamplingParams, prompt: tuple[int, ...], index: int = 0,
                 stops: Collection[int] = ()) -> None:
        self.params, self.stops = params, [*stops]
        self.sampling = Sampling(params.temperature, params.top_k or None, params.top_p, params.repetition_penalty)
        seed = params.seed if params.seed is None or index == 0 else [params.seed, index]
        self.rng = np.random.default_rng(seed)
        self.seen = {*prompt} if params.repetition_penalty != 1 else set()
        self.counts: Counter[int] = Counter()  # of the tokens of the answer
        self.made = 0
        self._listed: np.ndarray | None = None  # True at the tokens that the request allows
        self.plain = (not params.logit_bias and params.repetition_penalty == 1 and not params.frequency_penalty
                      and not params.presence_penalty)

    def choose(self, logits: np.ndarray, allowed: np.ndarray | None = None, without: Without | None = None) -> int:
        """The next token; `allowed` is True at those that the grammar takes. `without` gives the tokens that are left
        where one that was chosen may not come; the same random number chooses among them."""
        if without is None or allowed is None:
            return self._choose(logits, allowed)
        while True:
            drawn = self.rng.bit_generator.state
            token = self._choose(logits, allowed)
            left = None if token in self.stops else without(token, allowed)
            if left is None:
                return token
            self.rng.bit_generator.state, allowed = drawn, left

    def _choose(self, logits: np.ndarray, allowed: np.ndarray | None) -> int:
        greedy = self.params.temperature == 0
        allowed = self._restricted(logits.size, allowed)
        if self.plain and greedy and allowed is None:  # nothing is rounded on the way: the largest is the largest
            token = int(logits.argmax())
            if not np.isfinite(logits[token]):
                raise fail(ArgumentError, "serve", "the logits are not finite", "look at the model's weights")
            return token
        found = self._biased(logits)
        if allowed is not None:
            if not allowed.any():
                raise fail(ArgumentError, "serve", NO_TOKEN)
            found[~allowed] = -np.inf
        if not self.params.min_p or greedy:
            return self.sampling.choose(found, self.seen, self.rng)
        scores = self.sampling.scores(found, self.seen)
        if np.isnan(scores).any() or not np.isfinite(scores.max()):
            raise fail(ArgumentError, "serve", "the logits are not finite", "look at the model's weights")
        chances = probabilities(scores)
        chances[chances < self.params.min_p * chances.max()] = 0
        heights = np.cumsum(chances)
        return int(np.searchsorted(heights, self.rng.random() * heights[-1], side="right"))

    def scores(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """Scores that the next token is drawn from: float64 logits after all that `choose` does to them but `min_p`."""
        allowed = self._restricted(logits.size, allowed)
        found = self._biased(logits)
        if allowed is not None:
            found[~allowed] = -np.inf
        return self.sampling.scores(found, self.seen)

    def _biased(self, logits: np.ndarray) -> np.ndarray:
        """Logits after bias and the penalties of what was said already, in float64."""
        params, found = self.params, logits.astype(np.float64)
        for token, bias in params.logit_bias.items():
            if token < found.size:
                found[token] += bias
        if self.counts and (params.frequency_penalty or params.presence_penalty):
            tokens = np.fromiter(self.counts.keys(), np.int64)
            times = np.fromiter(self.counts.values(), np.float64)
            found[tokens] -= params.frequency_penalty * times + params.presence_penalty
        return found

    def _restricted(self, size: int, allowed: np.ndarray | None) -> np.ndarray | None:
        """Without tokens that the request does not list, and without those that would end a text too early."""
        early, listed = self.made < self.params.min_tokens, self.params.allowed_token_ids
        if not early and not listed:
            return allowed
        kept = np.ones(size, bool) if allowed is None else allowed.copy()
        if listed:
            if self._listed is None:
                self._listed = np.isin(np.arange(size), listed)
            kept &= self._listed
        if early:
            kept[[token for token in self.stops if token < size]] = False
        return kept

    def took(self, token: int) -> None:
        """A token became part of the text."""
        self.made += 1
        self.counts[token] += 1
        if self.params.repetition_penalty != 1:
            self.seen.add(token)


def logprobs_of(logits: np.ndarray, token: int, most: int, drawn_from: SamplingParams | None = None
                ) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of a token, and the `most` likeliest tokens with theirs: before bias, temperature and cuts,
    or after the temperature and `top_k` of `drawn_from`."""
    logarithm = (row_log_probabilities(logits) if drawn_from is None else
                 row_log_probabilities(logits, drawn_from.temperature, drawn_from.top_k))
    if not most:
        return float(logarithm[token]), ()
    best = np.argpartition(-logarithm, min(most, logarithm.size) - 1)[:most]
    best = best[np.lexsort((best, -logarithm[best]))]
    return float(logarithm[token]), tuple((int(i), float(logarithm[i])) for i in best)


def score_of(logits: np.ndarray, token: int, most: int) -> TokenScore:
    """The score of a token that is there already, by the logits of the token before it."""
    logprob, top = logprobs_of(logits, token, most)
    return TokenScore(logprob, 1 + int((logits > logits[token]).sum()), top)
