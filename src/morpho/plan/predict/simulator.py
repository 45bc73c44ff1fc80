"""A pipeline played through event by event: queues, contention, jitter, slow and failing nodes.

The closed form (`evaluate`) adds up and takes maxima; this moves micro-batches through stages and lines that serve one
at a time, and so shows what the sums hide. Where nothing is shared and nothing jitters, the two agree.

    trace = plan.simulate(p, jitter=0.1, slow={"b": 2.0}, seed=1)
    trace.tokens_per_s, trace.latency_s, trace.percentile_s(95)
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.plan.model.layer import PHASES
from morpho.plan.predict.closed_form import link_seconds, stage_seconds
from morpho.plan.predict.plan import Plan


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work on one resource: a stage that computes ("compute") or a line that carries ("link").

    `copy` is which copy of the pipeline (data parallelism), `micro_batch` and `turn` which pass of which batch; `lost`
    is work that a failure undid.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> plan.simulate(p).spans[0].kind
    'compute'
    """

    resource: str
    kind: str
    stage: int
    copy: int
    micro_batch: int
    turn: int
    start_s: float
    end_s: float
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """Record of a simulation. Rates are of the second half of the passes: the pipeline is full by then.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> plan.simulate(p).lost_passes
    0
    """

    plan: Plan
    phase: str
    spans: tuple[Span, ...]
    passes: tuple[tuple[int, int, float, float], ...]  # (copy, micro-batch, begin, end) of each finished pass
    lost_passes: int
    stopped_s: float | None

    @property
    def end_s(self) -> float:
        """When the last pass was done."""
        return max((end for *_, end in self.passes), default=0.0)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second in the steady state: of each batch in flight, how often it comes round, added up."""
        ends: dict[tuple[int, int], list[float]] = {}
        for copy, micro_batch, _, end in self.passes:
            ends.setdefault((copy, micro_batch), []).append(end)
        rate = 0.0
        for times in ends.values():
            first = len(times) // 2 - 1 if len(times) > 2 else -1
            begun = times[first] if first >= 0 else 0.0
            rate += (len(times) - 1 - first) / (times[-1] - begun) if times[-1] > begun else math.inf
        return rate * self._tokens

    @property
    def overall_tokens_per_s(self) -> float:
        """All tokens over all the time, filling, failures and reloading included."""
        return len(self.passes) * self._tokens / self.end_s if self.end_s else 0.0

    @property
    def latency_s(self) -> float:
        """Mean time of a pass, waiting included."""
        return math.fsum(end - begin for _, _, begin, end in self.passes) / max(1, len(self.passes))

    def percentile_s(self, percent: float) -> float:
        """A percentile of the times of passes: `trace.percentile_s(99)`."""
        return float(np.percentile([end - begin for _, _, begin, end in self.passes], percent)) if self.passes else 0.0

    def busy(self) -> dict[str, float]:
        """The share of the time that each resource worked."""
        shares: dict[str, float] = {}
        for span in self.spans:
            shares[span.resource] = shares.get(span.resource, 0.0) + span.end_s - span.start_s
        return {name: seconds / self.end_s if self.end_s else 0.0 for name, seconds in shares.items()}

    def measured(self) -> dict[str, float]:
        """Mean seconds of a piece of work on each node and link, as `adapt` wants them."""
        times: dict[str, list[float]] = {}
        for span in self.spans:
            for name in span.resource.split("+") if span.kind == "compute" else (span.resource,):
                times.setdefault(name, []).append(span.end_s - span.start_s)
        return {name: math.fsum(seconds) / len(seconds) for name, seconds in times.items()}

    @property
    def _tokens(self) -> int:
        card = self.plan.card
        return card.batch * card.context if self.phase == "prefill" else card.tokens_per_pass


@dataclass(slots=True)
class _Job:
    """A micro-batch on its way: which pass, which step of the chain comes next."""

    copy: int
    number: int
    turn: int = 0
    step: int = 0
    begin_s: float = 0.0


@dataclass(slots=True)
class _Resource:
    """A stage or a line: one job at a time, the others wait in order."""

    name: str
    waiting: deque[_Job] = field(default_factory=deque)
    job: _Job | None = None
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of the chain of a copy: where, of what kind, how long without disturbance."""

    resource: str
    kind: str
    stage: int
    seconds: float
    nodes: tuple[str, ...]


def simulate(plan: Plan, in_flight: int | None = None, passes: int = 40, seed: int = 0, jitter: float = 0.0,
             slow: Mapping[str, float | tuple[float, float]] | None = None, fails: Mapping[str, float] | None = None,
             failover: Mapping[str, tuple[Plan, float]] | None = None, shared: Iterable[Iterable[str]] = (),
             phase: str | None = None) -> Trace:
    """Play a plan: `in_flight` micro-batches (default: as many as keep it full) go through it `passes` times each.

    `jitter` is the standard deviation of the logarithm of every duration. `slow` maps a node to the factor its
    computing takes longer, or to (from when, factor). `fails` maps a node to the second it dies: what is in its
    pipeline is lost, and if `failover` has (plan, seconds to reload) for it, that plan takes over; otherwise that
    pipeline stops. Each set of nodes in `shared` is one medium (a radio, a bus): one transfer among them at a time.

    >>> from morpho.plan import Cluster, ModelCard, Node, solve
    >>> card = ModelCard.from_config("gpt2", dtype="f32")
    >>> nodes = [Node(name, 8_000_000_000, 1e10, {"f32": 1e11}) for name in "ab"]
    >>> p = solve(card, Cluster.uniform(nodes, 1e9, 1e-4), strategy="uniform")
    >>> abs(simulate(p).tokens_per_s / p.predicted.tokens_per_s - 1) < 0.02
    True
    """
    phase = phase or plan.card.phase
    if phase not in PHASES:
        raise fail(ValueFault, "plan", f"phase {phase!r} is not known", "use 'decode' or 'prefill'")
    if jitter < 0 or passes < 1 or (in_flight is not None and in_flight < 1):
        raise fail(ValueFault, "plan", f"jitter is {jitter}, passes {passes}, in_flight {in_flight}",
                   "jitter is 0 or more, the others are positive")
    for name in (*(slow or {}), *(fails or {}), *(name for group in shared for name in group)):
        plan.cluster.index(name)
    run = _Run(plan, phase, np.random.default_rng(seed), jitter, dict(slow or {}), [set(group) for group in shared])
    return run.play(in_flight or plan.predicted.in_flight, passes, dict(fails or {}), dict(failover or {}))


class _Run:
    """The state of a simulation: a heap of what happens next, resources with their queues, what has been seen."""

    def __init__(self, plan: Plan, phase: str, rng: np.random.Generator, jitter: float, slow: dict[str, Any],
                 shared: list[set[str]]) -> None:
        self.plan, self.phase, self.rng, self.jitter, self.slow, self.shared = plan, phase, rng, jitter, slow, shared
        self.heap: list[tuple[float, int, str, Any]] = []
        self.serial = 0
        self.spans: list[Span] = []
        self.done: list[tuple[int, int, float, float]] = []
        self.lost = 0
        self.stopped_s: float | None = None
        self.dead: set[int] = set()  # copies of the pipeline that have stopped
        self.gone: set[str] = set()  # nodes that have died
        self.takeovers = 0
        self.loading = False
        self._use(plan)

    def _use(self, plan: Plan) -> None:
        """Lay out the chain of every copy of a plan."""
        copies = range(len(plan.stages[0].replicas))
        self.chains = [list(_chain(plan, copy, self.phase, self.shared)) for copy in copies]
        self.resources = {step.resource: _Resource(step.resource) for chain in self.chains for step in chain}

    def play(self, in_flight: int, passes: int, fails: dict[str, float], failover: dict[str, tuple[Plan, float]]
             ) -> Trace:
        """Until nothing happens any more."""
        for name, at_s in fails.items():
            self._at(at_s, "fail", name)
        jobs = [_Job(copy, number) for copy in range(len(self.chains)) for number in range(in_flight)]
        for job in jobs:
            self._request(job, 0.0)
        while self.heap:
            now, _, what, about = heapq.heappop(self.heap)
            if what == "done":
                resource, job = about
                if resource.job is job and self.resources.get(resource.name) is resource:
                    self._finish(resource, job, now, passes)  # type: ignore[arg-type]
            elif what == "fail":
                self._fail(about, now, [job for job in jobs if job.turn < passes], failover)
            elif about == self.takeovers:  # the plan that takes over is loaded, and no other has since
                self.loading = False
                for job in jobs:
                    if job.turn < passes and job.copy not in self.dead:
                        job.begin_s = now
                        self._request(job, now)
        return Trace(self.plan, self.phase, tuple(self.spans), tuple(self.done), self.lost, self.stopped_s)

    def _at(self, when: float, what: str, about: Any) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (when, self.serial, what, about))

    def _request(self, job: _Job, now: float) -> None:
        resource = self.resources[self.chains[job.copy][job.step].resource]
        resource.waiting.append(job)
        self._start_next(resource, now)

    def _start_next(self, resource: _Resource, now: float) -> None:
        if resource.job is None and resource.waiting:
            job = resource.job = resource.waiting.popleft()
            resource.start_s = now
            self._at(now + self._duration(self.chains[job.copy][job.step], now), "done", (resource, job))

    def _duration(self, step: _Step, now: float) -> float:
        factor = 1.0
        if step.kind == "compute":
            for name in step.nodes:
                given = self.slow.get(name, 1.0)
                since, times = given if isinstance(given, tuple) else (0.0, given)
                factor = max(factor, times if now >= since else 1.0)
        if self.jitter:
            factor *= math.exp(self.jitter * self.rng.standard_normal())
        return step.seconds * factor

    def _finish(self, resource: _Resource, job: _Job, now: float, passes: int) -> None:
        step = self.chains[job.copy][job.step]
        self._record(resource, step, job, now)
        resource.job = None
        job.step += 1
        if job.step == len(self.chains[job.copy]):
            self.done.append((job.copy, job.number, job.begin_s, now))
            job.turn, job.step, job.begin_s = job.turn + 1, 0, now
        if job.turn < passes:
            self._request(job, now)
        self._start_next(resource, now)

    def _record(self, resource: _Resource, step: _Step, job: _Job, end_s: float, lost: bool = False) -> None:
        self.spans.append(Span(resource.name, step.kind, step.stage, job.copy, job.number, job.turn, resource.start_s,
                               end_s, lost))

    def _fail(self, name: str, now: float, jobs: list[_Job], failover: dict[str, tuple[Plan, float]]) -> None:
        """A node dies: its copy of the pipeline stops, or another plan takes over everything."""
        self.gone.add(name)
        hit = {copy for copy, chain in enumerate(self.chains) for step in chain
               if step.kind == "compute" and name in step.nodes} - self.dead
        if not hit:
            return
        # A plan made for one death may rest on a node that has died since: then there is none.
        takes_over = name in failover and not self.gone & {one for stage in failover[name][0].stages
                                                           for copy in stage.replicas for one in copy}
        stopping = set(range(len(self.chains))) if takes_over else hit
        for resource in self.resources.values():
            if resource.job is not None and resource.job.copy in stopping:
                job, resource.job = resource.job, None
                self._record(resource, self.chains[job.copy][job.step], job, now, lost=True)
            resource.waiting = deque(job for job in resource.waiting if job.copy not in stopping)
            self._start_next(resource, now)
        stopped = [job for job in jobs if job.copy in stopping]
        self.lost += 0 if self.loading else len(stopped)
        if not takes_over:
            self.dead |= hit
            self.stopped_s = now
            return
        plan, reload_s = failover[name]
        self._use(plan)
        self.dead = set()
        self.takeovers += 1
        for job in stopped:  # the pass begins again; its tokens so far are known
            job.step, job.copy = 0, job.number % len(self.chains)
        self.loading = True
        self._at(now + reload_s, "loaded", self.takeovers)


def _chain(plan: Plan, copy: int, phase: str, shared: list[set[str]]) -> Iterator[_Step]:
    """The steps of one copy of a plan: compute, link, compute, ..."""
    card, cluster = plan.card, plan.cluster
    for position, stage in enumerate(plan.stages):
        nodes = stage.replicas[copy]
        yield _Step("+".join(nodes), "compute", position, stage_seconds(card, cluster, stage, phase), nodes)
        if position + 1 < len(plan.stages):
            following = plan.stages[position + 1]
            ends = (nodes[0], following.replicas[copy][0])
            medium = next((group for group in shared if {*ends} <= group), None)
            name = f"shared by {', '.join(sorted(medium))}" if medium else " -> ".join(ends)
            seconds = link_seconds(card, cluster, stage, following, phase)
            if math.isinf(seconds):
                raise fail(ArgumentError, "plan", f"there is no link {stage.node} -> {following.node}",
                           "simulate plans whose neighbouring stages are linked")
            yield _Step(name, "link", position, seconds, ends)
