"""The gradient of attention as data: what its two kernels compute, and their numbers by name.

`queries`: dq, a block per tile of queries, over all keys. `keys`: dk and dv, a block per tile of keys, over the queries
of all heads that share them. Scores are computed in both: no two blocks add to the same result, in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.cuda.attention.spec import BATCH_AXES
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

BLOCK = 64  # keys or queries that a block reads at a time
READ = "qkvclsxp"  # q, k, v, cotangent, logarithms, sums, mask, positions
RESULTS = {"queries": "a", "keys": "bd"}  # dq; dk and dv
BACKWARD = Record(" ".join(["queries keys heads group", f"batches[{BATCH_AXES}]",
                            *(f"{name}_batch[{BATCH_AXES}] {name}_head {name}_row" for name in READ + "abd"),
                            "x_column"]))


@dataclass(frozen=True)
class BackwardSpec(Kernel):
    """With p = exp(scale q k^T - logarithm) and ds = p (ct v^T - sum): dq = scale ds k, dk = scale ds^T q, dv = p^T ct.

    Called with q, k, v, ct, logarithms, sums, the mask and the positions it has, then the results of its part.
    """

    part: str
    dtype: DType
    depth: int  # of q and k
    width: int  # of v
    scale: float
    offset: int
    causal: bool
    window: int
    mask: DType | None
    moving: bool
    way: str = "mma"  # by warps, or "wgmma": by warpgroups

    role = "attention"
    flops = 8

    @property
    def operands(self) -> str:
        """Those in memory, by their letters."""
        return ("qkvcls" + ("x" if self.mask is not None else "") + ("p" if self.moving else "")
                + RESULTS[self.part])
