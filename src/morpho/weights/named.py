"""Tensors of a file by name, each made when it is first asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from morpho.base.errors import fail
from morpho.weights.errors import NameFault
from morpho.weights.scanner import shortened

Place = TypeVar("Place")  # where a tensor lies
Made = TypeVar("Made")


class NamedTensors(Mapping[str, Made], Generic[Place, Made]):
    """A mapping from names to tensors. What derives from it says how one is made of its place."""

    operation: str  # for errors

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._made: dict[str, Made] = {}

    @abstractmethod
    def _make(self, name: str, place: Place) -> Made:
        """The tensor of this name."""

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            if name not in self._places:
                raise fail(NameFault, self.operation, f"no tensor has the name {shortened(name)}",
                           f"there are {len(self)}, from {shortened(next(iter(self), ''))} on")
            self._made[name] = self._make(name, self._places[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
