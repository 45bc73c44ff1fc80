"""The gradient of a convolution's weights: a convolution whose window is a whole image and whose result is few pixels.

The cotangents are its kernels (docs/numerics.md: every element is one FMA chain over images, rows and columns of the
cotangent). As a product it has a row for every pixel of every image (here: a channel and a place in the user's kernel),
a column for every kernel and as many values of k as the window has places. Rows of neighbouring pixels read the same
lines of the image a few elements further on, so nothing is packed but the cotangents: lines are copied once with their
borders, and a register tile has an address for each of its rows and walks along the lines. As an implicit GEMM, which
looks for the border at every element, ResNet-18's took 9 to 24 ms each instead of 2 (notes/convolution.md).

Sums are written as [kernel][image][pixel], the way weights lie, not as the convolution's result [image][kernel][pixel]:
whoever asks for the result sees it through a view.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import CACHE_LINE
from morpho.backends.code.kernel_abi import Record
from morpho.backends.kernels.conv.direct_conv import direct_register
from morpho.backends.kernels.conv.implicit_gemm import Windows, matrices
from morpho.backends.kernels.conv.kernel_pack import KernelMatmul
from morpho.backends.kernels.gemm.matmul import rounded
from morpho.backends.kernels.gemm.tiling import ITEMS_PER_THREAD
from morpho.backends.kernels.loops.loop_spec import TREE_LANES
from morpho.base.dims import Shape, Size, upper
from morpho.base.dtypes import DType, float32, float64
from morpho.base.machine import Isa
from morpho.base.target import Target
from morpho.program.kernel import Kernel
from morpho.program.view import View

WEIGHT_GRADIENT = Record(
    "images n k pixels out_columns window_columns blocks_per_channel a_image a_channel a_row row_step column_step "
    "row_dilation rows_before columns_before image_rows image_columns tile_images tile_panels panel_tiles group lines "
    "tall_rows line copied_rows plane stride transposed_pitch sums_at transposed_at places_at")
MOST_PIXELS = 64  # of the result, for every image
LEAST_COLUMNS = 4  # of the window: shorter lines are mostly overhead
MOST_DEPTH = 224  # values of k per block, unless a line has more: a panel of the cotangent stays in the L1 cache
SHORT_LINE = 8  # columns of a window whose line is written out; LLVM spills the sums of 14
MOST_GROUP = 12  # rows of a register tile
SUMS_BYTES = 3 << 16  # of an item: they stay in the L2 cache with the copied lines
TRANSPOSED = 16  # kernels whose sums are transposed at a time
MOST_DILATION = 4  # between the places of a window: the user's stride


@dataclass(frozen=True)
class WeightGradientKernel(Kernel):
    """C[kernel, image, pixel] = sum over the window of A * B, with B packed; see `WEIGHT_GRADIENT`. Register tiles of
    `heights` rows x `vectors`; neighbours in the window lie `apart` elements from each other in the image. `columns` of
    a window with short lines are written out, 0 for others."""

    dtype: DType
    heights: tuple[int, ...]
    vectors: int
    apart: int
    columns: int = 0

    role = "gemm"
    flops = 2
    near = True  # columns of the image lie side by side


def is_weight_gradient(shape: Shape, x: View, weight: View, windows: Windows, isa: Isa) -> bool:
    """Whether a convolution is one of these: floats on vectors, known sizes, a window much larger than the result."""
    sizes = (*shape, *x.shape, *weight.shape, *x.strides, *windows.before, *windows.dilations)
    if x.dtype not in (float32, float64) or isa.vector_bits == 0 or windows.groups != 1:
        return False
    if not all(isinstance(size, int) for size in sizes) or min(upper(size) for size in (*shape, *weight.shape)) < 1:
        return False
    pixels, window = upper(shape[2] * shape[3]), upper(weight.shape[2] * weight.shape[3])
    return (pixels <= MOST_PIXELS and window > 2 * pixels and upper(weight.shape[3]) >= LEAST_COLUMNS
            and x.strides[3] == 1 and upper(windows.dilations[1]) <= MOST_DILATION)


def largest_divisor(number: int, most: int) -> int:
    """The largest number up to `most` that divides another one.

    >>> largest_divisor(56, 16), largest_divisor(13, 4)
    (14, 1)
    """
    return max(count for count in range(1, max(1, min(number, most)) + 1) if number % count == 0)


class WeightGradientConv(KernelMatmul):
    """A convolution being lowered whose window is as large as an image."""

    last = False

    def __init__(self, shape: Shape, x: View, weight: View, windows: Windows, target: Target) -> None:
        self.dtype, self.windows, self.image, self.target = x.dtype, windows, x, target
        self.swapped = False
        self.images, self.n = upper(shape[0]), upper(shape[1])
        self.out = upper(shape[2]), upper(shape[3])
        self.pixels = self.out[0] * self.out[1]
        self.channels = upper(weight.shape[1])
        self.window = upper(weight.shape[2]), upper(weight.shape[3])
        self.dilations = upper(windows.dilations[0]), upper(windows.dilations[1])
        self.batch, self.m = 1, self.images * self.pixels
        self.k = self.channels * self.window[0] * self.window[1]
        self.a, self.b = matrices(x, weight, 1)
        # Images whose pixels share register tiles.
        self.group = largest_divisor(self.images, MOST_GROUP // self.pixels) if self.pixels < MOST_GROUP else 1
        rows = self.group * self.pixels
        self.register = direct_register(x.dtype, target.isa, rows, self.n, flat=True)
        self.lines = largest_divisor(self.window[0], max(1, MOST_DEPTH // self.window[1]))
        self.line = (self.out[1] - 1) * windows.steps[1] + (self.window[1] - 1) * self.dilations[1] + 1
        self.copied_rows = ((self.out[0] - 1) * windows.steps[0] + (self.lines - 1) * self.dilations[0] + 1)
        self.tile_images, self.tile_panels = self.choose()
        self.stride = self.tile_panels * self.register.width
        self.stride += CACHE_LINE // self.dtype.itemsize if self.stride * self.dtype.itemsize % 256 == 0 else 0

    def choose(self) -> tuple[int, int]:
        """Images and panels of an item: as many as its sums leave room for, and enough items for all threads."""
        width, size = self.register.width, self.dtype.itemsize
        wanted = self.threads * ITEMS_PER_THREAD if self.threads > 1 else 1
        panels = -(-self.panels // -(-self.panels * width // 256))
        groups = self.images // self.group
        each = self.group * self.pixels * panels * width * size
        across = -(-self.panels // panels)
        tiles = max(1, -(-groups * each // SUMS_BYTES), -(-wanted // across))
        return -(-groups // min(tiles, groups)) * self.group, panels

    def kernel(self) -> WeightGradientKernel:  # type: ignore[override]
        return WeightGradientKernel(self.dtype, self.register.heights, self.register.vectors, self.dilations[1],
                                    self.window[1] if self.window[1] <= SHORT_LINE else 0)

    @property
    def items(self) -> Size:
        return -(-self.images // self.tile_images) * -(-self.panels // self.tile_panels)

    @property
    def work_per_item(self) -> Size:
        return self.k * self.tile_images * self.pixels * self.tile_panels * self.register.width

    @property
    def places(self) -> tuple[int, int, int, int]:
        """Where sums, transposed sums and the table of rows begin behind the copied lines, and the bytes of all."""
        size, rows, lanes = self.dtype.itemsize, self.tile_images * self.pixels, self.register.lanes
        sums_at = rounded((self.tile_images * self.copied_rows * self.line + TREE_LANES) * size)
        transposed_at = sums_at + rounded((rows + lanes) * self.stride * size)
        places_at = transposed_at + rounded(TRANSPOSED * self.transposed_pitch * size)
        return sums_at, transposed_at, places_at, places_at + rounded(8 * rows)

    @property
    def transposed_pitch(self) -> int:
        lanes = self.register.lanes
        return -(-self.tile_images * self.pixels // lanes) * lanes + lanes

    def record_values(self) -> tuple[Size, ...]:
        """The kernel's numbers."""
        w, strides, (sums_at, transposed_at, places_at, _) = self.windows, self.image.strides, self.places
        rows, height = self.group * self.pixels, self.register.heights[0]
        tall = rows - -(-rows // height) * (height - 1)  # tiles; others are one row lower
        return WEIGHT_GRADIENT.values(
            images=self.images, n=self.n, k=self.k, pixels=self.pixels, out_columns=self.out[1],
            window_columns=self.window[1], blocks_per_channel=self.window[0] // self.lines, a_image=strides[0],
            a_channel=strides[1], a_row=strides[2], row_step=w.steps[0], column_step=w.steps[1],
            row_dilation=self.dilations[0], rows_before=w.before[0], columns_before=w.before[1],
            image_rows=self.image.shape[2], image_columns=self.image.shape[3], tile_images=self.tile_images,
            tile_panels=self.tile_panels, panel_tiles=-(-self.panels // self.tile_panels), group=self.group,
            lines=self.lines, tall_rows=tall * height, line=self.line, copied_rows=self.copied_rows,
            plane=self.copied_rows * self.line, stride=self.stride, transposed_pitch=self.transposed_pitch,
            sums_at=sums_at, transposed_at=transposed_at, places_at=places_at)
