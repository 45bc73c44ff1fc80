"""GEMM: packed operands, micro-kernels on register tiles, and a fused epilogue on every finished tile.

B comes packed (`pack.py`) in panels of `width` columns, k running down each panel. A work item is a tile of rows x
panels of C. Its rows of A are packed by blocks of k, micro-kernels of up to 8 rows x 3 vectors accumulate into a tile
of C in scratch memory, and at the end the epilogue, an ordinary loop kernel whose operand is that tile, writes the
result: bias, activation, residual, conversion or a plain copy. Instead of a plain copy, the micro-kernel stores whole
panels directly (`direct_store`). Every element of C is one FMA chain with k ascending, however blocks of k, tiles and
threads divide the work. Integer sums are exact: they wrap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from morpho.backends.code.kernel_abi import Record
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

OUTER = 3  # batch axes above the last one
# Strides are in elements, *_at are bytes of scratch. `batches` are sizes of batch axes from the last one on, of which
# there is one more above them; `operands` counts those of the epilogue, of which `tile_operand` is the tile itself.
GEMM = Record(f"m n k a_batch a_m a_k b_batch batches[{OUTER}] a_outer[{OUTER}] b_outer[{OUTER}] tile_rows tile_panels "
              "depth row_tiles column_tiles stride room sums_at scratch_at operands tile_operand direct_store epilogue")
PROLOGUE_GEMM = GEMM.extended("prologue before_operands before_left before_numbers before_scratch left_at")
EPILOGUE = GEMM.at("epilogue")  # the address of the epilogue's function; its own numbers follow the record
PROLOGUE = PROLOGUE_GEMM.at("prologue")  # that of the prologue's, in kernels that have one (`prologue.py`)
UNROLL = 4  # values of k per turn of a micro-kernel's loop; 8 were no faster on AVX-512 (notes/gemm.md, 2026-11-16)


@dataclass(frozen=True)
class GemmKernel(Kernel):
    """C[b, m, n] = epilogue(sum over k of A[b, m, k] * B[b, k, n]) with B packed. Called over items; see `GEMM`.

    Buffers: A, packed B, then the epilogue's own, among which the product's is filled in here. `left` is how A lies:
    `rows` (k side by side), `columns` (m side by side) or `general`. Register tiles are as high as occur, since
    others would only take time to compile; all heights where that is not known.
    """

    dtype: DType
    left: str
    heights: tuple[int, ...] = field(default=(), kw_only=True)
    micro: tuple[int, str] | tuple[()] = field(default=(), kw_only=True)  # vectors, prefetch, where chosen

    role = "gemm"
    flops = 2
    tiles_of_result = True  # whether register tiles lie as the result does

    @property
    def stores(self) -> bool:
        """Whether micro-kernels can store to the result."""
        return self.tiles_of_result and self.dtype.compute is self.dtype
