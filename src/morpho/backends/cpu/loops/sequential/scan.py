"""Running sums and products: one chain per row, index ascending. Half floats run in float32 and round each element."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class ScanKernel(Kernel):
    """`name` is sum or prod."""

    name: str
    dtype: DType
    outer_rank: int

    role = "scan"
    flops = 2

    @property
    def record(self) -> Record:
        """Extents of the outer axes, the length, strides of both operands along the outer axes and along the chain."""
        along = self.outer_rank + 1
        return Record(f"extents[{self.outer_rank}] length source[{along}] target[{along}]")
