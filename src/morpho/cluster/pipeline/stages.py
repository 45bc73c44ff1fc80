"""Which kind of stage a model has."""

from __future__ import annotations

from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.shares import Share
from morpho.cluster.pipeline.stage import Stage
from morpho.cluster.pipeline.two_parts import TwoPartStage


def make_stage(part: Part, start: int, end: int, chunk: int, share: Share | None = None) -> Stage:
    """The stage of layers [start, end), or a share of it, of a decoder alone or of an encoder and a decoder."""
    part.hold(range(start, end), share)
    return (TwoPartStage if hasattr(part.model, "remember") else Stage)(part, start, end, chunk)
