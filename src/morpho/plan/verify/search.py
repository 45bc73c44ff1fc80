"""The checker's own proofs: priced walks from stored duals, and a search that shows that nothing better exists.

No solver code is used. States are dictionaries from (nodes used of each group, links of each type, kind of the last
stage) to the boundaries that can be reached: a number whose bits are boundaries, or their least latencies.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from morpho.plan.verify.facts import Facts

ROUNDING = 1e-9
Key = tuple[tuple[int, ...], tuple[int, ...], int]


def limit(facts: Facts, period_s: float) -> Facts:
    """The facts when no stage and no link may take longer than a period."""
    far = []
    for prefix, row in zip(facts.prefix, facts.far):
        reach = [bisect_right(prefix, prefix[at] + period_s * (1 + 1e-12)) - 1 for at in range(len(prefix))]
        far.append([min(a, b) for a, b in zip(row, reach)])
    hops = [[[[hop if hop <= period_s * (1 + 1e-12) else math.inf for hop in row] for row in rows] for rows in table]
            for table in facts.hops]
    return replace(facts, far=far, hops=hops)


def completions(facts: Facts, price: list[float], timed: bool) -> list[list[float]]:
    """`table[k][a]`: the least price (with time, if `timed`) of finishing the chain after a stage of kind k ended at a.

    `table[-1][0]` is that of the whole chain. Nodes may be used again and again: no plan costs less.
    """
    kinds, depth = len(facts.use), facts.depth
    toll = [price[facts.group[kind]] * facts.use[kind] for kind in range(kinds)]
    table = [[math.inf] * depth + [0.0] for _ in range(kinds)]
    whole = math.inf
    for at in range(depth - 1, -1, -1):
        enter = []
        for kind in range(kinds):
            prefix, after = facts.prefix[kind], table[kind]
            span = range(at + 1, facts.far[kind][at] + 1)
            if timed:
                least = min((after[end] + prefix[end] for end in span), default=math.inf) - prefix[at]
            else:
                least = min((after[end] for end in span), default=math.inf)
            enter.append(least + toll[kind])
        if at == 0:
            whole = min(enter, default=math.inf)
            break
        for kind in range(kinds):
            least = math.inf
            for table_of_type in facts.hops:
                for following, cost in enumerate(enter):
                    hop = table_of_type[kind][following][at]
                    if hop < math.inf:
                        least = min(least, cost + (hop if timed else 0.0))
            table[kind][at] = least
    return [*table, [whole]]


def prices_of(facts: Facts, by_node: Mapping[str, float]) -> list[float]:
    """Prices of groups from prices of nodes: the lowest of a group, which keeps the bound valid; none is negative."""
    return [max(0.0, min(float(by_node.get(name, 0.0)) for name in names)) for names in facts.nodes]


def latency_bound_holds(facts: Facts, by_node: Mapping[str, float], bound_s: float) -> bool:
    """Whether prices prove that no plan has a latency below the bound."""
    price = prices_of(facts, by_node)
    whole = completions(facts, price, timed=True)[-1][0]
    paid = sum(cost * count for cost, count in zip(price, facts.room))
    return whole - paid >= bound_s * (1 - ROUNDING)


def period_bound_holds(facts: Facts, by_node: Mapping[str, float], bound_s: float) -> bool:
    """Whether prices prove that no plan has a period below the bound."""
    price = prices_of(facts, by_node)
    whole = completions(limit(facts, bound_s * (1 - ROUNDING)), price, timed=False)[-1][0]
    paid = sum(cost * count for cost, count in zip(price, facts.room))
    return whole > paid * (1 + 1e-12)


def _moves(facts: Facts, used: tuple[int, ...], sent: tuple[int, ...]
           ) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """(kind, type, nodes used then, types sent then) of every next stage that nodes and budget allow."""
    for option, error in enumerate(facts.errors):
        if facts.budget is not None:
            spent = math.fsum(count * cost for count, cost in zip(sent, facts.errors)) + error
            if spent > facts.budget * (1 + 1e-12):
                continue
        types = tuple(count + (position == option) for position, count in enumerate(sent))
        for kind, group in enumerate(facts.group):
            if used[group] + facts.use[kind] <= facts.room[group]:
                grown = tuple(count + (facts.use[kind] if position == group else 0)
                              for position, count in enumerate(used))
                yield kind, option, grown, types if facts.budget is not None else sent


def plan_within(facts: Facts, period_s: float, by_node: Mapping[str, float]) -> bool:
    """Whether any plan keeps within a period: an exhaustive search over sets of boundaries."""
    facts = limit(facts, period_s)
    price = prices_of(facts, by_node)
    after = completions(facts, price, timed=False)
    paid = sum(cost * count for cost, count in zip(price, facts.room))
    if after[-1][0] > paid * (1 + ROUNDING):
        return False
    gates = [_gates(row) for row in after[:-1]]
    spans = [[((1 << (far + 1)) - 1) >> (at + 1) << (at + 1) for at, far in enumerate(row)] for row in facts.far]
    open_cuts = [[[sum(1 << at for at, hop in enumerate(hops) if hop < math.inf) for hops in row] for row in table]
                 for table in facts.hops]
    goal = 1 << facts.depth
    level: dict[Key, int] = {}
    for kind, _, used, sent in _first(facts):
        level[used, sent, kind] = spans[kind][0]
    for _ in range(facts.most_stages):
        following: dict[Key, int] = {}
        for (used, sent, last), ends in level.items():
            if ends & goal:
                return True
            for kind, option, grown, types in _moves(facts, used, sent):
                starts = ends & open_cuts[option][last][kind]
                if not starts:
                    continue
                left = paid * (1 + ROUNDING) - sum(cost * count for cost, count in zip(price, grown))
                reached = _union(spans[kind], starts) & _gate(gates[kind], left)
                if reached:
                    key = (grown, types, kind)
                    following[key] = following.get(key, 0) | reached
        level = following
    return False


def _first(facts: Facts) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    none = (0,) * len(facts.errors)
    for kind, group in enumerate(facts.group):
        if facts.use[kind] <= facts.room[group]:
            used = tuple(facts.use[kind] if position == group else 0 for position in range(len(facts.room)))
            yield kind, 0, used, none


def _union(spans: list[int], starts: int) -> int:
    """All ends that a stage from any of the starts can have."""
    reached = 0
    while starts:
        lowest = starts & -starts
        reached |= spans[lowest.bit_length() - 1]
        starts ^= lowest
    return reached


def _gates(row: list[float]) -> tuple[list[float], list[int]]:
    """Prices of completion in order, and the boundaries that each affords."""
    order = sorted(range(len(row)), key=lambda at: row[at])
    masks, mask = [], 0
    for at in order:
        mask |= 1 << at
        masks.append(mask)
    return [row[at] for at in order], masks


def _gate(gates: tuple[list[float], list[int]], left: float) -> int:
    """The boundaries from which the chain can still be finished for what is left."""
    position = bisect_right(gates[0], left + 1e-12)
    return gates[1][position - 1] if position else 0


def plan_below(facts: Facts, latency_s: float, by_node: Mapping[str, float]) -> bool:
    """Whether any plan has a latency below the given one: an exhaustive search over least latencies."""
    price = prices_of(facts, by_node)
    after = completions(facts, price, timed=True)
    paid = sum(cost * count for cost, count in zip(price, facts.room))
    if after[-1][0] - paid >= latency_s:
        return False
    finish, prefix = np.array(after[:-1]), np.array(facts.prefix)
    hops, far = np.array(facts.hops), facts.far
    level: dict[Key, np.ndarray] = {}
    for kind, _, used, sent in _first(facts):
        row = np.full(facts.depth + 1, math.inf)
        row[1:far[kind][0] + 1] = prefix[kind][1:far[kind][0] + 1]
        level[used, sent, kind] = row
    for _ in range(facts.most_stages):
        following: dict[Key, np.ndarray] = {}
        for (used, sent, last), costs in level.items():
            if costs[-1] < latency_s:
                return True
            for kind, option, grown, types in _moves(facts, used, sent):
                key = (grown, types, kind)
                entry = costs + hops[option, last, kind]
                known = following.get(key)
                following[key] = entry if known is None else np.minimum(known, entry)
        level = {}
        for (used, sent, kind), entry in following.items():
            row = _least_ends(entry - prefix[kind], far[kind]) + prefix[kind]
            owed = sum(cost * count for cost, count in zip(price, used)) - paid
            row[row + finish[kind] + owed >= latency_s] = math.inf
            if np.isfinite(row).any():
                level[used, sent, kind] = row
    return False


def _least_ends(values: np.ndarray, far: list[int]) -> np.ndarray:
    """For every end the least value among the starts that reach it; starts are taken with the cheapest first."""
    result = np.full(len(values), math.inf)
    open_ends = len(values)
    for at in np.argsort(values, kind="stable"):
        if not math.isfinite(values[at]) or not open_ends:
            break
        part = result[at + 1:far[at] + 1]
        np.minimum(part, values[at], out=part)
    return result
