"""Which kind of stage a model has."""

from __future__ import annotations

from morpho.cluster.pipeline.paged_stage import PagedStage
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.shares import Share
from morpho.cluster.pipeline.stage import Stage
from morpho.cluster.pipeline.two_parts import TwoPartStage

STREAMS = 8  # texts that a stage computes at once where nobody says how many


def make_stage(part: Part, start: int, end: int, chunk: int, share: Share | None = None, streams: int = STREAMS
               ) -> Stage:
    """The stage of layers [start, end), or a share of it, of a decoder alone or of an encoder and a decoder. Several
    streams go through a decoder's whole layers in one call; where members of a stage meet in collectives, where there
    is an encoder, or where keys cannot lie in pages, they take turns."""
    part.hold(range(start, end), share)
    if hasattr(part.model, "remember"):
        return TwoPartStage(part, start, end, chunk)
    out_of_pages: str = getattr(part.model, "not_in_pages", "")
    if share is not None or out_of_pages:
        return Stage(part, start, end, chunk)
    return PagedStage(part, start, end, chunk, streams)
