"""In which order to contract many tensors: the fastest by estimate among those whose intermediates fit a cap.

Exact dynamic programming over subsets for up to `EXACT` tensors; beyond, a greedy search with seeded restarts, whose
trees are then improved exactly, a few tensors at a time. Nothing here sees a node or a value.

>>> chain = Network((("a", "b"), ("b", "c"), ("c", "d")), ("a", "d"), (("a", 2), ("b", 9), ("c", 9), ("d", 9)), 4)
>>> find_order(chain).path
((0, 1), (1, 0))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from morpho.base.errors import ArgumentError, MemoryLimit, fail
from morpho.base.python.lazy import cached_property
from morpho.base.units import format_bytes, format_seconds
from morpho.cost.contraction import RATES, ContractionRates
from morpho.ir.op import Cost
from morpho.passes.einsum.search import Labels, Network, Search, Tree, bits

EXACT = 10  # tensors up to which every tree is looked at
MOST_EXACT = 16  # tensors up to which a user may ask for it


@dataclass(frozen=True, slots=True)
class ContractionStep:
    """One pair: where both stand in the list (the result is put at its end), their labels, the result's, the cost."""

    positions: tuple[int, int]
    left: Labels
    right: Labels
    result: Labels
    result_bytes: int
    cost: Cost
    seconds: float


@dataclass(frozen=True)
class ContractionOrder:
    """The pairs in the order they are contracted, and what they cost together. `print` shows it as a table."""

    steps: tuple[ContractionStep, ...]
    flops_at_once: int  # of one loop over all labels, without an order
    rates: ContractionRates = RATES  # that the estimate is by

    @cached_property
    def path(self) -> tuple[tuple[int, int], ...]:
        """Positions as in `numpy.einsum_path`: a pair leaves the list of tensors, its result goes to the end."""
        return tuple(step.positions for step in self.steps)

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of all steps."""
        return sum(step.cost.flops for step in self.steps)

    @cached_property
    def largest_bytes(self) -> int:
        """Of the largest intermediate: the result of a step that is not the last."""
        return max((step.result_bytes for step in self.steps[:-1]), default=0)

    @cached_property
    def seconds(self) -> float:
        """The estimate that the order was chosen by."""
        return sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        rows = [("step", "contraction", "flops", "result", "estimate")]
        for step in self.steps:
            text = f"{spelled(step.left)},{spelled(step.right)}->{spelled(step.result)}"
            rows.append((str(step.positions), text, f"{step.cost.flops:.3g}", format_bytes(step.result_bytes),
                         format_seconds(step.seconds)))
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join([row[0].ljust(widths[0]), row[1].ljust(widths[1]),
                            *(cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))])
                 for row in rows]
        lines.append(f"{self.flops:.3g} flops ({self.flops_at_once:.3g} in one loop over all labels), "
                     f"largest intermediate {format_bytes(self.largest_bytes)}, "
                     f"estimate {format_seconds(self.seconds)}"
                     + ("" if self.rates == RATES else " by this machine's rates"))
        return "\n".join(lines)


def spelled(labels: Labels) -> str:
    """Labels as one text: letters side by side, others with spaces between.

    >>> spelled(("a", "b")), spelled(("...", "a")), spelled(("10", "11"))
    ('ab', '...a', '10 11')
    """
    return ("" if all(len(label) == 1 or label == "..." for label in labels) else " ").join(labels)


@lru_cache(maxsize=512)
def find_order(network: Network, limit_bytes: int | None = None, method: str = "auto",
               rates: ContractionRates = RATES) -> ContractionOrder:
    """The order of least estimated time in which no intermediate takes more than `limit_bytes`.

    `method` is `exact`, `greedy`, `auto` (exact for few tensors) or `given` (from left to right).
    """
    search = Search(network, rates)
    count = len(network.terms)
    if method == "given":
        tree: Tree = [((1 << i) - 1, 1 << i) for i in range(1, count)]
        return checked_order(_described(search, tree), limit_bytes)
    if method == "exact" and count > MOST_EXACT:
        raise fail(ArgumentError, "einsum", f"{count} operands are too many to look at every order: at most "
                                            f"{MOST_EXACT}", "use optimize=True")
    exact = method == "exact" or (method == "auto" and count <= EXACT)
    limit = math.inf if limit_bytes is None else limit_bytes
    found = search.exact(limit) if exact else search.greedy(limit)
    if found is None:
        least = search.least_limit() if exact else search.largest_bytes(search.narrowest())
        raise _too_large(least, limit_bytes, exact)
    return _described(search, found)


def given_order(network: Network, path: Sequence[Sequence[int]], rates: ContractionRates = RATES) -> ContractionOrder:
    """The order of a path a user gives; three or more positions are contracted from left to right."""
    alive = [1 << i for i in range(len(network.terms))]
    tree: Tree = []
    for positions in path:
        distinct = sorted({*positions}, reverse=True)
        if not distinct or len(distinct) != len(positions) or not 0 <= distinct[-1] <= distinct[0] < len(alive):
            raise fail(ArgumentError, "einsum", f"the step {tuple(positions)} of the path does not name different "
                                                f"ones of {len(alive)} operands")
        taken = [alive[i] for i in positions]
        for i in distinct:
            del alive[i]
        joined = taken[0]
        for other in taken[1:]:
            tree.append((joined, other))
            joined |= other
        alive.append(joined)
    if len(alive) != 1:
        raise fail(ArgumentError, "einsum", f"the path leaves {len(alive)} operands instead of one")
    return _described(Search(network, rates), tree)


def checked_order(order: ContractionOrder, limit_bytes: int | None) -> ContractionOrder:
    """The order itself, unless an intermediate of it is larger than the limit."""
    if limit_bytes is not None and order.largest_bytes > limit_bytes:
        raise fail(MemoryLimit, "einsum", f"an intermediate of this path takes {order.largest_bytes} bytes, the limit "
                                          f"is {limit_bytes}", "use optimize=True, or raise memory_limit")
    return order


def _too_large(least: int, limit_bytes: int | None, exact: bool) -> Exception:
    known = "the smallest limit that works is" if exact else "the smallest limit found to work is"
    return fail(MemoryLimit, "einsum", f"every order found has an intermediate of more than {limit_bytes} bytes; "
                                       f"{known} {least} bytes", f"use memory_limit={least}")


def _described(search: Search, tree: Tree) -> ContractionOrder:
    """A tree as steps with positions and costs."""
    alive = [1 << i for i in range(len(search.terms))]
    steps = []
    for left, right in tree:
        first, second = alive.index(left), alive.index(right)
        result = search.kept(left | right)
        cost = search.cost(search.kept(left), search.kept(right), result)
        steps.append(ContractionStep((first, second), _labels_of(search, left), _labels_of(search, right),
                                     _labels_of(search, left | right), search.nbytes(result), cost,
                                     search.rates.seconds(cost)))
        for position in sorted((first, second), reverse=True):
            del alive[position]
        alive.append(left | right)
    labels = 0
    for term in search.terms:
        labels |= term
    return ContractionOrder(tuple(steps), search.elements(labels) * max(1, len(search.terms)), search.rates)


def _labels_of(search: Search, subset: int) -> Labels:
    """The labels of a contracted subset: a tensor's as they are given, a result's as they first occur."""
    if subset & (subset - 1) == 0:
        return search.network.terms[subset.bit_length() - 1]
    if subset == search.whole:
        return search.network.output
    return tuple(search.names[i] for i in bits(search.kept(subset)))
