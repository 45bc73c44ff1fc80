"""One stage: its layers as two native functions, one for prompts and one for single tokens, and a cache per stream.

Streams take turns here: it is what stages with collectives inside, or with two parts, have. Others compute several
streams in one call (`paged_stage`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.cluster.pipeline.parts import Part, cuts_of, depth_of
from morpho.models.cuts import module_at
from morpho.nn.frozen import Frozen
from morpho.nn.transformer.attention import KeyValueCache

LEAST_LENGTH = 256  # positions of the smallest cache


def cache_length(context: int, wanted: int) -> int:
    """Positions of the cache of a text: a power of two, so that a few functions serve all.

    >>> cache_length(2048, 300), cache_length(400, 300)
    (512, 400)
    """
    length = LEAST_LENGTH
    while length < min(wanted, context):
        length *= 2
    return min(length, context)


class Stage:
    """Layers [start, end) of a plan: token numbers or activations in, activations or the logits of the last row out.

    Streams take turns in the same compiled functions: the caches of the one whose turn it is are put into their states,
    and nothing is copied.
    """

    most_rows = 1  # tokens of different streams that go through in one call

    def __init__(self, part: Part, start: int, end: int, chunk: int) -> None:
        self.part, self.start, self.end, self.chunk = part, start, end, chunk
        model = self.model = part.model
        self.depth, self.cuts, self.frozen = depth_of(model), cuts_of(model), Frozen(model)
        self.is_first, self.is_last = start == 0, end == self.depth
        self.takes_tokens = self.is_first  # where tokens enter
        blocks = module_at(model, self.cuts.blocks)
        self.blocks = [blocks[number] for number in self._block_numbers()]
        self._by_length: dict[int, Functions] = {}
        self.streams: dict[int, Any] = {}  # by number, what each has its caches in

    def _block_numbers(self) -> list[int]:
        return [layer - 1 for layer in range(max(self.start, 1), min(self.end, self.depth - 1))]

    @property
    def block_layers(self) -> range:
        """The layers of the plan that have caches."""
        return range(max(self.start, 1), min(self.end, self.depth - 1))

    @property
    def kv_heads(self) -> int:
        """Heads of keys of a layer here; 0 where there is no block."""
        return int(self.model.cache_shape(self.blocks[0])[0]) if self.blocks else 0

    def cache_of(self, stream: int, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (1, heads, positions, width) of a layer of a stream: what is there, not a copy."""
        return self.streams[stream].cache_of(stream, layer - self.block_layers.start)  # type: ignore[no-any-return]

    def put_cache(self, stream: int, length: int, pairs: Sequence[np.ndarray], count: int) -> None:
        """Open a stream with `count` positions of caches that were made elsewhere: keys and values of each layer."""
        self.open(stream, length)
        self.streams[stream].put_cache(stream, pairs)

    def is_still(self, part: Part, start: int, end: int) -> bool:
        """Whether this is the stage of these layers, and a part holds what it was made of."""
        return (self.start, self.end) == (start, end) and part.model is self.model and part.share is None \
            and part.layers == frozenset(range(start, end))

    def _functions(self, length: int) -> Functions:
        return Functions(self, length)

    def open(self, stream: int, length: int) -> None:
        """Make room for a stream of at most so many positions."""
        if stream not in self.streams:
            found = self._by_length.get(length)
            if found is None:
                found = self._by_length[length] = self._functions(length)
            self.streams[stream] = found

    def close(self, stream: int) -> None:
        """Give back the room of a stream."""
        found = self.streams.pop(stream, None)
        if found is not None:
            found.release(stream)

    def run(self, stream: int, x: np.ndarray, position: int) -> np.ndarray:
        """Some tokens of a stream, from `position` on."""
        return self.streams[stream].run(stream, x, position)  # type: ignore[no-any-return]

    def run_rows(self, streams: Sequence[int], x: np.ndarray, positions: Sequence[int]) -> np.ndarray:
        """One token of each of several streams, a row of x each: a row of activations or logits of each."""
        rows = [self.run(stream, x[row:row + 1], position)
                for row, (stream, position) in enumerate(zip(streams, positions, strict=True))]
        return np.stack([row.reshape(row.shape[-2:] if not self.is_last else (-1,)) for row in rows])

    def through(self, x: mo.Tensor, position: mo.Tensor, caches: Sequence[Any]) -> mo.Tensor:
        """The layers, as they are traced: activations, or the logits of the last token of each row."""
        model = self.part.model
        self.frozen.use()
        with mo.no_grad():
            if self.is_first:
                x = model.begin(x, position)
            for block, cache in zip(self.blocks, caches, strict=True):
                x = model.step(block, x, cache, position)
            if not self.is_last:
                return x.astype(mo.float32)
            return model.head(model.normed(x)[:, -1:]).astype(mo.float32)  # type: ignore[no-any-return]

    @property
    def compiles(self) -> int:
        """How often a function ran for the first time, which compiles it: such a run says nothing of the stage's
        speed."""
        return sum(len(functions.compiled) for functions in self._by_length.values())

    @property
    def kv_bytes(self) -> int:
        """Bytes of all caches."""
        return sum(functions.nbytes for functions in self._by_length.values())


class Functions:
    """The compiled functions for caches of one length."""

    def __init__(self, stage: Stage, length: int) -> None:
        self.stage, self.length = stage, length
        model = stage.part.model
        kind = next((p.dtype for p in model.parameters()), mo.float32)
        shapes = [model.cache_shape(block) for block in stage.blocks]
        self.caches = [KeyValueCache(1, heads, length, width, kind, *values) for heads, width, *values in shapes]
        self._inside: int | None = None  # the stream whose caches the states hold
        self._parked: dict[int, list[Any]] = {}
        self._spare: list[list[Any]] = []
        self.compiled: set[int] = set()  # those of the functions that have run
        many = {"x": {1: mo.Dim("n", 1, min(stage.chunk, length))}}
        self.prefill, self.decode = mo.compile(self._through, dynamic=many), mo.compile(self._through)

    def _states(self) -> Iterator[Any]:
        for cache in self.caches:
            yield cache.keys
            yield cache.values

    @property
    def nbytes(self) -> int:
        sets = 1 + len(self._parked) + len(self._spare)
        return sets * sum(int(state.value.nbytes) for state in self._states())

    def _through(self, x: mo.Tensor, position: mo.Tensor) -> mo.Tensor:
        found = self.stage.through(x, position, self.caches)
        return mo.reshape(found, (-1,)) if self.stage.is_last else found

    def run(self, stream: int, x: np.ndarray, position: int) -> np.ndarray:
        self._enter(stream)
        function = self.decode if x.shape[1] == 1 and position else self.prefill
        self.compiled.add(id(function))
        return function(mo.asarray(x), mo.asarray(position)).numpy()  # type: ignore[no-any-return]

    def _enter(self, stream: int) -> None:
        """Put a stream's caches into the states."""
        if self._inside == stream:
            return
        held = self._parked.pop(stream, None)
        if held is None and self._inside is None:  # those of a stream that has ended: nothing looks at what is there
            self._inside = stream
            return
        if held is None:
            held = self._spare.pop() if self._spare else [
                mo.zeros(state.value.shape, dtype=state.value.dtype).realise() for state in self._states()]
        out = [state.exchange(held.pop(0)) for state in self._states()]
        if self._inside is None:
            self._spare.append(out)
        else:
            self._parked[self._inside] = out
        self._inside = stream

    def cache_of(self, stream: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        held = [state.value for state in self._states()] if self._inside == stream else self._parked[stream]
        keys, values = (each.numpy() for each in held[2 * block:2 * block + 2])
        return keys, values

    def put_cache(self, stream: int, pairs: Sequence[np.ndarray]) -> None:
        self._parked[stream] = [mo.asarray(each).realise() for pair in pairs for each in pair]

    def release(self, stream: int) -> None:
        if self._inside == stream:
            self._inside = None
        elif stream in self._parked:
            self._spare.append(self._parked.pop(stream))
