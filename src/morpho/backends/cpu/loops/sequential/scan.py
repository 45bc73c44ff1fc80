"""Running sums and products: one chain per row, index ascending. Half floats run in float32 and round each element."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel


@dataclass(frozen=True)
class ScanKernel(Kernel):
    """`name` is sum or prod. Numbers: outer extents, the length, then strides of input and output (outer, along)."""

    name: str
    dtype: DType
    outer_rank: int

    role = "scan"
    flops = 2
