"""The naive path, as a baseline to measure against: each part of the fast one can be left out by itself.

Together with a uniform plan (`plan.solve(..., strategy="uniform")`) and one text at a time it is what a pipeline is
without any of this: scalar kernels, three copies of every message, computing and sending one after the other. Tokens
are the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """Features that a naive pipeline lacks: `scalar` kernels, so many further `copies` of each message, `blocking`
    sends, one text in a call at a time (`turns`).

    >>> NAIVE.settings(2), FAST.settings(2)
    ({'threads': 2, 'isa': 'scalar'}, {'threads': 2})
    """

    scalar: bool = False
    copies: int = 0
    blocking: bool = False
    turns: bool = False

    def settings(self, threads: int) -> dict[str, Any]:
        """Settings of a worker."""
        return {"threads": threads, **({"isa": "scalar"} if self.scalar else {})}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


FAST, NAIVE = Baseline(), Baseline(True, 3, True, True)
