"""How well a plan uses what is there: balance, communication, efficiency of the pipeline."""

from __future__ import annotations

import math
from dataclasses import dataclass

from morpho.base.units import format_bytes
from morpho.plan.model.layer import BYTES_OF
from morpho.plan.predict.closed_form import reduce_seconds
from morpho.plan.predict.plan import Plan, Stage


@dataclass(frozen=True, slots=True)
class Quality:
    """Figures of a plan between 0 and 1, except bytes.

    `busy` is the share of the steady state each node of the cluster computes, `load_balance` its mean over its maximum
    over all nodes (idle ones count), `pipeline_efficiency` its mean over the nodes in use. `sent_bytes_per_token` is
    what crosses links for one token, sums among nodes that share a layer included, `communication_share` the part of
    one token's latency that links take, and
    `filled` the throughput with the model's own number of micro-batches over that of a full pipeline.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> 0 < plan.quality(p).load_balance <= 1
    True
    """

    busy: dict[str, float]
    load_balance: float
    pipeline_efficiency: float
    sent_bytes_per_token: float
    communication_share: float
    filled: float

    def __str__(self) -> str:
        return (f"load balance over all {len(self.busy)} nodes {self.load_balance:.0%}, pipeline efficiency "
                f"{self.pipeline_efficiency:.0%}, {format_bytes(self.sent_bytes_per_token)} sent per token, links take "
                f"{self.communication_share:.0%} of the latency")


def quality(plan: Plan) -> Quality:
    """The quality metrics of a plan.

    >>> from morpho.plan import Cluster, ModelCard, Node, solve
    >>> nodes = [Node(name, 8_000_000_000, 1e10, {"f32": 1e11}) for name in "ab"]
    >>> card = ModelCard.from_config("gpt2", dtype="f32")
    >>> round(quality(solve(card, Cluster.uniform(nodes, 1e9, 1e-4), strategy="uniform")).load_balance, 1) <= 1.0
    True
    """
    copies = len(plan.stages[0].replicas)
    period = plan.predicted.period_s * copies  # of one copy of the pipeline
    busy = {node.name: 0.0 for node in plan.cluster.nodes}
    for stage in plan.stages:
        for copy in stage.replicas:
            for name in copy:
                busy[name] = stage.compute_s / period if period > 0 else 1.0
    used = [share for share in busy.values() if share > 0] or [1.0]
    sent = math.fsum(plan.card.cut_bytes(stage.end, stage.activation_dtype) for stage in plan.stages[:-1])
    sums = [_summed(plan, stage) for stage in plan.stages]
    sent += math.fsum(size for size, _ in sums)
    links = math.fsum(stage.link_s for stage in plan.stages) + math.fsum(seconds for _, seconds in sums)
    latency = plan.predicted.latency_s
    return Quality(
        busy, math.fsum(busy.values()) / len(busy) / max(used), math.fsum(used) / len(used),
        sent / plan.card.tokens_per_pass, links / latency if latency > 0 else 0.0,
        min(1.0, plan.card.micro_batches * period / latency) if latency > 0 else 1.0)


def _summed(plan: Plan, stage: Stage) -> tuple[float, float]:
    """Bytes and seconds of the ring all-reduces of a stage: each member sends 2 (t - 1) / t of what is summed."""
    members, card = len(stage.members), plan.card
    if members < 2:
        return 0.0, 0.0
    layers, size = card.layers[stage.start:stage.end], BYTES_OF[card.activation_dtype]
    link = plan.cluster.link(*stage.members[:2])
    return (2 * (members - 1) * size * sum(layer.reduce_elements(card.phase) for layer in layers if layer.reduces),
            math.fsum(reduce_seconds(layer, link, members, size, card.phase) for layer in layers))
