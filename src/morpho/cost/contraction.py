"""Cost of contracting two tensors: operations, bytes, and an estimate of the time they take.

>>> RATES.seconds(Cost(flops=20_000, bytes=10_000))
4e-06
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.ir.op import Cost


@dataclass(frozen=True, slots=True)
class ContractionRates:
    """How fast contractions run: operations, bytes through memory, and what starting one costs."""

    flops_per_s: float
    bytes_per_s: float
    overhead_s: float

    def seconds(self, cost: Cost) -> float:
        """Computing, moving and starting, one after the other."""
        return cost.flops / self.flops_per_s + cost.bytes / self.bytes_per_s + self.overhead_s


# Constants, not this machine's figures: the order of contraction decides how sums round, and it is the same everywhere.
# The machine profile has its own (`cost/dispatch_thresholds.py`), for integers and for who asks for them.
RATES = ContractionRates(flops_per_s=2e10, bytes_per_s=1e10, overhead_s=2e-6)


def pair_cost(left: int, right: int, result: int, points: int, sums: bool, itemsize: int) -> Cost:
    """The cost of contracting two tensors, from the elements of both, of the result, and of all their labels together
    (`points`): a multiplication for each point, and an addition where labels are summed."""
    return Cost(points * (2 if sums else 1), (left + right + result) * itemsize)
