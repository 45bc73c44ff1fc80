"""A product as data: its numbers by name, and the tiles of the kernels that compute it."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.cuda.gemm.epilogue import Epilogue
from morpho.backends.cuda.gemm.half.few_rows import FewRowsGemm
from morpho.backends.cuda.gemm.half.mma import MmaGemm
from morpho.backends.cuda.gemm.half.wgmma import WgmmaGemm
from morpho.backends.cuda.gemm.simt import SimtGemm
from morpho.backends.cuda.gemm.tf32 import Tf32Gemm
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel
from morpho.program.program import Step

BATCH_AXES = 4
SMALL = (32, 32, 2, 2)
STAGES = 3


@dataclass(frozen=True)
class ProductKernel(Kernel):
    """C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n]. Called with A, B, C; see `PRODUCT`.

    `left` and `right` say which axis of an operand lies side by side: "k", "m" or "n", or "" for neither.
    """

    dtype: DType  # of the operands
    result: DType
    left: str
    right: str
    tile: tuple[int, int, int, int]  # rows and columns of a block, and of a thread; "few": rows, columns, k, 1: one row
    way: str = "simt"
    wide: bool = False  # whether rows of the result are whole chunks of 16 bytes
    epilogue: Epilogue | None = None  # computed on the sums; its operands stand in place of C
    still: bool = False  # whether no kernel of the program writes B
    handed: bool = False  # whether other warpgroups write the sums than those that multiply

    role = "gemm"
    flops = 2

    def device_kernel(self, step: Step) -> SimtGemm | MmaGemm | WgmmaGemm | FewRowsGemm:
        if self.way == "tf32":
            return Tf32Gemm(self, self.dtype, self.result, self.left, self.right, self.tile, len(PRODUCT))
        simple = SimtGemm(self, self.dtype, self.result, self.left, self.right,
                          self.tile if self.way == "simt" else SMALL, len(PRODUCT))
        if self.way == "simt":
            return simple
        if self.way == "few":
            return FewRowsGemm(self, self.dtype, self.result, self.right, *self.tile[:3], len(step.values),
                               len(step.views), self.epilogue, self.still, self.tile[3] == 1)
        if self.way == "wgmma":
            return WgmmaGemm(self, self.dtype, self.result, self.left, self.right, self.tile[:2], self.wide,
                             len(step.values), len(step.views), self.epilogue, self.handed)
        return MmaGemm(self, self.dtype, self.result, self.left, self.right, self.tile, STAGES, len(step.values),
                       simple, len(step.views), self.epilogue)


PRODUCT = Record(f"m n k a_m a_k b_k b_n c_m c_n batches[{BATCH_AXES}] a_batch[{BATCH_AXES}] b_batch[{BATCH_AXES}] "
                 f"c_batch[{BATCH_AXES}]")
