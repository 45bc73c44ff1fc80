"""`morpho run --nodes`, `--hosts` and `--plan`: the model as a pipeline of workers, its plan shown first."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.machine import allowed_cores, other_load, quota_cores, usable_cores
from morpho.base.units import format_seconds

HINT = "--plan takes a file that `morpho plan MODEL --cluster FILE --json FILE` wrote"

if TYPE_CHECKING:  # a server without workers does not wait for the planner
    from morpho.plan import Plan


@dataclass(frozen=True)
class Spread:
    """Over what a model is spread."""

    nodes: int | None = None
    hosts: Path | None = None
    plan: Path | None = None

    @property
    def wanted(self) -> bool:
        return self.nodes is not None or self.hosts is not None or self.plan is not None

    def pipeline(self, place: Path, **more: Any) -> Any:
        """The workers, started, after the plan has been shown on standard error."""
        from morpho.cluster.frontend.local import local_plan
        from morpho.cluster.frontend.pipeline import Pipeline
        from morpho.cluster.hosts.run import host_pipeline

        if self.hosts is not None and self.nodes is not None:
            raise fail(ArgumentError, "run", f"--nodes {self.nodes} is of this machine, and --hosts {self.hosts} names "
                                             "machines, with a worker on each", "leave out one of them")
        given = None if self.plan is None else read_plan(self.plan)
        if self.hosts is not None:
            return host_pipeline(place, self.hosts, given, _show, **more)
        plan = given or local_plan(place, self.nodes or 1)
        if given is not None and self.nodes is not None and len(given.cluster.nodes) != self.nodes:
            raise fail(ArgumentError, "run", f"the plan is for {len(given.cluster.nodes)} nodes, and --nodes says "
                                             f"{self.nodes}", "leave out one of them")
        _show(plan)
        started = len(plan.cluster.nodes)
        if self.nodes is not None and started < self.nodes:
            print(f"[{started} of {self.nodes} workers are started: the plan has work for {plan.predicted.nodes_used}, "
                  f"and the others are enough in reserve]", file=sys.stderr, flush=True)
        return Pipeline(place, plan, **more)


def _show(plan: Plan) -> None:
    print(summary(plan), file=sys.stderr, flush=True)


def read_plan(path: Path) -> Plan:
    """The plan in a file; what is wrong with it is said with the file's name."""
    from morpho.plan import Plan

    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise fail(ArgumentError, "run", f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
                   HINT) from None
    except MorphoError as error:
        raise fail(ArgumentError, "run", f"{path}: {error.message}", HINT) from None


def summary(plan: Plan) -> str:
    """A plan in a few lines: who runs what, and how fast that should be."""
    rows = [f"  {' and '.join(stage.members or (stage.node,))}: layers [{stage.start}, {stage.end})"
            for stage in plan.stages]
    busy = {name for stage in plan.stages for name in (stage.node, *stage.members)}
    idle = [node.name for node in plan.cluster.nodes if node.name not in busy]
    spare = f", {', '.join(idle)} in reserve" if idle else ""
    return "\n".join([f"[plan: {len(rows)} stages{spare}, {plan.predicted.tokens_per_s:.4g} tokens/s and "
                      f"{format_seconds(plan.predicted.latency_s)} a token predicted{assumed()}", *rows]) + "]"


def assumed(load: float | None = None, cores: int | None = None) -> str:
    """Which load a prediction assumes, and this machine's own where it is a busy one: what other programs want of
    its cores, measured for a tenth of a second.

    >>> assumed(0.1, 8)
    ' where nothing else runs'
    >>> assumed(12.0, 4)
    ' where nothing else runs; here 12 processes want 4 cores, so expect it to be slower by about 4 times'
    """
    words = " where nothing else runs"
    load = other_load() * (os.cpu_count() or 1) if load is None else load
    cores = usable_cores(allowed_cores(), quota_cores()) if cores is None else cores
    if load < max(1.0, cores / 2):
        return words
    times = (load + cores) / cores  # the workers want the cores as well
    return (f"{words}; here {load:.0f} processes want {cores} cores, so expect it to be slower by about {times:.0f} "
            "times")

