"""Kernels of products with activations in 8 bits: rows to records, and records times panels of weights."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.program.kernel import Kernel

ROW = Record("blocks row_stride")
PRODUCT = Record("rows blocks n row_bytes result_stride")


@dataclass(frozen=True)
class RoundRowsKernel(Kernel):
    """Rows of float32 as records of 40 bytes; called over rows. Elements of a row lie side by side."""

    flops = 4


@dataclass(frozen=True)
class RoundedKernel(Kernel):
    """Records times panels of layout `kind`; called over panels, each for all rows."""

    kind: str

    flops = 2
