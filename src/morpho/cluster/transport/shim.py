"""A link made slower than it is, for tests: a seeded delay and a rate, by holding received messages back.

>>> shim = Shim(latency_s=0.001, bytes_per_s=1e6, seed=1)
>>> shim.due(now=0.0, nbytes=1000)
0.002
>>> shim.due(now=0.0, nbytes=1000)
0.003
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Shim:
    """When a message that has arrived may be looked at: after those before it at the rate, and the latency.

    `jitter` spreads the latency by that share, drawn from the seed.
    """

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    jitter: float = 0.0
    seed: int = 0
    _free_s: float = field(default=0.0, init=False)
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def due(self, now: float, nbytes: int) -> float:
        """The time at which a message of so many bytes that came `now` has come through."""
        begins = max(now, self._free_s)
        self._free_s = begins + nbytes / self.bytes_per_s
        spread = 1.0 + self.jitter * (2.0 * self._rng.random() - 1.0) if self.jitter else 1.0
        return self._free_s + self.latency_s * spread
