"""The stages of a placement one after another in one process: what a pipeline of processes must give, bit for bit.

A link that sends less than float32 rounds here as it does there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from morpho.cluster.pipeline.parts import Part, context_of
from morpho.cluster.pipeline.placement import Place
from morpho.cluster.pipeline.request import Request, Stream
from morpho.cluster.pipeline.stage import cache_length
from morpho.cluster.pipeline.stages import make_stage
from morpho.cluster.pipeline.two_parts import TwoPartStage
from morpho.cluster.transport.rounding import rounded


class Chain:
    """Stages in this process.

    >>> import morpho as mo
    >>> chain = Chain(str(mo.models.SHIPPED), [Place("a", 0, 3), Place("b", 3, 6)])
    >>> ids = [5, 6, 7]
    >>> chain.tokens(Request(1, tuple(ids), 4)) == [*mo.models.generate(mo.models.load(mo.models.SHIPPED), ids,
    ...                                                                max_new_tokens=4)]
    True
    """

    def __init__(self, place: str, places: Sequence[Place], chunk: int = 128) -> None:
        self.places, self.chunk = tuple(places), chunk
        self.stages = [make_stage(Part(place), each.start, each.end, chunk) for each in places]
        self.context = context_of(self.stages[0].part.model)

    def tokens(self, request: Request, made: Sequence[int] = ()) -> list[int]:
        """Tokens after a prompt, continuing from earlier ones."""
        stream, position = Stream(request, made), 0
        for stage in self.stages:
            two_parts = isinstance(stage, TwoPartStage)
            stage.open(request.number, cache_length(self.context, request.length(two_parts)))
        fed = [self._encoded(request), *stream.made] if two_parts else stream.tokens
        while not stream.ended:
            for at in range(0, len(fed), self.chunk):
                x = np.array([fed[at:at + self.chunk]], np.int64)
                logits = self._through(request.number, x, position)
                position += x.shape[1]
            token = stream.take(logits)
            fed = [] if token is None else [token]
        for stage in self.stages:
            stage.close(request.number)
        return stream.made

    def _encoded(self, request: Request) -> int:
        """Take the prompt through encoder and decoder; the token that the text begins with."""
        x = np.array([request.prompt], np.int64)
        for stage, place in zip(self.stages, self.places, strict=True):
            assert isinstance(stage, TwoPartStage)
            x = stage.encode(request.number, x)
            if not stage.is_last:
                x = rounded(x, place.dtype)
        return int(self.stages[0].part.model.config["decoder_start_token_id"] or 0)

    def _through(self, stream: int, x: np.ndarray, position: int) -> np.ndarray:
        for stage, place in zip(self.stages, self.places, strict=True):
            if isinstance(stage, TwoPartStage) and not (stage.takes_tokens or x.dtype == np.float32):
                continue  # the encoder's: tokens go by
            x = stage.run(stream, x, position)
            if not stage.is_last:
                x = rounded(x, place.dtype)
        return x
