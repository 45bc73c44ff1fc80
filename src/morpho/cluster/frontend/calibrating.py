"""A machine measured before it is predicted for: two uneven placements of a model; one text, one for each stage, many.

    with Pipeline("my-model", plan) as made:
        found = calibrated(made)
    generation(other, texts=6, prompt_tokens=8, new_tokens=64, overheads=found.overheads)    # other: over found.cluster

Each node holds two different shares of the layers, so that what a token takes is told apart from what a call takes. As
many texts as stages keep all of them at work with one text in a call; with more of them a call has several.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from morpho.base.errors import GroupError, fail
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.plan import Cluster, Constraints, ModelCard, Plan, Proposal, Stage
from morpho.plan.predict.generation import Overheads, generation, line_seconds
from morpho.plan.replan.repartition import measured_cluster
from morpho.plan.solve.solver import complete

PROMPT_TOKENS, TOKENS, TEXTS, LARGE = 8, 48, 6, 1.5
ALONE = 1.25  # texts in a call, on average: so few count as one


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration: measured nodes, overheads of a pipeline, and the runs (`seen`)."""

    cluster: Cluster
    overheads: Overheads
    seen: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Seen:
    """One run: times of stages, of handling messages, of a prompt's token, between tokens, and to the first one."""

    plan: Plan
    texts: int
    stage_s: Mapping[str, float]
    handling_s: Mapping[str, float]
    prompt_s: Mapping[str, float]
    token_s: float
    first_token_s: float
    rows: Mapping[str, float] = field(default_factory=dict)  # texts in a call, where there is more than one

    def call_s(self, node: str) -> float:
        """Seconds of a call, messages and all."""
        return (self.stage_s[node] + self.handling_s.get(node, 0.0)) * self.rows.get(node, 1.0)

    def idle_s(self, node: str) -> float:
        """How long a stage waits before each of its calls."""
        return max(self.token_s * self.rows.get(node, 1.0) / self.texts - self.call_s(node), 0.0)

    def in_turns(self) -> bool:
        """Whether calls had one text each, or nearly."""
        return max(self.rows.values(), default=1.0) <= ALONE


def placed(card: ModelCard, cluster: Cluster, ends: Sequence[int]) -> Plan:
    """The plan whose stages end there, on the nodes in their order."""
    stages = tuple(Stage(node.name, start, end, "", (node.name,), ((node.name,),))
                   for node, (start, end) in zip(cluster.nodes, pairwise((0, *ends))))
    return complete(card, cluster, Proposal(stages), "optimal", constraints=Constraints(), bound=False)


def uneven_ends(depth: int, nodes: int, first_is_large: bool) -> list[int]:
    """Where stages end that are large and small in turn.

    >>> uneven_ends(14, 2, True), uneven_ends(14, 2, False), uneven_ends(14, 3, True), uneven_ends(5, 1, True)
    ([11, 14], [3, 14], [6, 8, 14], [5])
    """
    shares = [LARGE if (number % 2 == 0) == first_is_large else 2 - LARGE for number in range(nodes)]
    if nodes == 1:
        return [depth]
    if nodes == 2:
        shares = [0.78, 0.22] if first_is_large else [0.22, 0.78]
    whole, at, ends = sum(shares), 0.0, list[int]()
    for number, share in enumerate(shares):
        at += share / whole * depth
        ends.append(min(max(round(at), number + 1), depth - (nodes - 1 - number)))
    return ends


def calibrated(made: Pipeline, *, tokens: int = TOKENS, texts: int = TEXTS, prompt_tokens: int = PROMPT_TOKENS,
               as_it_is: bool = False) -> Calibration:
    """Say how fast the nodes of a running pipeline are, and what it adds to layers and lines; it goes on with its plan.
    At most `texts` are on their way at once. With `as_it_is` the placement stays the one it has: what is found is good
    for predictions of the same cut."""
    plan, texts = made.plan, min(texts, made.streams)
    nodes = len(plan.cluster.nodes)
    ends = [uneven_ends(plan.card.depth, nodes, large) for large in (True, False)]
    prompt = [number % 97 + 2 for number in range(prompt_tokens)]
    seen: list[Seen] = []
    for each in [[]] if as_it_is else ends[:1] if ends[0] == ends[1] else ends:
        if each:
            made.recut(placed(plan.card, plan.cluster, each))
        _run(made, prompt, texts, max(4, tokens // 2))  # compiles, and layers that have just come are slow at first
        runs = [_run(made, prompt, count, tokens) for count in sorted({1, min(nodes, texts), texts})]
        seen += [run for run in runs if run is not None]
    if not as_it_is:
        made.recut(plan)
    if not any(each.texts > 1 for each in seen):
        raise fail(GroupError, "pipeline", "the workers said too little of their times", "ask for more tokens")
    found = _settled(plan.cluster, seen, prompt_tokens)
    made.overheads = found.overheads
    return found


def _run(made: Pipeline, prompt: Sequence[int], texts: int, tokens: int) -> Seen | None:
    """Texts at once, and what workers said of them; None where they said too little."""
    times = made.fresh_times()
    before = len(made.done)
    for _ in made.generate([[*prompt]] * texts, max_new_tokens=tokens, temperature=0):
        pass
    made.hear_times()
    done = made.done[before:]
    gaps = [b - a for answer in done for a, b in pairwise(answer.times_s)]
    if {stage.node for stage in made.plan.stages} != {*times.all()} or not gaps:
        return None
    return Seen(made.plan, texts, times.all(), times.handling(), times.prompts(), statistics.fmean(gaps),
                min(answer.times_s[0] - answer.begun_s for answer in done), times.rows())


def _settled(cluster: Cluster, seen: Sequence[Seen], prompt_tokens: int) -> Calibration:
    """Paces of the nodes from the runs whose calls had one text, what rows cost from the others, the rest from those
    with one text."""
    some, one = [each for each in seen if each.texts > 1], [each for each in seen if each.texts == 1]
    many = [each for each in some if each.texts == min(run.texts for run in some)]  # one text in a call, or nearly
    cold = _cooling(seen)
    pace, fixed = dict[str, float](), dict[str, float]()
    for node in cluster.nodes:
        points = [(stage.compute_s, each.stage_s[node.name] / cold.colder(each.idle_s(node.name)))
                  for each in many for stage in each.plan.stages if stage.node == node.name]
        pace[node.name], fixed[node.name] = line(points)
    base = many[0].plan
    found = measured_cluster(base, {stage.node: pace[stage.node] * stage.compute_s for stage in base.stages})
    handling = {name: statistics.fmean([each.handling_s.get(name, 0.0) for each in many]) for name in pace}
    stage_s = {name: fixed[name] + handling[name] for name in pace}
    hops = len(cluster.nodes) if len(cluster.nodes) > 1 else 0
    rest = [each.token_s - sum(each.stage_s.values()) - sum(each.handling_s.values())
            - sum(line_seconds(each.plan, Overheads())[0]) for each in one]
    overheads = replace(cold, stage_s=stage_s, hop_s=statistics.fmean(rest) / hops if hops else 0.0,
                        row=_row(some, cold))
    overheads = _with_prompts(found, overheads, one, prompt_tokens)
    return Calibration(found, overheads, tuple({"texts": each.texts, "stage_s": dict(each.stage_s), "handling_s": dict(
        each.handling_s), "token_s": each.token_s, "first_token_s": each.first_token_s, "rows": dict(each.rows)}
        for each in seen))


def _cooling(seen: Sequence[Seen]) -> Overheads:
    """How much waiting slows a stage: the slope of its times over the waits before them, over its time without one."""
    found, turns = list[float](), [each for each in seen if each.in_turns()]
    for node, number in {(node, id(each.plan)): None for each in turns for node in each.stage_s}:
        points = [(each.idle_s(node), each.stage_s[node]) for each in turns if id(each.plan) == number]
        if len(points) > 1 and statistics.pvariance([x for x, _ in points]) > 0.0:
            slope, warm_s = statistics.linear_regression(*zip(*points, strict=True))
            if warm_s > 0.0:
                found.append(max(slope, 0.0) / warm_s)
    coldest_s = max((each.idle_s(node) for each in turns for node in each.stage_s), default=0.0)
    return Overheads(cooling=statistics.median(found) if found else 0.0, coldest_s=coldest_s)


def _row(some: Sequence[Seen], cold: Overheads) -> float:
    """Time of a further text in a call, over that of the first."""
    found = []
    for few, more in ((a, b) for a in some for b in some if a.plan is b.plan and a.texts < b.texts):
        for node in few.stage_s:
            rows, base = more.rows.get(node, 1.0), few.rows.get(node, 1.0)
            if rows > ALONE * base:  # c(r) = c(1) * (1 + (r - 1) * row), seen at two of them
                a, b = (each.call_s(node) / cold.colder(each.idle_s(node)) for each in (few, more))
                found.append((b - a) / (a * (rows - 1) - b * (base - 1)))
    return min(max(statistics.fmean(found), 0.0), 1.0) if found else 1.0


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and offset through measured points; through the origin where there is one, or the line makes no sense.

    >>> line([(1.0, 2.5), (3.0, 6.5)]), line([(1.0, 2.0)]), line([(1.0, 1.0), (3.0, 6.0)])
    ((2.0, 0.5), (2.0, 0.0), (1.75, 0.0))
    """
    (x1, y1), (x2, y2) = points[0], points[-1]
    if x1 != x2:
        slope = (y2 - y1) / (x2 - x1)
        offset = y1 - slope * x1
        if slope > 0 and offset >= 0:
            return slope, offset
    return sum(y for _, y in points) / sum(x for x, _ in points), 0.0


def _with_prompts(cluster: Cluster, overheads: Overheads, one: Sequence[Seen], prompt_tokens: int) -> Overheads:
    """How much longer prompts take than the roofline says, and what a text takes before its first stage begins."""
    factors, begins = [], []
    for each in one:
        plan = placed(each.plan.card, cluster, [stage.end for stage in each.plan.stages])
        share = prompt_tokens / plan.card.context
        for stage in plan.stages:
            layers_s = stage.compute_s * overheads.colder(each.idle_s(stage.node))
            spent = each.prompt_s.get(stage.node, 0.0) * prompt_tokens - layers_s
            factors.append(max(spent, 0.0) / (stage.prefill_compute_s * share))
    prompt = statistics.fmean(factors)
    known = replace(overheads, text_s=0.0, prompt=prompt)
    for each in one:
        plan = placed(each.plan.card, cluster, [stage.end for stage in each.plan.stages])
        begins.append(each.first_token_s - generation(plan, 1, prompt_tokens, 2, known).first_token_s)
    return replace(known, text_s=max(statistics.fmean(begins), 0.0))
