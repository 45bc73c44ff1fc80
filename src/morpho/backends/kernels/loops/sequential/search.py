"""Binary searches: where each of many values would go into one sorted line."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class SearchKernel(Kernel):
    """target[.., i] = how many of the sorted line are less than value[.., i], or not above it where `right`. NaN comes
    after all numbers.

    With `lanes` values and results lie side by side and one line is searched for all of them: an item is a value, and
    so many are looked for at once. How often the line is halved depends on its length alone.
    """

    dtype: DType
    right: bool
    outer_rank: int
    lanes: int = 1

    role = "scan"
    flops = 32

    @property
    def record(self) -> Record:
        """Extents of the outer axes, the number of values along the last one, the length of a line; strides of the
        operands along all axes. With lanes the length and the stride of the line."""
        if self.lanes > 1:
            return Record("length line")
        along = self.outer_rank + 1
        return Record(f"extents[{self.outer_rank}] count length line[{along}] value[{along}] target[{along}]")
