"""Kinds of bottlenecks, and a verdict about one of them."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = {
    "compute": "kernels at the machine's arithmetic limit, or with too much arithmetic for their data",
    "memory": "kernels that wait for memory",
    "python": "Python between kernels, and starting them: many short calls",
    "imbalance": "kernels in which threads wait for one of them, or that one thread runs alone",
    "recompiles": "compiling again what was compiled before for other shapes, numbers or ever longer programs",
    "host": "steps that run in NumPy in the midst of native code",
    "transfers": "copies between the host and a device, and of NumPy's arrays",
    "data": "waiting for the next batch",
    "network": "waiting for other ranks",
    "cold": "caches that are still empty: the first compilation of each program",
}


@dataclass(frozen=True)
class Verdict:
    """One bottleneck: how much of the time it binds, what to change, and about what that would save.

    >>> Verdict("data", 0.5, 1.0, "Waiting for data.", "use num_workers=2", 0.4).share
    0.5
    """

    kind: str  # one of `KINDS`
    seconds: float  # of the profile's time that it binds
    wall_s: float
    finding: str  # a sentence without its full stop
    advice: str  # what to change, as an order
    gain_s: float  # an estimate; 0: none is made
    line: str = ""  # of the user's program

    @property
    def share(self) -> float:
        """Of the whole time."""
        return self.seconds / self.wall_s if self.wall_s else 0.0

    @property
    def gain(self) -> float:
        """The share of the whole time that the advice may save."""
        return min(self.gain_s / self.wall_s, 1.0) if self.wall_s else 0.0

    def __str__(self) -> str:
        if self.gain_s <= 0:  # nobody can say
            return f"{self.finding}; {self.advice}."
        return f"{self.finding}; {self.advice} would save about {100 * self.gain:.0f} %."
