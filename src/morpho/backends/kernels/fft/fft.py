"""Kernels of Fourier transforms, as data."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.fft.fft_plan import wide_lanes
from morpho.base.dtypes import DType
from morpho.program.kernel import Kernel

ROWS = Record("scale")  # bits of a float64
COLUMNS = Record("scale columns blocks")


@dataclass(frozen=True)
class RowFftKernel(Kernel):
    """Transforms of rows that lie side by side, lanes along a row. `dtype` is that of the parts.

    `kind` is complex, real (n real numbers to n / 2 + 1 frequencies, n even) or half (back from these). `scaled`: every
    result is multiplied by a number. A length with large primes is a convolution (Bluestein) of length `round`.
    """

    length: int
    dtype: DType
    kind: str
    inverse: bool
    scaled: bool
    round: int = 0

    @property
    def points(self) -> int:
        """The length of the complex transform that it is or is made of."""
        return self.length if self.kind == "complex" else self.length // 2

    @property
    def core(self) -> int:
        """The length of the transforms inside: of that one, or of the convolution that it becomes."""
        return self.round or self.points

    @property
    def flops(self) -> int:
        return 5 * self.core.bit_length() * (4 if self.round else 1)

    @property
    def one_by_one(self) -> bool:
        return self.length >= 1024

    @property
    def scratch_bytes(self) -> int:
        return 4 * (self.core + 2 * wide_lanes(self.dtype)) * self.dtype.itemsize + 64

    @property
    def record(self) -> Record:
        return ROWS


@dataclass(frozen=True)
class ColumnFftKernel(Kernel):
    """Transforms with lanes across several of them: of columns (`across`), or of short rows."""

    length: int
    dtype: DType
    inverse: bool
    scaled: bool
    across: bool
    lanes: int

    @property
    def flops(self) -> int:
        return 5 * self.length.bit_length()

    @property
    def scratch_bytes(self) -> int:
        return 4 * self.length * self.lanes * self.dtype.itemsize + 64

    @property
    def record(self) -> Record:
        return COLUMNS

