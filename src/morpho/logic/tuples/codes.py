"""Values as 64-bit codes: an integer is its own code, a float its bits, a symbol its number in a table.

Tuples of codes pack into one 64-bit key where their ranges allow it, so that sets of tuples are sorted integer arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from morpho.base.errors import DTypeError, fail
from morpho.logic.analysis.check import Type
from morpho.logic.syntax.terms import Value

Codes = NDArray[np.int64]
Columns = tuple[Codes, ...]
PACKED_BITS = 62


class Symbols:
    """Numbers of symbols, in the order in which they came."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []
        self._ranks: Codes = np.empty(0, np.int64)

    def number(self, name: str) -> int:
        """The symbol's number; a new one where it was not known."""
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def ranks(self) -> Codes:
        """The place of every symbol in alphabetical order."""
        if len(self._ranks) != len(self.names):
            order = sorted(range(len(self.names)), key=self.names.__getitem__)
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks


def encode(values: Iterable[Value] | NDArray[Any], kind: Type, symbols: Symbols) -> Codes:
    """A column's codes."""
    if kind.base == "symbol":
        return np.fromiter((symbols.number(str(value)) for value in values), np.int64)
    if kind.base == "int":
        return np.asarray(values if isinstance(values, np.ndarray) else list(values), np.int64)
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64) + 0.0  # no -0.0
    if np.isnan(numbers).any():
        raise fail(DTypeError, "logic", "NaN is no value of a fact")
    return numbers.view(np.int64)


def encode_one(value: Value, kind: Type, symbols: Symbols) -> int:
    """The code of one value."""
    return int(encode([value], kind, symbols)[0])


def decode(codes: Codes, kind: Type, symbols: Symbols) -> list[Value]:
    """Values of codes."""
    if kind.base == "symbol":
        names = symbols.names
        return [names[code] for code in codes.tolist()]
    return numbers_of(codes, kind).tolist()  # type: ignore[no-any-return]


def numbers_of(codes: Codes, kind: Type) -> NDArray[Any]:
    """Codes of numbers as numbers."""
    return codes if kind.base == "int" else np.ascontiguousarray(codes).view(np.float64)


def codes_of(numbers: NDArray[Any], kind: Type) -> Codes:
    """Numbers as codes."""
    if kind.base == "int":
        return numbers.astype(np.int64, copy=False)
    return (numbers.astype(np.float64) + 0.0).view(np.int64)


def comparable(codes: Codes, kind: Type, symbols: Symbols) -> NDArray[Any]:
    """Something whose order is that of the values: numbers, or the alphabet's."""
    return symbols.ranks()[codes] if kind.base == "symbol" else numbers_of(codes, kind)


def packed(*tables: Sequence[Codes]) -> list[Codes]:
    """A key for every row of several tables of the same columns: equal where the rows are, and ordered like them."""
    if not tables[0]:
        return [np.zeros(0, np.int64) for _ in tables]
    keys: list[Codes] | None = None
    bits_used = 0
    for parts in zip(*tables):
        low, bits = _range(parts)
        if bits > PACKED_BITS or bits_used + bits > PACKED_BITS:  # number what occurs, in order
            both = [keys, list(parts)] if keys is not None and bits_used + bits > PACKED_BITS else [list(parts)]
            ranked = [_ranked(each) for each in both]
            if len(ranked) == 2:
                keys, bits_used = ranked[0]
            (column, bits), low = ranked[-1], 0
            parts = tuple(column)
        if keys is None:
            keys, bits_used = [part - low for part in parts], bits
        else:
            keys = [(key << bits) | (part - low) for key, part in zip(keys, parts)]
            bits_used += bits
    assert keys is not None
    return keys


def _range(parts: Sequence[Codes]) -> tuple[int, int]:
    filled = [part for part in parts if len(part)]
    if not filled:
        return 0, 1
    low, high = min(int(part.min()) for part in filled), max(int(part.max()) for part in filled)
    return low, max(1, (high - low).bit_length())


def _ranked(parts: Sequence[Codes]) -> tuple[list[Codes], int]:
    """Columns as ranks among all their values."""
    values, ranks = np.unique(np.concatenate(parts), return_inverse=True)
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(ranks.astype(np.int64), cuts), max(1, len(values).bit_length())
