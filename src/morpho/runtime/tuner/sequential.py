"""The statistics of the tuner: is one way faster than another by some margin? Pure; times come in, verdicts come out.

Times come in pairs, taken one after the other, so that what else the machine does meets both. Of each pair only the
sign of `ratio - margin` counts: whether the median ratio lies above the margin is a question about a coin, whatever the
noise looks like. A player bets on that coin with odds that are fair if it is not biased in favour of the question; by
Ville's inequality the chance that he *ever* multiplies his stake by 1 / error is at most `error`, however often one
looks. (A test by betting: Waudby-Smith and Ramdas, 2023; with the bets of Krichevsky and Trofimov.)

>>> test = Bet(error=0.01)
>>> for _ in range(10):
...     test.see(True)
>>> test.is_sure, round(test.wealth)
(False, 93)
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

MOST_KEPT = 512  # ratios that a median is taken of: the latest


@dataclass
class Bet:
    """A stake on a coin that falls on `True` more often than not."""

    error: float
    wealth: float = 1.0
    best: float = 1.0
    seen: int = 0
    balance: int = 0  # how often True, less how often False

    def see(self, outcome: bool) -> None:
        """One more toss; the share that is bet is known before it."""
        share = max(0.0, self.balance / (self.seen + 2))
        self.wealth *= 1.0 + share if outcome else 1.0 - share
        self.best = max(self.best, self.wealth)
        self.seen += 1
        self.balance += 1 if outcome else -1

    @property
    def is_sure(self) -> bool:
        """Whether the stake was multiplied by 1 / error at any time."""
        return self.best * self.error >= 1.0


@dataclass
class Duel:
    """Two ways of computing: is the challenger faster than the holder by the margin, and is it at all worth trying on?

    >>> duel = Duel(margin=0.10, error=0.01, futility=0.1)
    >>> while duel.verdict == "open":
    ...     duel.feed(holder_s=1.3, challenger_s=1.0)
    >>> duel.verdict, duel.pairs, round(duel.gain, 2)
    ('faster', 11, 1.3)
    """

    margin: float
    error: float
    futility: float = 0.1  # how often a way that is worth it may be given up
    most_pairs: int = 200
    ratios: list[float] = field(default_factory=list)
    pairs: int = 0

    def __post_init__(self) -> None:
        self._yes, self._no = Bet(self.error), Bet(self.futility)

    def feed(self, holder_s: float, challenger_s: float) -> None:
        """A pair of times, taken one after the other."""
        if not (holder_s > 0 and challenger_s > 0 and math.isfinite(holder_s) and math.isfinite(challenger_s)):
            return  # a clock that stood still or went back says nothing
        ratio = holder_s / challenger_s
        self.pairs += 1
        self.ratios = [*self.ratios[-MOST_KEPT + 1:], ratio]
        self._yes.see(ratio > 1.0 + self.margin)
        self._no.see(ratio < 1.0 + self.margin)

    @property
    def verdict(self) -> str:
        """`faster`, `no`, or `open` while that is not known."""
        if self._yes.is_sure:
            return "faster"
        return "no" if self._no.is_sure or self.pairs >= self.most_pairs else "open"

    @property
    def gain(self) -> float:
        """How many times faster the challenger is, by the median of the pairs; 1 before the first."""
        return statistics.median(self.ratios) if self.ratios else 1.0


@dataclass
class Watch:
    """A choice in force against the default it replaced: it goes when the default is faster, for sure.

    >>> watch = Watch(error=0.01)
    >>> for _ in range(20):
    ...     watch.feed(default_s=1.0, chosen_s=1.2)
    >>> watch.rolls_back
    True
    """

    error: float = 0.01
    tolerance: float = 0.02  # a choice no more than this slower than the default stays: both are as good
    memory: int = 64  # pairs after which it looks afresh: what was right for long must not outvote what is wrong now

    def __post_init__(self) -> None:
        self._bet, self.rolls_back, self.pairs = Bet(self.error / 2), False, 0

    def feed(self, default_s: float, chosen_s: float) -> None:
        """A pair of times, taken one after the other."""
        if not (default_s > 0 and chosen_s > 0 and math.isfinite(default_s) and math.isfinite(chosen_s)):
            return
        if self._bet.seen >= self.memory:
            # Each fresh look may be wrong half as often as the one before: together no more than `error`.
            self._bet = Bet(self._bet.error / 2)
        self._bet.see(chosen_s > default_s * (1.0 + self.tolerance))
        self.pairs += 1
        self.rolls_back = self.rolls_back or self._bet.is_sure


@dataclass
class Ration:
    """Time that exploring may take: a share of what has passed. A measurement that took longer than it was thought to
    is paid for before the next.

    >>> ration = Ration(share=0.01)
    >>> ration.may_spend(now_s=1.0, seconds=0.02), ration.may_spend(now_s=3.0, seconds=0.02)
    (False, True)
    """

    share: float = 0.01
    started_s: float = 0.0
    spent_s: float = 0.0

    def may_spend(self, now_s: float, seconds: float) -> bool:
        """Whether so many seconds would stay within the share."""
        return self.spent_s + seconds <= self.share * (now_s - self.started_s)

    def spend(self, seconds: float) -> None:
        """They were taken."""
        self.spent_s += max(0.0, seconds)

    def waits_s(self, now_s: float, seconds: float) -> float:
        """How long until they may be."""
        return max(0.0, (self.spent_s + seconds) / self.share - (now_s - self.started_s))
