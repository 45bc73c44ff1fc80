"""Generators of the LLVM text of kernels: one table from the type of a kernel, by name, to the module of its generator.

A kernel is data. Neither it nor its generator is loaded by this file: code that comes from disk needs neither. A new
kind of kernel is a frozen dataclass that follows `program.kernel.Kernel`, a module with a function
`generate(kernel, isa, name) -> str`, and a row here.

>>> from morpho.backends.kernels.gemm.packing.pack import PackKernel
>>> from morpho.base.dtypes import float32
>>> from morpho.base.machine import ISAS
>>> generate(PackKernel(float32, "rows", 4), ISAS["avx2"], "pack").splitlines()[0][:20]
'define i32 @pack(ptr'
"""

from __future__ import annotations

import importlib

from morpho.base.machine import Isa
from morpho.program.kernel import Kernel

GENERATORS: dict[str, str] = {
    "LoopKernel": "morpho.backends.kernels.loops.generate",
    "TransposeKernel": "morpho.backends.kernels.loops.transpose",
    "ScanKernel": "morpho.backends.kernels.loops.sequential.scan_code",
    "RegisterLoop": "morpho.backends.kernels.loops.sequential.register_loop_code",
    "LaneLoop": "morpho.backends.kernels.loops.sequential.lane_loop_code",
    "ScatterKernel": "morpho.backends.kernels.loops.sequential.scatter_code",
    "ScatterLoop": "morpho.backends.kernels.loops.sequential.scatter_range_code",
    "SearchKernel": "morpho.backends.kernels.loops.sequential.search_code",
    "RadixSortKernel": "morpho.backends.kernels.loops.sorting.radix_code",
    "MergeSortKernel": "morpho.backends.kernels.loops.sorting.merge_code",
    "GemmKernel": "morpho.backends.kernels.gemm.gemm_code",
    "PackKernel": "morpho.backends.kernels.gemm.packing.pack_code",
    "PrologueGemmKernel": "morpho.backends.kernels.gemm.prologue_code",
    "SymmetricGemmKernel": "morpho.backends.kernels.gemm.symmetric_code",
    "UnpackedGemmKernel": "morpho.backends.kernels.gemm.unpacked_gemm_code",
    "GemvKernel": "morpho.backends.kernels.gemm.gemv_code",
    "AmxGemmKernel": "morpho.backends.kernels.gemm.amx.amx_code",
    "AmxPackKernel": "morpho.backends.kernels.gemm.amx.amx_code",
    "Int8GemmKernel": "morpho.backends.kernels.quantised.int8_code",
    "Int8PackKernel": "morpho.backends.kernels.quantised.int8_code",
    "QuantisedGemmKernel": "morpho.backends.kernels.quantised.quantised_code",
    "QuantisedPackKernel": "morpho.backends.kernels.quantised.quantised_pack",
    "RoundRowsKernel": "morpho.backends.kernels.quantised.rounded_code",
    "RoundedKernel": "morpho.backends.kernels.quantised.rounded_code",
    "ImplicitGemmKernel": "morpho.backends.kernels.conv.implicit_gemm_code",
    "KernelPackKernel": "morpho.backends.kernels.conv.kernel_pack_code",
    "DirectConvKernel": "morpho.backends.kernels.conv.direct_conv_code",
    "WeightGradientKernel": "morpho.backends.kernels.conv.weight_gradient_code",
    "RowFftKernel": "morpho.backends.kernels.fft.row_code",
    "ColumnFftKernel": "morpho.backends.kernels.fft.column_code",
    "AttentionKernel": "morpho.backends.kernels.attention.forward",
    "PagedAttentionKernel": "morpho.backends.kernels.attention.forward",
    "PageWriteKernel": "morpho.backends.kernels.attention.page_code",
    "LapackKernel": "morpho.backends.kernels.linalg.lapack.generate",
    "MatrixKernel": "morpho.backends.kernels.linalg.generate",
    "SpmmKernel": "morpho.backends.kernels.sparse.spmm_code",
    "TransposedSpmmKernel": "morpho.backends.kernels.sparse.transposed_code",
    "SddmmKernel": "morpho.backends.kernels.sparse.reduce_code",
    "RowReduceKernel": "morpho.backends.kernels.sparse.reduce_code",
    "SpgemmKernel": "morpho.backends.kernels.sparse.spgemm_code",
    "TriangularKernel": "morpho.backends.kernels.sparse.triangular_code",
    "IncompleteKernel": "morpho.backends.kernels.sparse.triangular_code",
    "TileKernel": "morpho.backends.kernels.tiles.cpu",
    "AttentionBackwardKernel": "morpho.backends.kernels.attention.backward_code",
}


def generate(kernel: Kernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel: one function of that name, in the instructions of `isa`."""
    text: str = importlib.import_module(GENERATORS[type(kernel).__name__]).generate(kernel, isa, name)
    return text
