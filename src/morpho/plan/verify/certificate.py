"""Dual certificates: any prices prove a bound, by weak duality, and integers say which.

Give every node a price >= 0 and every stage one. Let a *relaxed path* take nodes again and again. A plan takes no more
nodes than there are and no more stages than are allowed, so it pays at most the sum of all prices; hence the cheapest
priced path, less that sum, is at most the value of every plan. Prices are rounded to integers first: whatever they are,
the bound that follows is a true one, so nobody needs to be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from morpho.plan.model.layer import BYTES_OF
from morpho.plan.verify.scaled import NEVER, Scaled

WEIGHT = 1 << 40  # what all prices sum to where only prices count
MOST_WORK = 4_000_000_000  # entries of all cuts: more are not looked through


def too_much(scaled: Scaled) -> bool:
    """Whether a look at every cut would take too long."""
    return len(scaled.use) ** 2 * scaled.request.depth > MOST_WORK


def whole_prices(scaled: Scaled, proof: Mapping[str, Any], timed: bool) -> tuple[np.ndarray, int, int]:
    """Prices of groups and of a stage in units, and the sum over all there are.

    A group has the least price of its nodes. No price is negative or above the value itself.
    """
    stated = proof.get("prices", {})
    raw = [min((max(Fraction(0), Fraction(stated.get(name, 0))) for name in names), default=Fraction(0))
           for names in scaled.request.names]
    stage = max(Fraction(0), Fraction(proof.get("stage_price", 0)))
    counts = [*scaled.request.room, scaled.request.most_stages]
    total = sum((price * count for price, count in zip([*raw, stage], counts)), Fraction(0))
    if timed:
        scale, most = Fraction(scaled.unit) / scaled.value_s, scaled.unit
    else:
        scale, most = Fraction(WEIGHT) / total if total else Fraction(0), WEIGHT
    prices = [min(most, int(price * scale)) for price in [*raw, stage]]
    return np.array(prices[:-1], dtype=np.int64), prices[-1], sum(a * b for a, b in zip(prices, counts))


def completions(scaled: Scaled, far: np.ndarray, proof: Mapping[str, Any], timed: bool
                ) -> tuple[np.ndarray, int, np.ndarray, int]:
    """`after[k, a]`, the least price (with time, if `timed`) of finishing the chain after a stage of kind k that ended
    at a; that of the whole chain; what a stage of each kind pays; and the sum of all prices."""
    request, unit = scaled.request, scaled.unit
    depth, kinds = request.depth, len(scaled.use)
    group_price, stage_price, paid = whole_prices(scaled, proof, timed)
    most = unit if timed else WEIGHT
    toll = np.minimum(group_price[scaled.group] * np.minimum(scaled.use, 1 << 10) + stage_price, 2 * most)
    prefix = scaled.prefix if timed else np.zeros_like(scaled.prefix)
    after = np.full((kinds, depth + 1), NEVER, dtype=np.int64)
    after[:, depth] = 0
    longest = max(1, int((far - np.arange(depth + 1)).max(initial=1)))
    steps = np.arange(1, longest + 1)
    whole = NEVER
    for at in range(depth - 1, -1, -1):
        ends = slice(at + 1, at + 1 + longest)
        allowed = steps[None, :depth - at] <= (far[:, at] - at)[:, None]
        value = np.where(allowed, after[:, ends] + prefix[:, ends], NEVER)
        enter = np.minimum(value.min(axis=1, initial=NEVER) - prefix[:, at] + toll, NEVER)
        if at == 0:
            whole = int(enter.min(initial=NEVER))
            break
        after[:, at] = _cheapest_hop(scaled, at, enter, timed)
    return after, whole, toll, paid


def _cheapest_hop(scaled: Scaled, at: int, enter: np.ndarray, timed: bool) -> np.ndarray:
    """The least cost of going on to any kind with the quickest type of link, after each kind."""
    quickest = min(range(len(scaled.request.dtypes)), key=lambda option: BYTES_OF[scaled.request.dtypes[option]])
    hops = scaled.hops(quickest, at)
    if not timed:
        hops = np.where(hops < scaled.unit, 0, NEVER)
    return np.minimum(hops + enter[None, :], NEVER).min(axis=1, initial=NEVER)  # type: ignore[no-any-return]


def latency_certified(scaled: Scaled, proof: Mapping[str, Any]) -> bool:
    """Whether prices prove that no plan has a latency below the value."""
    _, whole, _, paid = completions(scaled, scaled.request.far, proof, timed=True)
    return whole - paid >= scaled.unit


def period_certified(scaled: Scaled, proof: Mapping[str, Any]) -> bool:
    """Whether prices prove that no plan has a period below the value."""
    _, whole, _, paid = completions(scaled, scaled.ends_within(), proof, timed=False)
    return whole > paid
