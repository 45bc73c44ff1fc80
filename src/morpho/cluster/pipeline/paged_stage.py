"""A stage that computes one token of each of several streams in one call: keys and values lie in pages.

| function | streams | tokens of each |
|---|---|---|
| `single` | 1 | 1 |
| `rows` | 1 to `most_rows` | 1 |
| `piece` | 1 | 1 to `chunk`, of a prompt |

Rows do not see each other, and a page is a block of attention's keys, so that a stream has the bits it has alone
(docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.cluster.pipeline.parts import Part, context_of
from morpho.cluster.pipeline.stage import Stage
from morpho.nn.transformer.paged import PagedCache
from morpho.ops.neural.paged import PAGE

PAGES_A_STREAM = 8  # of the first pool, which grows: memory that no text has come to is not touched


class PagedStage(Stage):
    """Layers [start, end) of a plan, for up to `most_rows` streams at once.

    >>> part = Part(str(mo.models.SHIPPED))
    >>> part.hold(range(3))
    >>> stage = PagedStage(part, 0, 3, chunk=16, streams=4)
    >>> alone = stage.run(1, np.array([[5, 6]]), 0), stage.run(1, np.array([[7]]), 2)
    >>> begun = stage.run(2, np.array([[5, 6]]), 0), stage.run(3, np.array([[9]]), 0)
    >>> rows = stage.run_rows([2, 3], np.array([[7], [8]]), [2, 1])
    >>> bool((rows[0] == alone[1][0]).all()), rows.shape[0]
    (True, 2)
    """

    def __init__(self, part: Part, start: int, end: int, chunk: int, streams: int) -> None:
        super().__init__(part, start, end, chunk)
        self.most_rows, self.context = max(streams, 1), context_of(part.model)
        self.blocks_of_text = -(-self.context // PAGE)
        self.pages: dict[int, list[int]] = {}  # of each stream, in order
        self._kind = next((p.dtype for p in part.model.parameters()), mo.float32)
        self._compiles = 0
        self._caches: list[PagedCache] = []
        self._make(min(PAGES_A_STREAM, self.blocks_of_text) * self.most_rows)

    def _make(self, count: int) -> None:
        """Pools of so many pages, with what the old ones hold; functions are made anew for them."""
        shapes = [self.model.cache_shape(block) for block in self.blocks]
        old, self._caches = self._caches, [PagedCache(count, heads, width, self._kind) for heads, width in shapes]
        before = 0
        for held, cache in zip(old, self._caches):
            before = held.pages
            for source, target in ((held.keys, cache.keys), (held.values, cache.values)):
                rest = mo.zeros((count - before, *target.value.shape[1:]), dtype=self._kind)
                target.value = mo.concat([source.value, rest]).realise()
        in_use = {page for pages in self.pages.values() for page in pages}
        self._count, self._free = count, [page for page in range(count - 1, -1, -1) if page not in in_use]
        self._functions_made: dict[str, Any] = {}

    # -- room --------------------------------------------------------------------------------------------------------
    def open(self, stream: int, length: int = 0) -> None:
        """Begin with a stream; it gets pages as it grows."""
        self.streams.setdefault(stream, None)
        self.pages.setdefault(stream, [])

    def close(self, stream: int) -> None:
        self.streams.pop(stream, None)
        self._free += reversed(self.pages.pop(stream, []))

    def _extend(self, stream: int, positions: int) -> list[int]:
        """The pages of a stream, enough for so many positions."""
        self.open(stream)
        held = self.pages[stream]
        missing = -(-positions // PAGE) - len(held)
        if missing > len(self._free):
            self._make(2 * self._count + missing)
        for _ in range(missing):
            held.append(self._free.pop())
        return held

    @property
    def kv_bytes(self) -> int:
        page = sum(2 * heads * width * PAGE * self._kind.itemsize
                   for heads, width in (self.model.cache_shape(block) for block in self.blocks))
        return int(page * sum(map(len, self.pages.values())))

    @property
    def compiles(self) -> int:
        return self._compiles

    # -- calls -------------------------------------------------------------------------------------------------------
    def run(self, stream: int, x: np.ndarray, position: int) -> np.ndarray:
        found = self._call("single" if x.shape[1] == 1 else "piece", [stream], x, [position])
        return found.reshape(-1) if self.is_last else found

    def run_rows(self, streams: Sequence[int], x: np.ndarray, positions: Sequence[int]) -> np.ndarray:
        found = self._call("rows" if len(streams) > 1 else "single", streams, x, positions)
        return found.reshape(len(streams), -1) if self.is_last else found

    def _call(self, name: str, streams: Sequence[int], x: np.ndarray, positions: Sequence[int]) -> np.ndarray:
        tokens = x.shape[1]
        table = np.zeros((len(streams), self.blocks_of_text), np.int64)
        start = np.array(positions, np.int64)
        for row, (stream, position) in enumerate(zip(streams, positions, strict=True)):
            held = self._extend(stream, position + tokens)
            table[row, :len(held)] = held
        at = start[:, None] + np.arange(tokens)
        places = np.take_along_axis(table, at // PAGE, axis=1) * PAGE + at % PAGE
        return self._function(name)(*map(mo.asarray, (x, start, table, places))).numpy()  # type: ignore[no-any-return]

    def _function(self, name: str) -> Any:
        found = self._functions_made.get(name)
        if found is None:
            dynamic: dict[str, Any] = {}
            if name == "rows":
                rows = mo.Dim("rows", 1, self.most_rows)
                dynamic = {argument: {0: rows} for argument in ("x", "start", "table", "places")}
            elif name == "piece":
                tokens = mo.Dim("n", 1, min(self.chunk, self.context))
                dynamic = {argument: {1: tokens} for argument in ("x", "places")}
            body = self._body()
            found = self._functions_made[name] = mo.compile(body, dynamic=dynamic) if dynamic else mo.compile(body)
            self._compiles += 1
        return found

    def _body(self) -> Any:
        caches = self._caches

        def through(x: mo.Tensor, start: mo.Tensor, table: mo.Tensor, places: mo.Tensor) -> mo.Tensor:
            for cache in caches:
                cache.use(table, places)
            return self.through(x, start, caches)
        return through

    # -- caches that move --------------------------------------------------------------------------------------------
    def cache_of(self, stream: int, layer: int) -> tuple[np.ndarray, np.ndarray]:
        cache, pages = self._caches[layer - self.block_layers.start], self.pages[stream]
        found = []
        for state in (cache.keys, cache.values):
            held = np.moveaxis(state.value.numpy()[pages], 0, 1)  # (heads, pages, PAGE, width), a copy
            found.append(held.reshape(1, held.shape[0], -1, held.shape[-1]))
        return found[0], found[1]

    def put_cache(self, stream: int, length: int, pairs: Sequence[np.ndarray], count: int) -> None:
        pages = self._extend(stream, count)
        put = self._functions_made.get("put")
        if put is None:
            put = self._functions_made["put"] = mo.compile(self._put_body())
        for number, page in enumerate(pages):
            lines = np.zeros((len(pairs), 2, pairs[0].shape[2], PAGE, pairs[0].shape[-1]), np.float32)
            for layer, pair in enumerate(pairs):
                part = pair[:, 0, :, number * PAGE:min((number + 1) * PAGE, count)]
                lines[layer, :, :, :part.shape[2]] = part
            put(mo.asarray(lines), mo.asarray([[page]])).realise()

    def _put_body(self) -> Any:
        caches = self._caches

        def put(lines: mo.Tensor, page: mo.Tensor) -> mo.Tensor:
            for layer, cache in enumerate(caches):
                cache.put_page(lines[layer, :1], lines[layer, 1:], page)
            return page
        return put
