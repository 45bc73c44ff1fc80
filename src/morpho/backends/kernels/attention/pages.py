"""New keys and values put into pages, in place where the old pages are not wanted any more."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

BASE, NEW, PLACES, TARGET = range(4)  # the operands, in the order of their views


@dataclass(frozen=True)
class PageWriteKernel(Kernel):
    """Called over the heads: each writes its lines of all sequences. Where the target is not the memory of the base,
    that is copied first; an item of work touches the lines of its head only."""

    dtype: DType

    role = "scatter"

    @property
    def record(self) -> Record:
        """Sizes; strides of pages, heads and positions (elements of a line lie side by side) of the pool; strides of
        the new lines along all four axes, and of the places."""
        return Record("pages page depth batch count pool[3] new[4] places[2]")
