"""A stage of a model with an encoder and a decoder (T5, BART): the prompt goes through the encoder's blocks and is
remembered by the decoder's, then tokens go through the decoder's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import morpho as mo
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.pipeline.stage import Functions, Stage
from morpho.nn.transformer.attention import KeyValueCache, attend


class TwoPartStage(Stage):
    """Layers of encoder and decoder. `encode` takes a whole prompt, or what the stage before made of it; `run` takes
    the decoder's tokens, or their activations."""

    def __init__(self, part: Part, start: int, end: int, chunk: int) -> None:
        super().__init__(part, start, end, chunk)
        blocks = part.model.encoder_blocks
        encoders = len(blocks)
        self.takes_tokens = start <= encoders + 1 < end
        self.encoder_blocks = [blocks[layer - 1] for layer in range(max(start, 1), min(end, encoders + 1))]
        self.ends_encoder = start <= encoders < end

    def _block_numbers(self) -> list[int]:
        encoders = len(self.part.model.encoder_blocks)
        return [layer - encoders - 1 for layer in range(max(self.start, encoders + 1), min(self.end, self.depth - 1))]

    def _functions(self, length: int) -> Functions:
        return TwoPartFunctions(self, length)

    def encode(self, stream: int, x: np.ndarray) -> np.ndarray:
        """The prompt of a stream: what the next stage gets of it."""
        functions = self.streams[stream]
        assert isinstance(functions, TwoPartFunctions)
        return functions.encode(stream, x)


class TwoPartFunctions(Functions):
    """The compiled functions of a stage of two parts."""

    stage: TwoPartStage

    def __init__(self, stage: TwoPartStage, length: int) -> None:
        super().__init__(stage, length)
        model = stage.part.model
        kind = next((p.dtype for p in model.parameters()), mo.float32)
        shapes = [model.cache_shape(block) for block in stage.blocks]
        self.cross = [KeyValueCache(1, heads, length, width, kind) for heads, width in shapes]
        self.lengths: dict[int, int] = {}  # of prompts
        self.remember = mo.compile(self._remember, dynamic={"x": {1: mo.Dim("n", 1, length)}})
        many = {"x": {1: mo.Dim("n", 1, min(stage.chunk, length))}}
        self.two_prefill, self.two_decode = mo.compile(self._decoded, dynamic=many), mo.compile(self._decoded)

    def _states(self) -> Iterator[Any]:
        yield from super()._states()
        for cache in self.cross:
            yield cache.keys
            yield cache.values

    def _remember(self, x: mo.Tensor) -> mo.Tensor:
        stage, model = self.stage, self.stage.part.model
        stage.frozen.use()
        with mo.no_grad():
            if stage.is_first:
                x = model.enter(x, False)
            if stage.encoder_blocks:
                bias = model.bias(False, x.shape[1], x.shape[1])
                for block in stage.encoder_blocks:
                    x = model.encoder_step(block, x, bias)
            if stage.ends_encoder:
                x = model.leave(x, False)
            for block, cache in zip(stage.blocks, self.cross, strict=True):
                keys, values = model.cross_attention(block).keys_and_values(x)
                cache.write(keys, values, 0)
            return x.astype(mo.float32)

    def _decoded(self, x: mo.Tensor, position: mo.Tensor, length: mo.Tensor) -> mo.Tensor:
        stage, model = self.stage, self.stage.part.model
        stage.frozen.use()
        with mo.no_grad():
            if stage.takes_tokens:
                x = model.enter(x, True, position)
            if stage.blocks:
                x = self._blocks(x, position, length)
            if not stage.is_last:
                return x.astype(mo.float32)
            last = model.leave(x, True)[:, -1:]
            return mo.reshape(model.head(last), (-1,)).astype(mo.float32)

    def _blocks(self, x: mo.Tensor, position: mo.Tensor, length: mo.Tensor) -> mo.Tensor:
        model = self.stage.part.model
        bias = model.bias(True, x.shape[1], self.length, position)
        seen = mo.reshape(mo.arange(self.length), (1, 1, 1, -1)) < mo.reshape(length, (-1, 1, 1, 1))
        for block, own, cross in zip(self.stage.blocks, self.caches, self.cross, strict=True):
            def look(attention: Any, y: mo.Tensor, cross: KeyValueCache = cross) -> mo.Tensor:
                return attention.over(y, lambda q: attend(  # type: ignore[no-any-return]
                    q, cross.keys.value.astype(q.dtype), cross.values.value.astype(q.dtype), mask=seen,
                    scale=model.cross_scale))

            x = model.decoder_step(block, x, bias, look, own, position)
        return x

    def encode(self, stream: int, x: np.ndarray) -> np.ndarray:
        self._enter(stream)
        self.lengths[stream] = x.shape[1]
        return self.remember(mo.asarray(x)).numpy()  # type: ignore[no-any-return]

    def run(self, stream: int, x: np.ndarray, position: int) -> np.ndarray:
        self._enter(stream)
        function = self.two_decode if x.shape[1] == 1 and position else self.two_prefill
        self.compiled.add(id(function))
        length = mo.asarray([self.lengths[stream]])
        return function(mo.asarray(x), mo.asarray(position), length).numpy()  # type: ignore[no-any-return]

    def release(self, stream: int) -> None:
        super().release(stream)
        self.lengths.pop(stream, None)
