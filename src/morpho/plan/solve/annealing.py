"""The strategy `annealing`: simulated annealing on cuts and on the order of nodes, from the best heuristic plan.

A state is a list of stages. A move shifts a cut, swaps two nodes, puts an unused node in the place of a used one,
splits a stage with an unused node, or joins two neighbours. Only the stages it touches are computed anew. What is
minimised is the predicted time: the latency, or for throughput a high power mean of the stage periods, which leads
towards the maximum without its plateaus. The temperature starts at what typical bad moves cost and falls
geometrically.
"""

from __future__ import annotations

import math
import time as clock
from random import Random

import numpy as np

from morpho.base.errors import MemoryLimit, MorphoError, fail
from morpho.plan.solve.anytime import first_placement
from morpho.plan.solve.deadline import NEVER, Deadline
from morpho.plan.solve.exact.branch_and_bound import best_latency, best_period, lattice_cells
from morpho.plan.solve.exact.feasibility_sets import feasible
from morpho.plan.solve.heuristics import CHEAP_RULES
from morpho.plan.solve.problem import Placement, Problem, build, no_plan
from morpho.plan.solve.registry import Proposal, Request, register_strategy, run_strategy

POWER = 12
MOVES = 100_000  # some 0.6 s
CLIMBS = 800  # and 0.3 s
ROUNDS = 3
CLOCK_EVERY = 256
INSTANT_CELLS = 20_000  # multisets of nodes x kinds x boundaries that the exact search goes through in some 0.1 s


class Chain:
    """Stages as lists of numbers: kind, end, option of the link into it; with their costs and those of the links."""

    def __init__(self, problem: Problem, path: Placement, objective: str) -> None:
        self.problem, self.throughput = problem, objective != "latency"
        self.time, self.far = problem.time.tolist(), problem.far.tolist()
        self.late, self.wide = problem.late.tolist(), problem.wide.tolist()
        self.sizes, self.limit = problem.sizes.tolist(), problem.limit_s
        self.pool, self.use = problem.pool.tolist(), problem.use.tolist()
        self.free = [int(cap) for cap in problem.caps]
        for kind, *_ in path:
            self.free[self.pool[kind]] -= self.use[kind]
        self.path: Placement = list(path)
        self.scale = max(problem.values(path)[0], 1e-300)
        self.energy = self.energy_of(self.path)

    def energy_of(self, part: Placement, before: tuple[int, int, int, int] | None = None,
                  after: tuple[int, int, int, int] | None = None) -> float:
        """Energy of neighbouring stages, the links to `before` and `after` included; infinite where not allowed."""
        total, previous = 0.0, before
        time, far = self.time, self.far
        for stage in part if after is None else [*part, after]:
            kind, start, end, option = stage
            if stage is not after:
                if end <= start or end > far[kind][start]:
                    return math.inf
                spent = time[kind][end] - time[kind][start]
                total += (spent / self.scale) ** POWER if self.throughput else spent
            if previous is not None:
                hop = self.late[previous[0]][kind] + self.sizes[option][start] / self.wide[previous[0]][kind]
                if hop == math.inf or hop > self.limit:
                    return math.inf
                total += (hop / self.scale) ** POWER if self.throughput else hop
            previous = stage
        return total

    def affordable(self, path: Placement) -> bool:
        """Whether the links' types stay within the budget."""
        budget = self.problem.budget
        if budget is None:
            return True
        return math.fsum(self.problem.errors[stage[3]] for stage in path[1:]) <= budget

    def propose(self, random: Random) -> tuple[int, int, Placement] | None:
        """A move as (first, last, the stages that replace path[first:last])."""
        path, count = self.path, len(self.path)
        choice = random.random()
        if choice < 0.45 and count > 1:
            at = random.randrange(count - 1)
            return at, at + 2, self._shift(at, random)
        if choice < 0.65 and count > 1:
            return self._swap(random)
        kind = random.randrange(len(self.pool))
        if choice < 0.8:
            at = random.randrange(count)
            old, start, end, option = path[at]
            room = self.free[self.pool[kind]] + (self.use[old] if self.pool[old] == self.pool[kind] else 0)
            return (at, at + 1, [(kind, start, end, option)]) if room >= self.use[kind] and kind != old else None
        if choice < 0.92:
            return self._split(kind, random)
        if choice < 0.97 and count > 1:
            at = random.randrange(count - 1)
            first, second = path[at], path[at + 1]
            kept = first[0] if random.random() < 0.5 else second[0]
            return at, at + 2, [(kept, first[1], second[2], first[3])]
        if len(self.problem.dtypes) > 1 and count > 1:
            at = random.randrange(1, count)
            kind, start, end, _ = path[at]
            return at, at + 1, [(kind, start, end, random.randrange(len(self.problem.dtypes)))]
        return None

    def _shift(self, at: int, random: Random) -> Placement:
        first, second = self.path[at], self.path[at + 1]
        step = random.choice((-1, 1)) * (1 if random.random() < 0.7 else random.randint(2, 6))
        cut = min(max(first[2] + step, first[1] + 1), second[2] - 1)
        return [(first[0], first[1], cut, first[3]), (second[0], cut, second[2], second[3])]

    def _swap(self, random: Random) -> tuple[int, int, Placement]:
        path = self.path
        at, other = sorted(random.sample(range(len(path)), 2))
        part = list(path[at:other + 1])
        if random.random() < 0.5:  # the nodes change places, the cuts stay
            (a, *rest), (b, *last) = part[0], part[-1]
            part[0], part[-1] = (b, *rest), (a, *last)  # type: ignore[assignment]
        else:  # the nodes change places and take their numbers of layers along
            order = [part[-1], *part[1:-1], part[0]]
            start, moved = part[0][1], []
            for stage, place in zip(order, part):
                end = start + stage[2] - stage[1]
                moved.append((stage[0], start, end, place[3]))
                start = end
            part = moved
        return at, other + 1, part

    def _split(self, kind: int, random: Random) -> tuple[int, int, Placement] | None:
        if self.free[self.pool[kind]] < self.use[kind] or len(self.path) >= self.problem.max_stages:
            return None
        at = random.randrange(len(self.path))
        old, start, end, option = self.path[at]
        if end - start < 2:
            return None
        cut, new = random.randint(start + 1, end - 1), random.randrange(len(self.problem.dtypes))
        first, second = (old, kind) if random.random() < 0.5 else (kind, old)
        return at, at + 1, [(first, start, cut, option), (second, cut, end, new)]

    def change(self, first: int, last: int, part: Placement) -> float:
        """How much the energy changes; only the touched stages and their links are computed."""
        before = self.path[first - 1] if first else None
        after = self.path[last] if last < len(self.path) else None
        new = self.energy_of(part, before, after)
        if new == math.inf or not self.affordable([*self.path[:first], *part, *self.path[last:]]):
            return math.inf
        return new - self.energy_of(self.path[first:last], before, after)

    def apply(self, first: int, last: int, part: Placement, change: float) -> None:
        """Make a move."""
        for kind, *_ in self.path[first:last]:
            self.free[self.pool[kind]] += self.use[kind]
        for kind, *_ in part:
            self.free[self.pool[kind]] -= self.use[kind]
        self.path[first:last] = part
        self.energy += change


def anneal(problem: Problem, path: Placement, objective: str, seed: int, moves: int = MOVES,
           seconds: float | None = None) -> Placement:
    """The best path met on a seeded walk from a path; the same seed and number of moves give the same one."""
    random, chain = Random(seed), Chain(problem, path, objective)
    which = 1 if objective == "latency" else 0
    best, best_value = list(path), problem.values(path)[which]
    samples = [abs(change) for change in (_sample(chain, random) for _ in range(200)) if 0 < abs(change) < math.inf]
    hot = sorted(samples)[len(samples) // 2] if samples else chain.energy
    limit = math.inf if seconds is None else clock.monotonic() + seconds
    begun, total = clock.monotonic(), moves if seconds is None else 10**9
    done, turn, temperature = 0, 0, hot
    best_energy = chain.energy
    while done < total:
        if done % CLOCK_EVERY == 0:
            now = clock.monotonic()
            if now > limit:
                break
            share = done / total if seconds is None else (now - begun) / seconds
            # Each round goes from hot to cold, the later ones from the best so far.
            if int(share * ROUNDS) > turn:
                turn, chain = int(share * ROUNDS), Chain(problem, best, objective)
            temperature = hot * 10.0 ** (-4.0 * (share * ROUNDS % 1.0))
        done += 1
        move = chain.propose(random)
        if move is None:
            continue
        change = chain.change(*move)
        if change < 0 or (change < math.inf and random.random() < math.exp(-change / max(temperature, 1e-300))):
            chain.apply(*move, change)
            if chain.energy < best_energy * (1 + 1e-9) or (change < 0 and chain.throughput):
                value = problem.values(chain.path)[which]
                if value < best_value * (1 - 1e-12):
                    best, best_value, best_energy = list(chain.path), value, chain.energy
    return best


def best_cuts(problem: Problem, kinds: list[int], objective: str) -> tuple[float, Placement] | None:
    """The best cuts for stages of these kinds in this order, each with at least one layer; None where there are none.

    With several types of activations under a budget all links use the most exact one.
    """
    depth, boundaries = problem.depth, np.arange(problem.depth + 1)
    reached = np.full(depth + 1, np.inf)
    reached[0] = 0.0
    chosen = []
    for position, kind in enumerate(kinds):
        time = problem.time[kind]
        if position:
            before = kinds[position - 1]
            hop = problem.late[before, kind] + problem.sizes[0] / problem.wide[before, kind]
            hop = np.where(hop <= problem.limit_s, hop, np.inf)
            reached = np.maximum(reached, hop) if objective != "latency" else reached + hop
        spans = time[None, :] - time[:, None]  # (start, end)
        through = np.maximum(reached[:, None], spans) if objective != "latency" else reached[:, None] + spans
        allowed = (boundaries[None, :] > boundaries[:, None]) & (boundaries[None, :] <= problem.far[kind][:, None])
        through = np.where(allowed, through, np.inf)
        chosen.append(through.argmin(axis=0))
        reached = through[chosen[-1], boundaries]
    if not math.isfinite(reached[depth]):
        return None
    path, end = [], depth
    for kind, starts in zip(reversed(kinds), reversed(chosen)):
        path.append((kind, int(starts[end]), end, 0))
        end = int(starts[end])
    return float(reached[depth]), path[::-1]


def climb(problem: Problem, path: Placement, objective: str, tries: int, random: Random, deadline: Deadline = NEVER
          ) -> Placement:
    """Swap, replace, drop and add nodes of a path, with the best cuts for each order, while that helps."""
    which = 1 if objective == "latency" else 0
    best, value = path, problem.values(path)[which]
    kinds = [stage[0] for stage in path]
    for _ in range(tries):
        if deadline.passed():
            break
        order = _other_order(problem, kinds, random)
        found = best_cuts(problem, order, objective) if order and len(order) <= problem.max_stages else None
        if found and found[0] <= value * (1 + 1e-12) and order is not None:
            kinds = order
            if found[0] < value * (1 - 1e-12) and problem.allows(found[1]):
                value, best = found
    return best


def _other_order(problem: Problem, kinds: list[int], random: Random) -> list[int] | None:
    """A neighbour of an order of kinds that the pools allow."""
    order, choice = list(kinds), random.random()
    at, kind = random.randrange(len(order)), random.randrange(problem.kinds)
    if choice < 0.35:
        other = random.randrange(len(order))
        order[at], order[other] = order[other], order[at]
    elif choice < 0.6:
        order.insert(random.randrange(len(order)), order.pop(at))
    elif choice < 0.8:
        order[at] = kind
    elif choice < 0.92:
        order.insert(random.randrange(len(order) + 1), kind)
    elif len(order) > 1:
        order.pop(at)
    used = np.zeros(len(problem.caps), dtype=np.int64)
    for stage in order:
        used[problem.pool[stage]] += problem.use[stage]
    return order if order != kinds and (used <= problem.caps).all() else None


def _sample(chain: Chain, random: Random) -> float:
    move = chain.propose(random)
    return math.inf if move is None else chain.change(*move)


def few_nodes(problem: Problem, objective: str, deadline: Deadline = NEVER) -> list[Placement]:
    """Plans that any search should start from: the best single node, and the best cuts over the n fastest, or the n
    fastest and roomiest, for growing n, in that order and in one that follows fast links."""
    which = 1 if objective == "latency" else 0
    whole, room = problem.time[:, -1], problem.far[:, 0]
    usable = np.flatnonzero(problem.usable)
    single = usable[room[usable] >= problem.depth]
    paths: list[Placement] = []
    if len(single):
        paths.append([(int(single[whole[single].argmin()]), 0, problem.depth, 0)])
    most = min(problem.depth, problem.max_stages)
    pace = whole / problem.depth
    for scores in (whole, whole / np.maximum(room, 1)):
        order = _expanded(problem, usable[np.argsort(scores[usable], kind="stable")], 4 * most)
        best, worse, size = math.inf, 0, 2
        while size <= min(most, len(order)) and worse < 3 and (size <= 8 or not deadline.passed()):
            values = []
            for kinds in (order[:size], _linked(problem, order[:4 * size], size, pace, objective)):
                cuts = best_cuts(problem, kinds, objective)
                if cuts is not None:
                    paths.append(cuts[1])
                    values.append(cuts[0])
            worse = 0 if not values or min(values) < best else worse + 1
            best = min([best, *values])
            size += max(1, size // 4)
    allowed = [path for path in paths if problem.allows(path)]
    return sorted(allowed, key=lambda path: problem.values(path)[which])[:1]


def _expanded(problem: Problem, kinds: np.ndarray, most: int) -> list[int]:
    """Kinds in an order, each as often as its pool has nodes for it."""
    free = [int(cap) for cap in problem.caps]
    order: list[int] = []
    for kind in kinds.tolist():
        pool, use = int(problem.pool[kind]), int(problem.use[kind])
        while free[pool] >= use and len(order) < most:
            free[pool] -= use
            order.append(kind)
    return order


def _linked(problem: Problem, kinds: list[int], size: int, pace: np.ndarray, objective: str) -> list[int]:
    """So many of these kinds: the first, and each time the one that is reached and computes soonest."""
    left, chain = list(kinds[1:]), [kinds[0]]
    share, bytes_sent = problem.depth / size, float(np.median(problem.sizes[0][1:]))
    while left and len(chain) < size:
        last, others = chain[-1], np.asarray(left)
        hops, spans = problem.late[last, others] + bytes_sent / problem.wide[last, others], pace[others] * share
        chain.append(left.pop(int((hops + spans if objective == "latency" else np.maximum(hops, spans)).argmin())))
    return chain


def start_placement(request: Request, problem: Problem, objective: str, deadline: Deadline = NEVER
                    ) -> Placement | None:
    """The best plan of the heuristics and of few nodes; where none of them fits, any plan a search finds; None: there
    is none."""
    which = 1 if objective == "latency" else 0
    found = [(problem.values(path)[which], path) for path in few_nodes(problem, objective, deadline.share(0.1))]
    for name in CHEAP_RULES:
        try:
            path = problem.placement_of(list(run_strategy(name, request).stages))
        except (MorphoError, KeyError, ValueError):
            continue  # this rule finds no plan, or cuts where the problem may not be cut
        if problem.allows(path):
            found.append((problem.values(path)[which], path))
    if found:
        return min(found)[1]
    path, sure = first_placement(problem, deadline)  # type: ignore[assignment]
    if path is None and not sure and not deadline.passed():
        path, sure = feasible(problem, deadline=deadline)
    if path is None and not sure:
        raise fail(MemoryLimit, "plan", "no plan was found, and none was ruled out", "give the search more seconds")
    return path


def _instant(request: Request, problem: Problem) -> Proposal | None:
    """The proven plan of a small problem."""
    if request.objective == "balanced" or request.constraints.data > 1 or lattice_cells(problem) > INSTANT_CELLS:
        return None
    answer = (best_latency if request.objective == "latency" else best_period)(problem)
    if answer is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    if not answer.optimal:
        return None
    return Proposal(problem.stages(answer.path), answer.value_s, True,
                    {"relaxation": request.objective, "proofs": [{"data": problem.data, **answer.witness}]},
                    notes=("small enough for the exact search, whose answer this is",))


@register_strategy("annealing")
def annealing(request: Request) -> Proposal:
    """`moves` (default 100,000) or `seconds` bound the walk; `moves` makes it the same on every machine. Where the
    exact search is quicker than the walk, its answer is taken, with its proof, unless `moves` asks for a walk."""
    problem = build(request.card, request.cluster, request.constraints)
    proven = None if "moves" in request.options else _instant(request, problem)
    if proven is not None:
        return proven
    seconds = request.options.get("seconds")
    deadline = Deadline(None if seconds is None else 0.8 * float(seconds))
    start = start_placement(request, problem, request.objective, deadline)
    if start is None:
        raise no_plan(request.card, request.cluster, request.constraints)
    moves = int(request.options.get("moves", MOVES))
    path = anneal(problem, start, request.objective, request.seed, moves,
                  None if seconds is None else 0.7 * deadline.left_s())
    tries = int(CLIMBS * (moves / MOVES if seconds is None else float(seconds)))
    return Proposal(problem.stages(climb(problem, path, request.objective, tries, Random(request.seed), deadline)))
