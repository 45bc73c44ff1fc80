"""The planner: where every layer of a model goes on a set of unequal machines, how fast that is, and proof of it.

>>> from morpho import plan
>>> card = plan.ModelCard.from_config("gpt2", batch=8, context=512, dtype="f32")
>>> big = dict(memory_bytes=16_000_000_000, memory_bytes_per_s=4e10)
>>> nodes = [plan.Node("a", flops_per_s={"f32": 2e12}, **big), plan.Node("b", flops_per_s={"f32": 1e12}, **big)]
>>> cluster = plan.Cluster.uniform(nodes, bandwidth_bytes_per_s=plan.mbit_per_s(10_000), latency_s=1e-4)
>>> p = plan.solve(card, cluster, strategy="uniform", objective="throughput")
>>> [(stage.node, stage.start, stage.end) for stage in p.stages]
[('a', 0, 7), ('b', 7, 14)]
"""

from morpho.plan.cluster.cluster import Cluster
from morpho.plan.cluster.node import Link, Node, mbit_per_s
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import ACTIVATION_ERROR, BYTES_OF, Layer
from morpho.plan.predict.closed_form import evaluate, fill
from morpho.plan.predict.plan import OBJECTIVES, Constraints, Plan, Prediction, Stage
from morpho.plan.predict.quality import Quality, quality
from morpho.plan.predict.simulator import Span, Trace, simulate
from morpho.plan.replan.failures import Failure, failures
from morpho.plan.replan.forecast import Forecast, forecast, trend
from morpho.plan.replan.repartition import Adaptation, Move, adapt
from morpho.plan.replan.what_if import WhatIf, what_if
from morpho.plan.show.explanation import Explanation, Relief
from morpho.plan.show.methods import explain, plot  # type: ignore[attr-defined]
from morpho.plan.solve.heuristics import Packing, pack
from morpho.plan.solve.registry import Proposal, Request, register_strategy
from morpho.plan.solve.solver import solve, strategies
from morpho.plan.verify.checker import check
from morpho.plan.verify.report import Report

__all__ = [
    "ACTIVATION_ERROR", "BYTES_OF", "OBJECTIVES", "Cluster", "Constraints", "Layer", "Link", "ModelCard", "Node",
    "Packing", "Plan", "Prediction", "Proposal", "Report", "Request", "Stage", "check", "evaluate", "fill",
    "mbit_per_s", "pack", "register_strategy", "solve", "strategies",
    "Adaptation", "Explanation", "Failure", "Forecast", "Move", "Quality", "Relief", "Span", "Trace", "WhatIf", "adapt",
    "explain", "failures", "forecast", "plot", "quality", "simulate", "trend", "what_if",
]
