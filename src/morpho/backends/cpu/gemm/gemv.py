"""The product of a few rows with a matrix that is not packed: packing would move it three times to use it once.

Every output is one chain, k ascending, as in `gemm.py`. Tiles of columns are shared among threads. There are three
ways to read the right operand:

- `columns`: its columns lie side by side and it is small. A chunk of columns is summed in registers over all of k.
- `streamed`: the same, but larger. It is read in its own order, a block of its rows at a time, and the sums are kept in
  the result, whose tile stays in the first-level cache.
- `rows`: k lies side by side, as in a transposed weight. Four columns by four values of k are turned in registers.

A loop kernel may follow (`follows`): it is called on every tile as soon as that is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.cpu.codegen.kernel_abi import Record
from morpho.backends.cpu.gemm.gemm import EPILOGUE, OUTER
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

GEMV = Record("m n k a_batch a_m a_k b_batch b_k b_n "
              f"batches[{OUTER}] a_outer[{OUTER}] b_outer[{OUTER}] tiles tile")
FOLLOWED_GEMV = GEMV.extended(f"unused[{EPILOGUE - len(GEMV)}] epilogue")  # at the position that all kernels have it
SMALL_BYTES = 32 << 10  # a right operand that stays in the first-level cache
TILE_BYTES = 3 << 10  # of a row of a tile: the block of rows that is read and the next one fit the first-level cache


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

    role = "gemv"
    flops = 2
