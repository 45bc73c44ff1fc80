"""Dispatch thresholds of matrix products: the sizes from which another kernel is faster. Data; the runtime measures.

>>> DEFAULT.reads_unpacked(1, 4096, transposed=False), DEFAULT.reads_unpacked(64, 4096, transposed=False)
(True, False)
>>> DEFAULT.fast_algorithm(4096, 4096, 4096)
'auto'
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from morpho.cost.contraction import RATES, ContractionRates
from morpho.cost.tuned_choices import NO_CHOICES, PLAIN, Choice, Choices

# Of products, on 16 cores of an Emerald Rapids (`benchmarks.kernels.many_cores --fewer`):
BYTES_PER_THREAD = 1 << 17  # that come from memory: they are worth one more thread, whatever is computed with them
UNIT_LEAST, UNIT_BYTES = 32, 1 << 19  # matrix units multiply operands of so few bytes in less time than it takes until
# they have come from the core that packed them; in units of what vectors share
UNIT_SHARE = 4  # multiply-adds for one more thread, in those of vectors
KERNELS = 3  # one more whenever the kernels that race are others: what was measured before is measured anew
MOST_UNPACKED_ROWS = 64
GEMV_WAY, MOST_GEMV_ROWS = "gemv on an unpacked B", 16  # a row of the dispatch table, and rows that may choose it
MOST = 1 << 62
STORED_AS = {  # field -> its key in profile.json, which machines measured long ago have
    "unpacked_bytes": "direct_bytes", "unpacked_transposed_bytes": "turned_bytes",
    "single_k_block_rows": "one_block_rows", "parallel_macs": "shared_points"}


@dataclass(frozen=True, slots=True)
class DispatchThresholds:
    """Sizes at which the choice between two kernels changes. The defaults hold on a machine that
    was not measured. The first four choose among kernels with the same bits; the next two are used under `fast` only,
    where 0 means that the algorithm never won."""

    unpacked_bytes: tuple[int, ...] = (MOST,) * 8  # largest B, in bytes, that GEMV reads unpacked: of 1, 2, ... rows
    unpacked_transposed_bytes: tuple[int, ...] = (MOST,) * 4  # the same for a transposed B
    single_k_block_rows: int = 32  # most rows of A for which k is a single block, so that B is one stream
    parallel_macs: int = 1 << 17  # multiply-adds from which threads share a product
    blas_size: int = 0  # least of m, n and k from which NumPy's BLAS was faster
    strassen_size: int = 0  # least of m, n and k from which Strassen's method was faster than both
    rates: ContractionRates = RATES  # of contractions, for the order in which einsum contracts
    choices: Choices = NO_CHOICES  # of single problems, from the tuner, all of the same bits
    choice: Choice = PLAIN  # of the problem that is being lowered

    def least_shared_macs(self, on_matrix_unit: bool, nbytes: int) -> int:
        """Multiply-adds above which a product of known sizes, which moves so many bytes, is divided among threads."""
        return min(self.parallel_macs * (UNIT_LEAST if on_matrix_unit and nbytes <= UNIT_BYTES else 1), MOST)

    def sharers(self, macs: int, nbytes: int, on_matrix_unit: bool) -> int:
        """For how many threads it has work: a thread more for some 7 us, of arithmetic or of memory.

        >>> [defaults_for(512).sharers(n**3, 12 * n * n, False) for n in (64, 128, 192)]
        [1, 4, 13]
        >>> defaults_for(512).sharers(1024**2, 4 * 1024**2, False)  # of one row: memory's time
        32
        """
        if macs <= self.least_shared_macs(on_matrix_unit, nbytes):
            return 1
        each = max(1, self.parallel_macs * (UNIT_SHARE if on_matrix_unit else 1))
        return max(2, macs // each, nbytes // BYTES_PER_THREAD if self.parallel_macs else macs)

    def chosen(self, key: str) -> DispatchThresholds:
        """Those for one problem."""
        found = self.choices.get(key)
        return self if found is self.choice else replace(self, choice=found)

    def reads_unpacked(self, rows: int, nbytes: int, transposed: bool) -> bool:
        """Whether a product of so many rows with a B of so many bytes reads B unpacked (GEMV)."""
        if self.choice.way == GEMV_WAY:
            return 0 < rows <= MOST_GEMV_ROWS and nbytes > 0
        limits = self.unpacked_transposed_bytes if transposed else self.unpacked_bytes
        return 0 < rows <= len(limits) and 0 < nbytes <= limits[rows - 1]

    def fast_algorithm(self, m: int, k: int, n: int, blas: bool = True) -> str:
        """Algorithm of `auto` under `fast` for floats of these sizes: `strassen`, `blas` or `auto`."""
        least = min(m, k, n)
        if 0 < self.strassen_size <= least:
            return "strassen"
        return "blas" if blas and 0 < self.blas_size <= least else "auto"

    def row(self) -> dict[str, Any]:
        """As it is written to disk."""
        return {STORED_AS.get(name, name): value for name, value in asdict(self).items()
                if name not in ("choices", "choice")}


DEFAULT = DispatchThresholds()


@lru_cache(maxsize=8)
def defaults_for(vector_bits: int) -> DispatchThresholds:
    """Thresholds of a machine that was not measured: wider vectors do more before a second thread has come.

    >>> defaults_for(512).parallel_macs // defaults_for(128).parallel_macs
    4
    """
    return replace(DEFAULT, parallel_macs=DEFAULT.parallel_macs * max(1, vector_bits // 128))


LIMITS = ("direct_bytes", "turned_bytes")
COUNTS = ("one_block_rows", "shared_points", "blas_size", "strassen_size")


def from_row(row: Any) -> DispatchThresholds | None:
    """Read stored thresholds, every number within its bounds; None where anything is odd.

    >>> from_row(DEFAULT.row()) == DEFAULT, from_row({**DEFAULT.row(), "blas_size": -1}) is None
    (True, True)
    """
    if not isinstance(row, dict) or row.keys() != {*LIMITS, *COUNTS, "rates"}:
        return None
    limits, counts, rates = [row[name] for name in LIMITS], [row[name] for name in COUNTS], row["rates"]
    if any(not isinstance(one, list | tuple) or len(one) > MOST_UNPACKED_ROWS for one in limits):
        return None
    if any(type(number) is not int or not 0 <= number <= MOST for number in (*limits[0], *limits[1], *counts)):
        return None
    if not isinstance(rates, dict):
        return None
    if rates.keys() != {field.name for field in fields(ContractionRates)}:
        return None
    if any(type(figure) is not float or not 0 < figure < 1e30 for figure in rates.values()):
        return None
    k_block_rows, macs, blas_size, strassen_size = counts
    return DispatchThresholds(tuple(limits[0]), tuple(limits[1]), k_block_rows, macs, blas_size, strassen_size,
                              ContractionRates(**rates))
