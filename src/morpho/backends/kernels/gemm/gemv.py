"""GEMV on an unpacked B: with few rows, packing B would move it three times to use it once.

Every output is one FMA chain, k ascending, as in `gemm.py`. Threads share tiles of columns. B is read in one of three
ways:

- `columns`: unit stride along n, and it fits the L1 cache. A chunk of columns is summed in registers over all of k.
- `streamed`: unit stride along n, larger. B is read in its own order, `STREAMED_ROWS` of its rows at a time with the
  next ones prefetched; partial sums stay in C, whose tile stays in the L1 cache.
- `rows`: unit stride along k, as in a transposed weight. 4 x 4 blocks are transposed in registers.

A loop kernel may follow (`follows`): the epilogue, called on every tile of C as soon as it is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.gemm.gemm import EPILOGUE, OUTER
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

GEMV = Record("m n k a_batch a_m a_k b_batch b_k b_n "
              f"batches[{OUTER}] a_outer[{OUTER}] b_outer[{OUTER}] tiles tile")
FOLLOWED_GEMV = GEMV.extended(f"unused[{EPILOGUE - len(GEMV)}] epilogue")  # at the position that all kernels have it
SMALL_BYTES = 32 << 10  # bytes of a B that stays in the L1 cache
TILE_BYTES = 3 << 10  # bytes of a row of a tile: 8 rows and the 8 prefetched fit L1; 12 kB was slower (notes/gemm.md)


def way_of(right: str, nbytes: int) -> str:
    """How a right operand is read: `right` is which of its axes lies side by side, `rows` or `columns`."""
    return "streamed" if right == "columns" and nbytes > SMALL_BYTES else right


def column_tile(columns: int, itemsize: int, threads: int) -> int:
    """How many columns a thread takes at a time, so that every thread has as many tiles.

    >>> column_tile(768, 4, 1), column_tile(768, 4, 2), column_tile(3072, 4, 2)
    (768, 384, 768)
    """
    tiles = max(1, -(-columns * itemsize // TILE_BYTES))
    tiles = -(-tiles // threads) * threads
    return max(16, -(-columns // (16 * tiles)) * 16)  # whole lines of the cache


@dataclass(frozen=True)
class GemvKernel(Kernel):
    """C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], C contiguous; called over the tiles of all batches.

    `way` is `columns`, `streamed` or `rows`. Numbers as in `GEMV`. With `follows` they are those of `FOLLOWED_GEMV`:
    the address of a loop kernel, whose own numbers come after it and whose operands after C.
    """

    dtype: DType
    way: str
    follows: bool = False
    rows_at: int = 0  # the number of an operand, where there is one: how many rows of B are not zeros, as those of A

    role = "gemv"
    flops = 2
