"""Implicit GEMM: convolution as a product of [pixels x (channel, row, column of the window)] by the weights.

A is never materialised (no im2col): the address of an element is that of its pixel plus that of its position in the
window, so a tile needs two short tables, and rows are packed from the images themselves. The tile is [pixels x
channels], memory wants [channels x pixels]: the epilogue is called with channels as rows and pixels as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from morpho.backends.kernels.conv.kernel_pack import KernelMatmul, kernel_strides
from morpho.backends.kernels.gemm.gemm import GEMM, OUTER, GemmKernel
from morpho.backends.kernels.gemm.matmul import Matrix
from morpho.backends.kernels.gemm.tiling import choose_tiling, register_tile
from morpho.backends.kernels.loops.loop_spec import LoopCall, LoopKernel
from morpho.base.dims import Shape, Size
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DEFAULT, DispatchThresholds
from morpho.program.view import View

WINDOW_GEMM = GEMM.extended("groups a_group a_channel a_row a_column out_columns kernel_rows kernel_columns row_step "
                            "column_step row_dilation column_dilation rows_before columns_before image_rows "
                            "image_columns pixels images pixels_at places_at")
ENTRY_WORDS = 3  # of the tables, per pixel and per position in the window: offset, row and column


@dataclass(frozen=True)
class ImplicitGemmKernel(GemmKernel):
    """C[image, channel, pixel] = epilogue(sum over the window of A * B), with B packed; see `WINDOW_GEMM`."""

    left: str = "windows"
    tiles_of_result = False


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows lie on images: the attributes of a `conv`."""

    before: tuple[Size, Size]
    steps: tuple[int, int]
    dilations: tuple[Size, Size]
    groups: int


def matrices(x: View, weight: View, groups: int) -> tuple[Matrix, Matrix]:
    """Images, whose elements are found by their windows, and weights as [place in the window, channel] of a group."""
    strides = kernel_strides(weight, groups)
    return Matrix(x, x.strides[0], 0, 0), Matrix(weight, strides[0] if groups > 1 else 0, strides[2], strides[1])


class ImplicitGemmConv(KernelMatmul):
    """A convolution being lowered; its steps are those of every product."""

    record = WINDOW_GEMM
    last = False  # whether what follows has channels as its columns

    def __init__(self, shape: Shape, x: View, weight: View, windows: Windows, target: Target,
                 thresholds: DispatchThresholds = DEFAULT) -> None:
        self.dtype, self.windows, self.image, self.target = x.dtype, windows, x, target
        self.thresholds = thresholds
        self.register = register_tile(x.dtype, target.isa)
        self.swapped = False
        self.kernel_shape, self.out_columns = weight.shape[2:], shape[3]
        self.k = weight.shape[1] * weight.shape[2] * weight.shape[3]
        # Pixels of all images are rows of one product; an unknown number of images are products of their own, so that
        # there are as many items as there is work.
        self.images = shape[0] if isinstance(shape[0], int) else 1
        self.pixels = shape[2] * shape[3]
        self.batch = windows.groups if isinstance(shape[0], int) else shape[0] * windows.groups
        self.m, self.n = self.images * self.pixels, shape[1] // windows.groups
        self.a, self.b = matrices(x, weight, windows.groups)
        self.tiling = choose_tiling(self.m, self.n, self.k, self.batch, self.register, target, False,
                                    thresholds.single_k_block_rows, thresholds.choice)
        self.steps = 1, self.tiling.stride
        self.tile = self.seen(shape, 2)

    @property
    def different(self) -> tuple[Size, ...]:
        """One right operand for each group, of however many images, also of none."""
        return (*[1] * OUTER, self.windows.groups)

    def kernel(self) -> GemmKernel:
        return ImplicitGemmKernel(self.dtype)

    def tables(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        """Where the tables of pixels and of places in the window begin, and the bytes of all scratch."""
        pixels_at = super().scratch(epilogue)[2]
        places_at = pixels_at + 8 * ENTRY_WORDS * self.tiling.tile_rows
        return pixels_at, places_at, places_at + 8 * ENTRY_WORDS * self.tiling.depth

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, scratch_at, _ = super().scratch(epilogue)
        return sums_at, scratch_at, self.tables(epilogue)[2]

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        pixels_at, places_at, _ = self.tables(epilogue.kernel)
        return super().numbers(epilogue) | self.window_numbers() | {
            "pixels": self.pixels, "images": self.images, "pixels_at": pixels_at, "places_at": places_at}

    def window_numbers(self) -> dict[str, Size]:
        """Where windows lie on images."""
        w, strides = self.windows, self.image.strides
        channels = self.image.shape[1] // w.groups
        return {"groups": w.groups, "a_group": channels * strides[1], "a_channel": strides[1], "a_row": strides[2],
                "a_column": strides[3], "out_columns": self.out_columns, "kernel_rows": self.kernel_shape[0],
                "kernel_columns": self.kernel_shape[1], "row_step": w.steps[0], "column_step": w.steps[1],
                "row_dilation": w.dilations[0], "column_dilation": w.dilations[1], "rows_before": w.before[0],
                "columns_before": w.before[1], "image_rows": self.image.shape[2], "image_columns": self.image.shape[3]}
