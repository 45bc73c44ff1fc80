"""Shared prefixes of an engine in a file: the pages of its radix tree, so that a server that starts again finds the
beginnings of prompts that it has read. Texts have the bits that they have when all is computed anew."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import MorphoError, fail
from morpho.models.text.prompt_cache import model_digest, read_cache, write_cache
from morpho.ops.neural.paged import PAGE
from morpho.serve.engine.pages import Node, Pages
from morpho.serve.engine.runner import ModelRunner
from morpho.weights.errors import FileFault

LOG = logging.getLogger("morpho.serve")


class PrefixFile:
    """The file of one engine's prefixes.

    Args:
        path: The file; it need not exist yet.
        runner: The runner whose pools hold the pages.
    """

    def __init__(self, path: Path, runner: ModelRunner) -> None:
        self.path, self.runner = path, runner
        self._put: Any = None
        self.renew()

    def renew(self) -> None:
        """Take the model's weights as they are for those that pages are made of from here on."""
        kinds = {str(cache.keys.value.dtype) for cache in self.runner.caches}
        self.model = f"{model_digest(self.runner.model)} {PAGE} {','.join(sorted(kinds))}"

    def load(self, pages: Pages) -> int:
        """Put the file's pages into the pools and the tree, as many as there is room for; how many there were. A file
        that is refused is logged and left where it is until the engine ends."""
        if not self.path.exists():
            return 0
        try:
            return self._load(pages)
        except (MorphoError, OSError) as error:
            LOG.error("prefixes_refused", extra={"file": str(self.path), "error": str(error)})
            return 0

    def _load(self, pages: Pages) -> int:
        tensors, _ = read_cache(self.path, self.model)
        parents, lengths, tokens = (tensors[name].numpy().tolist() for name in ("parents", "lengths", "tokens"))
        pools = [(state, tensors[name]) for name, state in self._states()]
        fits = len(parents) == len(lengths) and sum(lengths) == len(tokens) and all(
            0 < length <= PAGE and -1 <= parent < number
            for number, (parent, length) in enumerate(zip(parents, lengths, strict=True)))
        shapes = all(tuple(lines.shape) == (len(parents), *state.value.shape[1:]) and lines.dtype is state.value.dtype
                     for state, lines in pools)
        if not fits or not shapes:
            raise fail(FileFault, "serve", f"{self.path} does not hold pages of this model", "delete it")
        nodes: list[Node | None] = []
        at = 0
        for number, (parent, length) in enumerate(zip(parents, lengths, strict=True)):
            above = pages.root(None) if parent < 0 else nodes[parent]
            key, at = tuple(tokens[at:at + length]), at + length
            nodes.append(None)
            if above is None or key in above.children or not pages.free:
                continue
            page = pages.free.pop()
            self._put_page([lines[number:number + 1] for _, lines in pools], page)
            nodes[-1] = pages.insert(above, key, page)
        return sum(node is not None for node in nodes)

    def save(self, pages: Pages) -> int:
        """Write the pages of the tree, parents before children; how many."""
        order = [*_in_order(pages)]
        if not order:
            return 0
        numbers = {id(node): number for number, node in enumerate(order)}
        tensors: dict[str, Any] = {
            "parents": _whole([numbers.get(id(node.parent), -1) for node in order]),
            "lengths": _whole([len(node.tokens) for node in order]),
            "tokens": _whole([token for node in order for token in node.tokens])}
        chosen = mo.asarray(np.array([node.page for node in order], np.int64), device=self.runner.place)
        for name, state in self._states():
            tensors[name] = mo.take(state.value, chosen, axis=0).to("cpu").realise()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_cache(self.path, self.model, tensors)
        return len(order)

    def _states(self) -> Iterator[tuple[str, Any]]:
        for number, cache in enumerate(self.runner.caches):
            yield f"keys.{number}", cache.keys
            yield f"values.{number}", cache.values

    def _put_page(self, lines: list[Any], page: int) -> None:
        if self._put is None:
            def put(target: mo.Tensor, *lines: mo.Tensor) -> mo.Tensor:
                for number, cache in enumerate(self.runner.caches):
                    cache.put_page(lines[2 * number], lines[2 * number + 1], target)
                return target

            self._put = mo.compile(put)
        place = self.runner.place
        self._put(mo.asarray([page], device=place), *(each.to(place) for each in lines))


def _whole(numbers: list[int]) -> mo.Tensor:
    return mo.asarray(np.array(numbers, np.int64))


def _in_order(pages: Pages) -> Iterator[Node]:
    """Nodes of texts without an adapter, the ones used last first among those of one depth."""
    level = [pages.root(None)]
    while level:
        level = sorted((child for node in level for child in node.children.values()), key=lambda node: -node.used)
        yield from level
