"""Better cuts between machines that stay in their order: what repartitioning tries before it reshuffles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from morpho.plan.predict.plan import Plan
from morpho.plan.solve.problem import Problem, build
from morpho.plan.solve.registry import Proposal
from morpho.plan.solve.solver import complete

Path = list[tuple[int, int, int, int]]  # (kind, start, end, option of the link into it), as in `problem`


def cut_plans(plan: Plan, most: int = 400) -> Iterator[Plan]:
    """Plans reached by moving one cut at a time, each move the best there is, until none helps; every one of them."""
    if any(len(stage.members) > 1 or len(stage.replicas) > 1 for stage in plan.stages):
        return
    usable = plan.cluster.without(plan.constraints.excluded) if plan.constraints.excluded else plan.cluster
    problem = build(plan.card, usable, plan.constraints)
    dtypes = {stage.activation_dtype for stage in plan.stages[:-1]}
    if not dtypes <= {*problem.dtypes} or any(stage.end not in problem.steps for stage in plan.stages):
        return
    path = problem.placement_of([stage if stage.activation_dtype in problem.dtypes
                            else replace(stage, activation_dtype=problem.dtypes[0]) for stage in plan.stages])
    value = _value(problem, path, plan.objective)
    for _ in range(most):
        options = [(_value(problem, other, plan.objective), other) for other in _neighbours(problem, path)]
        better, other = min(options, key=lambda row: row[0], default=((), path))
        if not better or not better < value:
            return
        value, path = better, other
        yield _plan(plan, problem, path)


def _value(problem: Problem, path: Path, objective: str) -> tuple[float, ...]:
    """Sort key of a path: the objective, then all its times, to break ties."""
    period, latency = problem.values(path)
    times = [float(problem.time[kind, end] - problem.time[kind, start]) for kind, start, end, _ in path]
    times.sort(reverse=True)
    return (latency, period) if objective == "latency" else (period, *times)


def _neighbours(problem: Problem, path: Path) -> Iterator[Path]:
    """Paths with one cut one or two boundaries away, where memory and pins allow it and no stage becomes empty."""
    for position in range(len(path) - 1):
        (kind, start, end, option), (after, _, last, link) = path[position], path[position + 1]
        for cut in (end - 2, end - 1, end + 1, end + 2):
            if start < cut < last and cut <= problem.far[kind, start] and last <= problem.far[after, cut]:
                yield [*path[:position], (kind, start, cut, option), (after, cut, last, link), *path[position + 2:]]


def _plan(plan: Plan, problem: Problem, path: Path) -> Plan:
    bare = [replace(stage, start=problem.steps[start], end=problem.steps[end])
            for stage, (_, start, end, _) in zip(plan.stages, path)]
    return complete(plan.card, plan.cluster, Proposal(bare), plan.strategy, plan.objective, plan.seed, plan.constraints,
                    bound=False)
