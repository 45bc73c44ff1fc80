"""Packing B: panels of `width` columns, k running down each, the last one filled with zeros.

A step of its own, so that all work items share it and a constant weight is packed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.gemm.gemm import OUTER
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

PACK = Record(f"n k b_batch b_k b_n panels target_batch batches[{OUTER}] b_outer[{OUTER}]")


@dataclass(frozen=True)
class PackKernel(Kernel):
    """B[b, k, n] as [b][panel][k][width]; called over panels. `right` is how B lies: `columns` (n side by side), `rows`
    (k side by side) or `general`. Nothing is converted: half floats stay as they are."""

    dtype: DType
    right: str
    width: int

    role = "pack"
