"""Packing the kernels of a convolution as they lie: turned around, as the gradient of an input needs them, too.

The places of a kernel are one axis of its matrix, (channel, row, column). A kernel that is turned around and whose two
channel axes are exchanged has them at two strides, one of which only every second place is read at three. To copy
ResNet-18's largest kernels first, nine elements at a time, took 8 ms each (notes/convolution.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.kernels.gemm.matmul import Matmul
from morpho.backends.kernels.gemm.packing.pack import PACK, PackKernel
from morpho.base.dims import Size, product
from morpho.base.shapes import reshape_strides
from morpho.program.view import View

# Rows and columns of a kernel, and elements from one channel or row to the next; columns are `b_k` apart.
KERNEL_PACK = PACK.extended("kernel_rows kernel_columns b_channel b_row")


@dataclass(frozen=True)
class KernelPackKernel(PackKernel):
    """As `PackKernel`, with k = (channel, row, column) at three strides; see `KERNEL_PACK`."""


def kernel_strides(place: View, groups: int) -> tuple[Size, Size, Size]:
    """Strides of weights along group, channel of the result, and place in the window: from one to the next in a row.

    >>> from morpho.base.dtypes import float32
    >>> kernel_strides(View(0, 0, (8, 4, 3, 3), (36, 9, 3, 1), float32), 2)
    (144, 36, 1)
    >>> kernel_strides(View(0, 8, (4, 8, 3, 3), (9, 36, -3, -1), float32), 1)  # turned around
    (36, 9, -1)
    """
    along = _one_stride(place)
    return (place.shape[0] // groups * place.strides[0], place.strides[0],
            place.strides[3] if along is None else along)


def _one_stride(place: View) -> Size | None:
    """How far neighbouring places of a kernel are apart, where channels and rows go on at the same stride."""
    found = reshape_strides(place.shape[1:], place.strides[1:], (product(place.shape[1:]),))
    return None if found is None else found[0]


class KernelMatmul(Matmul):
    """A product whose right operand are the kernels of a convolution."""

    @property
    def by_places(self) -> bool:
        """Whether channels, rows and columns of a kernel have strides of their own."""
        return _one_stride(self.b.view) is None

    def pack_kernel(self) -> PackKernel:
        if not self.by_places:
            return super().pack_kernel()
        return KernelPackKernel(self.dtype, "general", self.register.width)

    def pack_values(self) -> tuple[Size, ...]:
        place = self.b.view
        return (*super().pack_values(), *(place.shape[2:] + place.strides[1:3] if self.by_places else ()))
