"""The layers of a model that one worker holds: a plan's layers are the embedding, the blocks, and the head with what
stands before it (`models.cuts`). The rest of a model is taken out before weights are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.pipeline.shares import Share, cut, rebind
from morpho.models.cuts import Cuts, module_at
from morpho.models.files.loading import load_part, part_ranges
from morpho.nn.containers import Identity


def cuts_of(model: Any) -> Cuts:
    """How a model is cut; one of a family that cannot be is an error that says so."""
    cuts: Cuts | None = getattr(model, "cuts", None)
    if cuts is None:
        raise fail(ArgumentError, "pipeline", f"models of the family {model.model_type!r} cannot be cut into stages",
                   "use a decoder, or an encoder-decoder for text")
    return cuts


def depth_of(model: Any) -> int:
    """Layers as a plan counts them: the blocks, the embedding and the head."""
    return cuts_of(model).depth(model)


def context_of(model: Any) -> int:
    """The most positions of a text in a pipeline: where longer texts have other angles, those before that."""
    context = int(model.context)
    return min(context, int(getattr(model, "switch", None) or context))


def _put(model: Any, path: str, module: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(module_at(model, owner) if owner else model, name, module)


class Part:
    """The layers of a model that one worker holds; more are read from the files, and others let go, when a plan
    changes. What is held already is not read again."""

    def __init__(self, place: str, dtype: Any = mo.float32) -> None:
        self._place, self._dtype = place, dtype
        self.model: Any = None
        self.layers: frozenset[int] = frozenset()
        self.share: Share | None = None
        self.read: list[int] = []  # layers in the order in which they were read from files

    def hold(self, layers: Iterable[int], share: Share | None = None) -> None:
        """Hold these layers of the plan and no others; with a share, a part of each."""
        wanted = frozenset(layers)
        if not (share is self.share or (share is not None and share.like(self.share))):
            self.model, self.layers = None, frozenset()  # other columns than those there are
        self.share = share
        missing = wanted - self.layers
        if self.model is None or (missing and share is None):
            self._read(sorted(missing) if share is None else [], wanted)
        for layer in sorted(missing) if share is not None else ():  # one after another: whole layers are larger
            self._read([layer], wanted)
        self._strip(self.model, wanted)
        self.layers = wanted
        if share is not None:
            rebind(self.model, share.group)

    def _read(self, missing: list[int], wanted: frozenset[int]) -> None:
        """Read layers and put what is held already beside them."""
        fresh = load_part(self._place, lambda model: self._strip(model, missing), dtype=self._dtype)
        if self.share is not None:
            cut(fresh, cuts_of(fresh).held_blocks(fresh, missing), self.share)
        if self.model is not None:
            self._move(fresh, wanted & self.layers)
        self.model, self.layers = fresh, (wanted & self.layers).union(missing)
        self.read += missing

    @staticmethod
    def ranges(place: str, layers: Iterable[int]) -> list[tuple[str, int, int]]:
        """Which bytes of a model's files layers are read from, as (file, start, stop); a GGUF file is read as a whole.

        >>> len(Part.ranges(str(mo.models.SHIPPED), [])), len(Part.ranges(str(mo.models.SHIPPED), [1])) > 4
        (0, True)
        """
        path = Path(place)
        if path.is_file():
            return [(path.name, 0, path.stat().st_size)]
        kept = frozenset(layers)
        return part_ranges(path, lambda model: Part(place)._strip(model, kept)) if kept else []

    def _names(self, model: Any, layers: Iterable[int]) -> set[str]:
        return {name for layer in layers for name in cuts_of(model).modules(model, layer)}

    def _strip(self, model: Any, layers: Iterable[int]) -> None:
        """Take out the modules of all other layers."""
        kept = self._names(model, layers)
        for name in self._names(model, range(depth_of(model))) - kept:
            if module_at(model, name) is not None:
                _put(model, name, Identity())

    def _move(self, fresh: Any, layers: Iterable[int]) -> None:
        """Put modules that are held already into a model that was just read."""
        for name in self._names(fresh, layers):
            if isinstance(module_at(fresh, name), Identity):
                _put(fresh, name, module_at(self.model, name))
