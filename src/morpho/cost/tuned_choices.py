"""Choices among kernels of the same bits, one per problem, as the tuner finds them. Data; the lowering follows it.

A problem is named by a text: operation, dtype, sizes in buckets, how operands come, threads and instruction set.

>>> bucket(768), bucket(769), bucket(5)
(768, 1024, 6)
>>> Choices.of({"matmul float32": Choice(tile_rows=64)}).get("matmul float32").said()
'mc 64'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from morpho.base.dims import Size, upper

SHARING = ("", "one", "many")
FUSION = ("", "split")
GEMV_WAYS = ("", "columns", "streamed")
PANELS_AHEAD = ("2", "4")
MOST_TILE = 1 << 16  # rows, columns or values of k of a tile, in files too
WORDS = {"way": "{}", "tile_rows": "mc {}", "tile_columns": "nc {}", "k_block": "kc {}", "height": "mr {}",
         "vectors": "nr {} vectors", "prefetch": "prefetch {}", "threads": "threads {}", "epilogue": "epilogue {}",
         "prologue": "prologue {}", "gemv": "gemv {}"}


@dataclass(frozen=True, slots=True)
class Choice:
    """How one problem is computed; what is empty, zero or None is left to the defaults.

    >>> Choice(height=4, threads="one").said()
    'mr 4, threads one'
    >>> Choice().is_default
    True
    """

    way: str = ""  # a row of the dispatch table
    tile_rows: int = 0  # mc: rows of a work item; of a sparse product rows and elements together
    tile_columns: int = 0  # nc: columns of a work item
    k_block: int = 0  # kc: values of k in a block
    height: int = 0  # mr: rows of the highest register tile
    vectors: int = 0  # nr, in vectors
    prefetch: str = ""  # of the next panel: "on" or "off"; of one further on: how many panels ahead
    threads: str = ""  # "one" or "many"
    epilogue: str = ""  # "split": what follows a product is a kernel of its own
    prologue: str = ""  # "split": what comes before it is
    gemv: str = ""  # how a GEMV reads B: "columns" or "streamed"

    @property
    def is_default(self) -> bool:
        """Whether it says nothing."""
        return not any(getattr(self, name) for name in WORDS)

    def said(self) -> str:
        """For people: `mc 64, threads one`; `default` where it says nothing."""
        words = [text.format(getattr(self, name)) for name, text in WORDS.items() if getattr(self, name)]
        return ", ".join(words) or "default"

    def row(self) -> dict[str, Any]:
        """As it is written to a file: what it says, no more."""
        return {name: getattr(self, name) for name in WORDS if getattr(self, name)}


PLAIN = Choice()
_KINDS = {field.name: type(field.default) for field in fields(Choice)}
_ALLOWED = {"threads": SHARING, "epilogue": FUSION, "prologue": FUSION, "gemv": GEMV_WAYS,
            "prefetch": ("", "on", "off", *PANELS_AHEAD)}


def choice_from_row(row: Any) -> Choice | None:
    """Read a stored choice, every value within its bounds; None where anything is odd.

    >>> choice_from_row({"tile_rows": 64}), choice_from_row({"tile_rows": -1}), choice_from_row({"tile": 1})
    (Choice(way='', tile_rows=64, tile_columns=0, k_block=0, height=0, vectors=0, prefetch='', threads='', \
epilogue='', prologue='', gemv=''), None, None)
    """
    if not isinstance(row, dict) or not row.keys() <= _KINDS.keys():
        return None
    for name, value in row.items():
        if type(value) is not _KINDS[name] or (isinstance(value, int) and not 0 <= value <= MOST_TILE):
            return None
        if value not in _ALLOWED.get(name, (value,)) or len(str(value)) > 80:
            return None
    return Choice(**row)


@dataclass(frozen=True)
class Choices:
    """Choices by problem: a value like any threshold, part of the keys of plans, hashed once."""

    rows: tuple[tuple[str, Choice], ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, Choice]) -> Choices:
        """Choices that differ from the default, in a fixed order."""
        return cls(tuple(sorted((key, choice) for key, choice in table.items() if not choice.is_default)))

    @cached_property
    def _table(self) -> dict[str, Choice]:
        return dict(self.rows)

    @cached_property
    def _hashed(self) -> int:
        return hash(self.rows)

    def __hash__(self) -> int:
        return self._hashed

    def get(self, key: str) -> Choice:
        """The choice for a problem; the default where there is none."""
        return self._table.get(key, PLAIN)

    def table(self) -> dict[str, Choice]:
        """All of them."""
        return dict(self._table)

    def with_choice(self, key: str, choice: Choice) -> Choices:
        """These and one more, or another one."""
        return Choices.of({**self._table, key: choice})


NO_CHOICES = Choices()


def bucket(size: Size) -> int:
    """Sizes that share a choice: up to the next of 1, 2, 3, 4, 6, 8, 12, 16, ...; of a dynamic one its bound.

    >>> [bucket(n) for n in (0, 1, 3, 7, 100, 129)]
    [0, 1, 3, 8, 128, 192]
    """
    number = upper(size)
    if number <= 2:
        return max(number, 0)
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if number <= power * 3 // 4 else power


@dataclass(frozen=True)
class Problem:
    """A tunable step of a program as the lowering met it: its key, and the parts of its alternatives."""

    key: str
    kind: str  # product, conv, attention, sparse or loop
    node: Any  # of the fused graph
    sizes: tuple[int, ...] = ()  # of a product: batch, m, k, n
    ways: tuple[str, ...] = ()  # rows of the dispatch table that can be taken, the default first
    register: tuple[tuple[int, ...], int, int] = ((), 0, 0)  # heights, vectors, lanes of the default; none where fixed
    prefetches: bool = False
    has_epilogue: bool = False
    has_prologue: bool = False
    threads: int = 1
    changes: bool = True  # whether the right operand changes from call to call
