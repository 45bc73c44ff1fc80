"""Interface of the backend's own kernels: text, the words it is launched with, and its grid.

A `DeviceKernel` is made from a step (`select.py`). It is data: equal ones have equal code.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.driver.tensor_map import TensorMap
from morpho.base.dims import Size
from morpho.base.machine import Isa
from morpho.program.kernel import Kernel

ISA = Isa("nvptx", "nvptx64", 0, "sm_90a", "", frozenset())  # one lane: a thread is scalar code
SCRATCH_BYTES = 256 << 20  # of all threads of a launch together, about


def known(size: Size) -> int:
    """A number among those of a launch: it is known then, or traced (`driver/regions/traced.py`), and never a `Dim`. It
    stays as it is, since `int()` of a traced one would be for that one size alone.

    >>> known(3)
    3
    """
    return cast(int, size)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of a step at a call: rows, columns, and the kernel's own; bytes of scratch that a thread needs."""

    rows: int
    columns: int
    values: tuple[int, ...]
    scratch_bytes: int = 0
    multiprocessors: int = 132


@dataclass(frozen=True, slots=True)
class Launch:
    """A grid, and the header's words that depend on it: pieces of a row, columns of a piece, scratch of a thread."""

    geometry: Geometry
    pieces: int = 1
    grain: int = 0
    scratch_stride: int = 0
    extra: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Of all threads."""
        return self.scratch_stride * self.geometry.blocks * self.geometry.threads


class DeviceKernel(Protocol):
    """A kernel for a grid."""

    def text(self) -> str:
        """LLVM text with one entry called `kernel_main`."""
        ...

    def launch(self, sizes: Sizes) -> Launch:
        """The grid for these sizes."""
        ...

    def kernel(self) -> Kernel:
        """The kernel of the program that it runs."""
        ...

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """Operands, by position, whose address must be a multiple of so many bytes."""
        ...

    def unaligned(self) -> DeviceKernel:
        """The same for any address."""
        ...

    def maps(self, values: tuple[int, ...]) -> tuple[TensorMap, ...]:
        """Descriptors of its operands for the copy engine, for these numbers."""
        ...


class WithoutMaps:
    """Kernels that load by their own instructions."""

    def maps(self, values: tuple[int, ...]) -> tuple[TensorMap, ...]:
        """None."""
        return ()


class OwnKernel(Kernel, WithoutMaps):
    """A kernel of a program that only this backend has: it is its own device kernel, and any address will do."""

    def device_kernel(self, step: Any) -> Self:
        return self

    def alignments(self) -> tuple[tuple[int, int], ...]:
        """None."""
        return ()

    def unaligned(self) -> Self:
        return self

    def kernel(self) -> Kernel:
        return self

    @abstractmethod
    def launch(self, sizes: Sizes) -> Launch:
        ...

    @abstractmethod
    def text(self) -> str:
        ...
