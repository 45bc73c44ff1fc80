"""Running sums, products and extremes: one chain per row, index ascending. Half floats run in float32 and round each
element."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class ScanKernel(Kernel):
    """`name` is sum, prod, max, min or logsumexp. With `lanes` the last outer axis lies side by side in both operands:
    an item is so many of its chains at once, the last item of a line over the end of the one before it. With `together`
    an item is so many rows, whose chains take turns: each waits for its own last step."""

    name: str
    dtype: DType
    outer_rank: int
    lanes: int = 1
    together: int = 1

    role = "scan"
    flops = 2

    @property
    def op_names(self) -> frozenset[str]:
        used = {"max": "maximum", "min": "minimum", "logsumexp": "logaddexp"}
        return frozenset({used[self.name]} if self.name in used else ())

    @property
    def record(self) -> Record:
        """Extents of the outer axes, the length, strides of both operands along the outer axes and along the chain.
        With lanes the last extent counts items, and `chains` the chains of a line; `rows` is the number of rows."""
        along = self.outer_rank + 1
        more = " chains" * (self.lanes > 1) + " rows" * (self.together > 1)
        return Record(f"extents[{self.outer_rank}] length source[{along}] target[{along}]{more}")
