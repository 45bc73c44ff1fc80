"""The table of ATen operations: name and overload -> the Morpho function that computes it.

Nothing in this folder imports PyTorch: a lowered program runs without it. An entry takes what the ATen operation takes,
with Morpho tensors for tensors and Morpho dtypes for dtypes; devices, layouts and memory formats have become None. What
it returns is cast to the dtype that PyTorch's own shape propagation found, so an entry need not repeat that rule where
a cast at the end is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morpho.base.dtypes import DType


@dataclass(frozen=True)
class Meta:
    """Metadata of a traced PyTorch tensor: sizes (a symbolic one is None), steps and dtype."""

    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size and step is a number."""
        return None not in self.shape and None not in self.strides


@dataclass(frozen=True)
class Context:
    """Input of an entry besides its arguments."""

    results: tuple[Meta | None, ...]  # of its outputs
    operands: tuple[Any, ...]  # its positional arguments with `Meta` for tensors
    key: Any = None  # of random numbers, of this operation alone

    @property
    def dtype(self) -> DType:
        """The dtype of the (first) result."""
        found = self.results[0]
        assert found is not None
        return found.dtype


Refusal = Callable[..., str | None]


@dataclass(frozen=True)
class Entry:
    """One operation: how Morpho computes it, and the calls of it that it leaves to PyTorch."""

    name: str
    run: Callable[..., Any]
    context: bool = False  # whether `run` takes a `Context` first
    random: bool = False  # whether it draws random numbers
    refuse: Refusal | None = None  # arguments (`Meta` for tensors) -> why this call is left to PyTorch


TABLE: dict[str, Entry] = {}


def op(*names: str, context: bool = False, random: bool = False,
       refuse: Refusal | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function for `aten` operations, named with their overloads: `@op("add.Tensor", "add.Scalar")`.

    >>> from morpho.torch.aten.table import TABLE
    >>> TABLE["aten.add.Tensor"].random
    False
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            full = name if name.startswith(("prims.", "math.", "op.")) else f"aten.{name}"
            assert full not in TABLE, full
            TABLE[full] = Entry(full, function, context or random, random, refuse)
        return function

    return enter
