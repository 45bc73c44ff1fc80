"""From where on one way of computing a product is faster than another, as data; the runtime measures it.

>>> DEFAULT.takes_direct(1, 4096, turned=False), DEFAULT.takes_direct(64, 4096, turned=False)
(True, False)
>>> DEFAULT.fast_algorithm(4096, 4096, 4096)
'auto'
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

from morpho.cost.contraction import RATES, ContractionRates

KERNELS = 3  # one more whenever the kernels that race are others: what was measured before is measured anew
MOST_DIRECT_ROWS = 64
MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Crossovers:
    """Of the machine profile: sizes at which the choice between two ways changes. The defaults are those of a machine
    that was not measured. The first four choose among kernels with the same bits; the next two are asked under `fast`
    only, and 0 means that the way never won."""

    direct_bytes: tuple[int, ...] = (MOST,) * 8  # by rows, 1 first: largest right operand read unpacked
    turned_bytes: tuple[int, ...] = (MOST,) * 4  # the same for a transposed one
    one_block_rows: int = 32  # up to so many rows a product runs over k in one block
    shared_points: int = 1 << 17  # multiply-adds from which a product is divided among threads
    blas_size: int = 0  # least of m, n and k from which NumPy's BLAS was faster
    strassen_size: int = 0  # least of m, n and k from which Strassen's method was faster than both
    rates: ContractionRates = RATES  # of contractions, for the order of einsum

    def takes_direct(self, rows: int, nbytes: int, turned: bool) -> bool:
        """Whether so many rows times a right operand of so many bytes are multiplied without packing it."""
        limits = self.turned_bytes if turned else self.direct_bytes
        return 0 < rows <= len(limits) and 0 < nbytes <= limits[rows - 1]

    def fast_algorithm(self, m: int, k: int, n: int, blas: bool = True) -> str:
        """What `auto` means under `fast` for floats of these sizes: `strassen`, `blas` or `auto`."""
        least = min(m, k, n)
        if 0 < self.strassen_size <= least:
            return "strassen"
        return "blas" if blas and 0 < self.blas_size <= least else "auto"

    def row(self) -> dict[str, Any]:
        """As it is written to disk."""
        return asdict(self)


DEFAULT = Crossovers()


@lru_cache(maxsize=8)
def usual(vector_bits: int) -> Crossovers:
    """Those of a machine that was not measured: wider vectors do more before a second thread has come.

    >>> usual(512).shared_points // usual(128).shared_points
    4
    """
    return replace(DEFAULT, shared_points=DEFAULT.shared_points * max(1, vector_bits // 128))


LIMITS = ("direct_bytes", "turned_bytes")
COUNTS = ("one_block_rows", "shared_points", "blas_size", "strassen_size")


def from_row(row: Any) -> Crossovers | None:
    """What was written, every number within its bounds; None where anything is odd.

    >>> from_row(DEFAULT.row()) == DEFAULT, from_row({**DEFAULT.row(), "blas_size": -1}) is None
    (True, True)
    """
    if not isinstance(row, dict) or row.keys() != {field.name for field in fields(Crossovers)}:
        return None
    limits, counts, rates = [row[name] for name in LIMITS], [row[name] for name in COUNTS], row["rates"]
    if any(not isinstance(one, list | tuple) or len(one) > MOST_DIRECT_ROWS for one in limits):
        return None
    if any(type(number) is not int or not 0 <= number <= MOST for number in (*limits[0], *limits[1], *counts)):
        return None
    if not isinstance(rates, dict):
        return None
    if rates.keys() != {field.name for field in fields(ContractionRates)}:
        return None
    if any(type(figure) is not float or not 0 < figure < 1e30 for figure in rates.values()):
        return None
    one_block_rows, shared_points, blas_size, strassen_size = counts
    return Crossovers(tuple(limits[0]), tuple(limits[1]), one_block_rows, shared_points, blas_size, strassen_size,
                      ContractionRates(**rates))
