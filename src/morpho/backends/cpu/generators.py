"""Who writes the LLVM text of a kernel: one table from the type of a kernel, by name, to the module of its generator.

A kernel is data. Neither it nor its generator is loaded by this file: code that comes from disk needs neither. A new
kind of kernel is a frozen dataclass that follows `program.kernel.Kernel`, a module with a function
`generate(kernel, isa, name) -> str`, and a row here.

>>> from morpho.backends.cpu.gemm.packing.pack import PackKernel
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
    "LoopKernel": "morpho.backends.cpu.loops.generate",
    "TransposeKernel": "morpho.backends.cpu.loops.transpose",
    "ScanKernel": "morpho.backends.cpu.loops.sequential.scan_code",
    "RegisterLoop": "morpho.backends.cpu.loops.sequential.register_loop_code",
    "LaneLoop": "morpho.backends.cpu.loops.sequential.lane_loop_code",
    "ScatterKernel": "morpho.backends.cpu.loops.sequential.scatter_code",
    "ScatterLoop": "morpho.backends.cpu.loops.sequential.scatter_range_code",
    "SearchKernel": "morpho.backends.cpu.loops.sequential.search_code",
    "RadixSortKernel": "morpho.backends.cpu.loops.sorting.radix_code",
    "MergeSortKernel": "morpho.backends.cpu.loops.sorting.merge_code",
    "GemmKernel": "morpho.backends.cpu.gemm.gemm_code",
    "PackKernel": "morpho.backends.cpu.gemm.packing.pack_code",
    "PrologueGemmKernel": "morpho.backends.cpu.gemm.prologue_code",
    "SymmetricGemmKernel": "morpho.backends.cpu.gemm.symmetric_code",
    "UnpackedGemmKernel": "morpho.backends.cpu.gemm.unpacked_gemm_code",
    "GemvKernel": "morpho.backends.cpu.gemm.gemv_code",
    "AmxGemmKernel": "morpho.backends.cpu.gemm.amx.amx_code",
    "AmxPackKernel": "morpho.backends.cpu.gemm.amx.amx_code",
    "Int8GemmKernel": "morpho.backends.cpu.quantised.int8_code",
    "Int8PackKernel": "morpho.backends.cpu.quantised.int8_code",
    "QuantisedGemmKernel": "morpho.backends.cpu.quantised.quantised_code",
    "QuantisedPackKernel": "morpho.backends.cpu.quantised.quantised_pack",
    "RoundRowsKernel": "morpho.backends.cpu.quantised.rounded_code",
    "RoundedKernel": "morpho.backends.cpu.quantised.rounded_code",
    "ImplicitGemmKernel": "morpho.backends.cpu.conv.implicit_gemm_code",
    "KernelPackKernel": "morpho.backends.cpu.conv.kernel_pack_code",
    "DirectConvKernel": "morpho.backends.cpu.conv.direct_conv_code",
    "WeightGradientKernel": "morpho.backends.cpu.conv.weight_gradient_code",
    "RowFftKernel": "morpho.backends.cpu.fft.row_code",
    "ColumnFftKernel": "morpho.backends.cpu.fft.column_code",
    "AttentionKernel": "morpho.backends.cpu.attention.forward",
    "PagedAttentionKernel": "morpho.backends.cpu.attention.forward",
    "PageWriteKernel": "morpho.backends.cpu.attention.page_code",
    "LapackKernel": "morpho.backends.cpu.linalg.lapack.generate",
    "MatrixKernel": "morpho.backends.cpu.linalg.generate",
    "SpmmKernel": "morpho.backends.cpu.sparse.spmm_code",
    "TransposedSpmmKernel": "morpho.backends.cpu.sparse.transposed_code",
    "SddmmKernel": "morpho.backends.cpu.sparse.reduce_code",
    "RowReduceKernel": "morpho.backends.cpu.sparse.reduce_code",
    "SpgemmKernel": "morpho.backends.cpu.sparse.spgemm_code",
    "TriangularKernel": "morpho.backends.cpu.sparse.triangular_code",
    "IncompleteKernel": "morpho.backends.cpu.sparse.triangular_code",
    "TileKernel": "morpho.backends.cpu.tiles.code",
    "AttentionBackwardKernel": "morpho.backends.cpu.attention.backward_code",
}


def generate(kernel: Kernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel: one function of that name, in the instructions of `isa`."""
    text: str = importlib.import_module(GENERATORS[type(kernel).__name__]).generate(kernel, isa, name)
    return text
