"""Where outputs of a graph lie in memory: views of arguments and of each other, as PyTorch foresaw them.

AOTAutograd makes the outputs that alias anew, by replaying views or, where their arguments are open sizes, from the
strides and the offset of the tensors that the backend returns: those must be right, not only the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from morpho.torch.lowering import Lowered, is_symbolic, size_of
from morpho.torch.program import evaluated


@dataclass(frozen=True)
class Place:
    """An output as a view of a memory: sizes, strides and offset are numbers or expressions of open sizes."""

    number: int
    source: int  # the argument that it is a view of; -1: a memory of the results
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    start: Any = 0  # where the argument itself begins

    def at(self, symbols: Mapping[str, int]) -> tuple[list[int], list[int], int]:
        """Sizes, strides and offset of a call."""
        return ([int(evaluated(n, symbols)) for n in self.shape], [int(evaluated(n, symbols)) for n in self.strides],
                int(evaluated(self.offset, symbols)))

    def of(self, argument: torch.Tensor, symbols: Mapping[str, int]) -> torch.Tensor:
        """The view of an argument."""
        shape, strides, offset = self.at(symbols)
        return argument.as_strided(shape, strides,
                                   offset - int(evaluated(self.start, symbols)) + argument.storage_offset())


def _place(number: int, value: torch.Tensor, source: int = -1, start: Any = 0) -> Place:
    return Place(number, source, tuple(size_of(n) for n in value.shape), tuple(size_of(n) for n in value.stride()),
                 size_of(value.storage_offset()), size_of(start))


def _is_open(value: torch.Tensor) -> bool:
    return any(is_symbolic(n) for n in (*value.shape, *value.stride(), value.storage_offset()))


def _memory(value: torch.Tensor) -> tuple[int, torch.dtype]:
    return value.untyped_storage()._cdata, value.dtype


def _made(results: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """Outputs that are tensors of the graph, not arguments handed through."""
    found = [(number, part.meta.get("val")) for number, part in enumerate(results)
             if isinstance(part, Node) and part.op != "placeholder"]
    return [(number, value) for number, value in found
            if isinstance(value, torch.Tensor) and value.layout is torch.strided]


def aliases(lowered: Lowered) -> list[Place]:
    """Outputs of open sizes that are views of arguments."""
    owners: dict[Any, tuple[int, torch.Tensor]] = {}
    for position, node in enumerate(lowered.placeholders):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            owners.setdefault(_memory(value), (position, value))
    found = []
    for number, value in _made(lowered.results):
        owner = owners.get(_memory(value))
        if owner is not None and (_is_open(value) or _is_open(owner[1])):
            found.append(_place(number, value, owner[0], owner[1].storage_offset()))
    return found


def sharing(results: Sequence[Any], is_inference: bool, done: set[int]) -> list[list[Place]]:
    """Groups of outputs that are views of one memory in PyTorch, less those that are `done`. In graphs for training
    AOTAutograd sees to those whose sizes are known."""
    groups: dict[Any, list[tuple[int, torch.Tensor]]] = {}
    for number, value in _made(results):
        if number not in done:
            groups.setdefault(_memory(value), []).append((number, value))
    return [[_place(number, value) for number, value in group] for group in groups.values()
            if len(group) > 1 and (is_inference or any(_is_open(value) for _, value in group))]


def share(results: list[Any], group: Sequence[Place], symbols: Mapping[str, int]) -> None:
    """Put outputs that PyTorch has in one memory into one: who writes to one of them changes the others."""
    places = [place.at(symbols) for place in group]
    size = max(offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
               for shape, strides, offset in places)
    base = torch.empty(size, dtype=results[group[0].number].dtype)
    for place, (shape, strides, offset) in zip(group, places, strict=True):
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)  # elements that are repeated
        view = base.as_strided(shape, strides, offset)
        view[once].copy_(results[place.number][once])
        results[place.number] = view
