"""Why a plan is as fast as it is: what binds each stage, what relief is worth, what happens when a node dies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from morpho.base.errors import MorphoError
from morpho.base.python.notebook import preformatted
from morpho.base.units import format_bytes, format_seconds
from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import Node
from morpho.plan.predict.plan import Plan, Stage
from morpho.plan.predict.quality import Quality, quality
from morpho.plan.replan.failures import Failure, failures
from morpho.plan.replan.resolve import resolve
from morpho.plan.replan.what_if import with_links
from morpho.plan.show.pictures import batches, certainty

GIGABYTE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Relief:
    """Worth of a little more of something: tokens per second won, seconds of latency saved.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> [relief.what for relief in plan.explain(p, relief=1).reliefs] != []
    True
    """

    what: str
    tokens_per_s: float
    latency_s: float

    def __str__(self) -> str:
        return f"{self.what}: {self.tokens_per_s:+.3g} tokens/s, latency {self.latency_s * 1000:+.3g} ms"


@dataclass(frozen=True, slots=True)
class Explanation:
    """`print(p.explain())` reads it; the parts are here for programs.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> explanation = p.explain()
    >>> explanation.plan is p, len(explanation.failures)
    (True, 2)
    """

    plan: Plan
    quality: Quality
    reliefs: tuple[Relief, ...]
    failures: tuple[Failure, ...]

    def __str__(self) -> str:
        plan, predicted = self.plan, self.plan.predicted
        lines = [f"{plan.card.name} on {plan.cluster.name}: {predicted.tokens_per_s:.4g} tokens/s with "
                 f"{batches(predicted.in_flight)} in flight, {format_seconds(predicted.latency_s)} per token; "
                 f"{certainty(plan)}", "", "what binds"]
        lines += [f"  {binding(plan, position)}" for position in range(len(plan.stages))]
        lines += ["", "quality", f"  {self.quality}"]
        if self.quality.filled < 0.995:
            rate = predicted.tokens_per_s * self.quality.filled
            lines.append(f"  {plan.card.micro_batches} of {predicted.in_flight} batches in flight that would fill the "
                         f"pipeline: {rate:.4g} tokens/s until there are more (micro_batches)")
        lines += ["", "what relief is worth", *(f"  {relief}" for relief in self.reliefs or ("nothing tried helps",))]
        lines += ["", "if a node dies", *(f"  {failure}" for failure in self.failures)]
        return "\n".join([*lines, *(f"note: {note}" for note in (*plan.card.notes, *plan.notes))])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def explain(plan: Plan, relief: int = 8, with_failures: bool = True) -> Explanation:
    """Explain a plan; `relief` is the most changes that are tried, each a solve of its own (0: none).

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> "a" in str(plan.explain(p, relief=2))
    True
    """
    return Explanation(plan, quality(plan), reliefs(plan, relief), failures(plan) if with_failures else ())


def binding(plan: Plan, position: int) -> str:
    """Bottleneck of one stage, in words."""
    stage: Stage = plan.stages[position]
    here = f"stage {position + 1} on {'+'.join(stage.members)}, layers [{stage.start}, {stage.end})"
    times = f"computes {format_seconds(stage.compute_s)}"
    if position + 1 < len(plan.stages):
        times += f", sends {format_seconds(stage.link_s)}"
    room = stage.memory_available_bytes - stage.memory_needed_bytes
    memory = f"memory is tight, {format_bytes(room)} left" if stage.memory_tight else f"{format_bytes(room)} left"
    mark = " <- bottleneck" if position == plan.predicted.bottleneck else ""
    return f"{here}: bound by {stage.binds} ({times}); {memory}{mark}"


def reliefs(plan: Plan, most: int = 8) -> tuple[Relief, ...]:
    """The changes that help, best first. The bottleneck's own resource and tight memories are tried first."""
    found = []
    for what, cluster in list(_changes(plan))[:most]:
        try:
            after = resolve(plan, cluster, bound=False, quick=True)
        except MorphoError:  # a strategy that is not exact may fail where it had succeeded
            continue
        better = after.predicted
        won = better.tokens_per_s - plan.predicted.tokens_per_s
        saved = better.latency_s - plan.predicted.latency_s
        gain = -saved / plan.predicted.latency_s if plan.objective == "latency" else won / plan.predicted.tokens_per_s
        if gain > 1e-9:
            how = "" if after.strategy == plan.strategy else f" ({after.strategy})"
            found.append((gain, Relief(what + how, won, saved)))
    return tuple(relief for _, relief in sorted(found, key=lambda pair: -pair[0]))


def _changes(plan: Plan) -> Iterator[tuple[str, Cluster]]:
    """Changes worth trying, the most promising first; one of each kind of interchangeable nodes is enough."""
    cluster, slowest = plan.cluster, plan.stages[plan.predicted.bottleneck]
    if slowest.binds == "link":
        yield _wider(plan, plan.predicted.bottleneck)
    else:
        yield from _faster(cluster, _like(cluster, slowest.node), slowest.binds)
    stage_of = {name: stage for stage in plan.stages for copy in stage.replicas for name in copy}
    kinds = [[cluster.nodes[i].name for i in kind] for kind in cluster.kinds()]
    tight = [next((name for name in kind if name not in stage_of or stage_of[name].memory_tight), None)
             for kind in kinds]
    # Stages first, in the order of their time; idle nodes last.
    busy = sorted(filter(None, tight), key=lambda name: -stage_of[name].compute_s if name in stage_of else 0.0)
    for name in busy:
        for names, called in _each(_like(cluster, name)):
            nodes = tuple(replace(node, memory_bytes=node.memory_bytes + GIGABYTE) if node.name in names else node
                          for node in cluster.nodes)
            yield f"1 GB more on {called}", replace(cluster, nodes=nodes)
    tried = [kind for kind in kinds if slowest.node in kind]
    for stage in sorted(plan.stages, key=lambda stage: -stage.compute_s):
        if not any(stage.node in kind for kind in tried) and stage.binds != "link":
            tried += [kind for kind in kinds if stage.node in kind]
            yield from _faster(cluster, _like(cluster, stage.node), stage.binds)
    lines = sorted(range(len(plan.stages) - 1), key=lambda position: -plan.stages[position].link_s)
    tried_line = plan.predicted.bottleneck if slowest.binds == "link" else None
    if plan.objective == "latency" and lines and lines[0] != tried_line:
        yield _wider(plan, lines[0])  # a line need not be the longest part of any stage to cost latency


def _wider(plan: Plan, position: int) -> tuple[str, Cluster]:
    """The line out of a stage twice as wide."""
    source, target = plan.stages[position].node, plan.stages[position + 1].node
    pair = (plan.cluster.index(source), plan.cluster.index(target))
    wide = 2 * plan.cluster.link(source, target).bandwidth_bytes_per_s
    return f"link {source}-{target} twice as wide", with_links(plan.cluster, [pair, pair[::-1]], wide)


def _like(cluster: Cluster, name: str) -> list[str]:
    """A node and those that are interchangeable with it, itself first."""
    kind = next(kind for kind in cluster.kinds() if cluster.index(name) in kind)
    return [name, *(other for other in (cluster.nodes[i].name for i in kind) if other != name)]


def _each(names: list[str]) -> Iterator[tuple[list[str], str]]:
    """The first node alone, and where there are more of its kind, all of them: one of many equal ones rarely helps."""
    yield names[:1], names[0]
    if len(names) > 1:
        yield names, f"each of the {len(names)} nodes like {names[0]}"


def _faster(cluster: Cluster, like: list[str], binds: str) -> Iterator[tuple[str, Cluster]]:
    """A node, and all of its kind, with 10 % more of what binds it."""
    what = {"memory bandwidth": "memory bandwidth", "compute": "FLOP/s"}.get(binds, "speed")
    for names, called in _each(like):
        nodes = tuple(_better(node, binds) if node.name in names else node for node in cluster.nodes)
        yield f"10 % more {what} on {called}", replace(cluster, nodes=nodes)


def _better(node: Node, binds: str) -> Node:
    if binds == "memory bandwidth":
        return replace(node, memory_bytes_per_s=1.1 * node.memory_bytes_per_s)
    if binds == "compute":
        return replace(node, flops_per_s={dtype: 1.1 * rate for dtype, rate in node.flops_per_s.items()})
    return replace(node, measured={key: (pair[0] / 1.1, pair[1] / 1.1) for key, pair in node.measured.items()})
