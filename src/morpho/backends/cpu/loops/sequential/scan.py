"""Running sums and products: one chain per row, index ascending. Half floats run in float32 and round each element."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dtypes import DType


@dataclass(frozen=True)
class ScanKernel:
    """`name` is sum or prod. Numbers: outer extents, the length, then strides of input and output (outer, along)."""

    name: str
    dtype: DType
    outer_rank: int

    scratch_bytes_per_column = 0
    scratch_bytes = 0
    flops = 2
