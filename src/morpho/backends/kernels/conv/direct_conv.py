"""Direct convolution: micro-kernels read the pixels of a line of the image in place, without packing windows.

The left operand of an implicit GEMM repeats every pixel once per position of the window. Neighbours in a line of the
result are neighbours in the image, too, so a register tile of them needs one address and one offset per position. For
each block of channels the lines of a work item are copied once, zero-padded; the columns of a strided convolution are
split into `phases`, so that neighbours have unit stride. A line is divided into equal tiles, and the panels of weights
are as wide as suits the number of channels: 64 are two panels of 32, not one of 48 and part of one. ResNet-50's 3 x 3
layers went from 1.55, 1.14, 1.27 and 1.37 ms to 0.81, 0.80, 0.86 and 0.91 (notes/convolution.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from morpho.backends.code.emit import CACHE_LINE
from morpho.backends.kernels.conv.implicit_gemm import ImplicitGemmConv, ImplicitGemmKernel, Windows, matrices
from morpho.backends.kernels.gemm.gemm import GEMM, GemmKernel
from morpho.backends.kernels.gemm.matmul import Matrix, loop_scratch, product_sizes, rounded
from morpho.backends.kernels.gemm.tiling import ITEMS_PER_THREAD, Register, Tiling, depth_of_block
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, LoopCall, LoopKernel
from morpho.base.dims import Shape, Size, product, upper
from morpho.base.dtypes import DType, float32, float64
from morpho.base.machine import Isa
from morpho.base.target import Target
from morpho.ir.views import CHANNELS_LAST
from morpho.program.view import View

DIRECT_CONV = GEMM.extended("groups images a_group a_channel a_row a_column out_columns tall_columns kernel_rows "
                            "kernel_columns row_step column_step row_dilation column_dilation rows_before "
                            "columns_before image_rows image_columns phases line plane places_at transposed_at "
                            "transposed_pitch")
TALLEST = {"wide": {2: 14, 3: 8, 1: 14}, "plain": {2: 12, 3: 8, 1: 12}, "few": {2: 6, 3: 4, 1: 8}}  # by vectors
LEAST_COLUMNS = 4  # pixels of a line of the result: shorter ones have too few independent sums
MOST_COLUMNS = 1024  # pixels of a line of the result: an item has whole lines
MOST_REACH = 32  # rows or columns of the image from the first place in a window to the last one
MOST_STEP = 4  # stride of the convolution
MOST_PIXELS, MOST_CHANNELS = 400, 768  # of a work item; 200 or 800 pixels were no faster (notes/convolution.md)
TRANSPOSED_CHANNELS = 16  # channels whose sums are transposed at a time
MOST_COPIED = 1 << 18  # elements of the copied lines of a block of channels
TILE = {"wide": 1, "plain": 2, "few": 2}  # FMAs that a value of k of a register tile costs beside its own
MOST_DEPTH = 288  # values of k per block, whose lines are read again for every panel; 63 to 576 were no faster
MOST_LINE = 128  # pixels into which the columns of a pointwise product are divided
COPY_LINE, COPY_PIXEL = 40, 0.5  # cost of copying a line and a pixel, in vector FMAs
LEAST_DEPTH = 128  # values of k that pay for the transpose of a pointwise product's sums (notes/convolution.md)
MOST_APART = 256  # bytes between pixels that are read in place: further apart they share few sets of the cache
MOST_FLAT = 12  # pixels of a tile of packed lines: LLVM spills the sums of 14 x 2 vectors there


@dataclass(frozen=True)
class DirectConvKernel(ImplicitGemmKernel):
    """As `ImplicitGemmKernel`; see `DIRECT_CONV`. Tiles of `heights` pixels x `vectors`; `near`: columns that are read
    one after another lie side by side; `flat`: so do lines, and nothing is around them. `apart`: how far neighbouring
    pixels lie from each other in images that are read where they are, 0 where their lines are copied."""

    heights: tuple[int, ...] = (4,)
    vectors: int = 2
    near: bool = True
    flat: bool = False
    apart: int = 0
    last: bool = False  # whether what follows has channels as its columns, as the sums do


def direct_register(dtype: DType, isa: Isa, line: int, channels: int, flat: bool = False) -> Register:
    """The tile with the least work for a line, and at most two heights that divide it evenly.

    >>> from morpho.base.machine import ISAS
    >>> [direct_register(float32, ISAS["avx512"], *sizes) for sizes in ((56, 64), (33, 48))]
    [Register(heights=(14,), vectors=2, lanes=16, item=4), Register(heights=(7, 6), vectors=3, lanes=16, item=4)]
    """
    lanes = max(1, isa.vector_bits // 8 // dtype.itemsize)
    _, vectors, tallest = _least_work(lanes, isa, line, channels, flat)
    tiles = -(-line // tallest)
    height = -(-line // tiles)
    return Register((height,) if line % tiles == 0 else (height, height - 1), vectors, lanes, dtype.itemsize)


def _least_work(lanes: int, isa: Isa, line: int, channels: int, flat: bool) -> tuple[int, int, int]:
    """The work of a line, filled up to whole panels, with what its tiles cost besides; the vectors and the most pixels
    of a tile for which it is least."""
    kind = "wide" if isa.vector_bits >= 512 else "few" if isa.architecture == "x86_64" else "plain"
    found = []
    for vectors, most in TALLEST[kind].items():
        tallest = min(most, MOST_FLAT) if flat else most
        panels, tiles = -(-channels // (vectors * lanes)), -(-line // tallest)
        found.append((panels * (line * vectors + tiles * TILE[kind]), vectors, tallest))
    return min(found)


def line_length(pixels: int, channels: int, isa: Isa) -> int:
    """How long the lines of an image are best, where it does not matter: 49 pixels are one line, not seven.

    >>> from morpho.base.machine import ISAS
    >>> [line_length(pixels, 256, ISAS["avx512"]) for pixels in (49, 196, 3136, 401)]
    [49, 98, 56, 0]
    """
    lanes = max(1, isa.vector_bits // 32)
    lengths = [length for length in range(LEAST_COLUMNS, MOST_LINE + 1) if pixels % length == 0]
    return min(lengths, key=lambda line: _least_work(lanes, isa, line, channels, True)[0] / line, default=0)


def is_direct(shape: Shape, x: View, weight: View, windows: Windows, isa: Isa) -> bool:
    """Whether windows are read in place: floats on vectors, known sizes, a block of k that holds a channel, and lines
    and windows short enough for copies of little size."""
    sizes = (*shape[1:], *x.shape[1:], *weight.shape)
    if x.dtype not in (float32, float64) or isa.vector_bits == 0:
        return False
    if not all(isinstance(size, int) and size > 0 for size in sizes) or upper(shape[3]) < LEAST_COLUMNS:
        return False
    reach = [upper((weight.shape[2 + d] - 1) * windows.dilations[d]) for d in (0, 1)]
    return (upper(weight.shape[2] * weight.shape[3]) <= MOST_DEPTH // 2 and max(reach) <= MOST_REACH
            and max(windows.steps) <= MOST_STEP and upper(shape[3]) <= MOST_COLUMNS)


def thinned(shape: Shape, x: View, weight: View, windows: Windows) -> tuple[View, Windows]:
    """Images without the rows and columns that no window looks at: those of kernels of one element."""
    sizes, strides, steps = list(x.shape), list(x.strides), list(windows.steps)
    for d in (0, 1):
        if weight.shape[2 + d] == 1 and windows.before[d] == 0 and (shape[2 + d] - 1) * steps[d] < sizes[2 + d]:
            sizes[2 + d], strides[2 + d], steps[d] = shape[2 + d], strides[2 + d] * steps[d], 1
    return replace(x, shape=tuple(sizes), strides=tuple(strides)), replace(windows, steps=(steps[0], steps[1]))


def pixels_apart(shape: Shape, x: View, kernel_shape: Sequence[int], windows: Windows) -> int:
    """The distance of neighbouring pixels, where windows are read from the images as they are: channels last, and
    nothing around the images. Copying single elements out of such images took a sixth of the time (notes/)."""
    apart = x.strides[3] * windows.steps[1]
    last = [(shape[2 + d] - 1) * windows.steps[d] + (kernel_shape[d] - 1) * windows.dilations[d] for d in (0, 1)]
    sizes = (*x.shape[2:], *x.strides[1:], *last)
    if not all(isinstance(size, int) for size in sizes) or windows.before != (0, 0):
        return 0
    inside = all(upper(last[d]) < upper(x.shape[2 + d]) for d in (0, 1))
    close = x.strides[1] == 1 and upper(apart) > 1 and upper(apart) * x.dtype.itemsize <= MOST_APART
    return upper(apart) if inside and close else 0


class DirectConv(ImplicitGemmConv):
    """A convolution being lowered whose windows are read in place."""

    record = DIRECT_CONV
    out_columns: int

    def __init__(self, shape: Shape, x: View, weight: View, windows: Windows, target: Target,
                 last: bool = False) -> None:
        self.last = last and windows.groups == 1
        x, windows = thinned(shape, x, weight, windows)
        self.dtype, self.windows, self.image, self.target = x.dtype, windows, x, target
        self.swapped = False
        self.rows, self.out_columns = upper(shape[2]), upper(shape[3])
        self.kernel_shape: tuple[int, ...] = tuple(upper(size) for size in weight.shape[2:])
        self.channels = upper(weight.shape[1])
        self.window = self.kernel_shape[0] * self.kernel_shape[1]
        self.k, self.n, self.m = self.channels * self.window, upper(shape[1]) // windows.groups, self.rows * shape[3]
        self.batch = shape[0] * windows.groups
        self.near = x.strides[3] == 1 and windows.steps[1] == 1
        self.flat = (self.near and self.window == 1 and windows.steps[0] == 1 and windows.before == (0, 0)
                     and x.shape[2:] == shape[2:] and x.strides[2] == shape[3])
        self.apart = pixels_apart(shape, x, self.kernel_shape, windows)
        self.register = direct_register(x.dtype, target.isa, self.out_columns, self.n, self.flat)
        self.a, self.b = matrices(x, weight, windows.groups)
        # A line of the copy: per phase its columns, of which neighbouring windows share all but one.
        step, reach = windows.steps[1], (self.kernel_shape[1] - 1) * upper(windows.dilations[1])
        self.phases = 1 if reach == 0 else step
        self.line = self.out_columns + reach // step
        self.tiling = self.choose()
        self.steps = self.tiling.stride if self.last else self.transposed_pitch, 1
        self.tile = self.seen(tuple(shape[axis] for axis in CHANNELS_LAST), 1) if self.last else self.seen(shape, 2)

    # -- tiles ---------------------------------------------------------------------------------------------------------
    def lines_read(self, lines: int) -> int:
        """Lines of the image that so many lines of the result need."""
        return (lines - 1) * self.windows.steps[0] + (self.kernel_shape[0] - 1) * upper(self.windows.dilations[0]) + 1

    def copied(self, lines: int) -> int:
        """Elements of a channel in the copy for so many lines of the result."""
        return self.lines_read(lines) * self.line * self.phases

    def choose(self) -> Tiling:
        """Items of whole lines that keep all threads busy for the same time, the largest of those."""
        threads, width, panels = self.threads, self.register.width, self.panels
        batch = max(1, upper(self.batch))
        wanted = threads * ITEMS_PER_THREAD if threads > 1 else 1
        # Blocks of whole channels: one table of places serves all of them.
        depth = min(MOST_DEPTH, depth_of_block(self.register, self.target.l1_bytes))
        fit = max(1, min(depth // self.window, MOST_COPIED // self.copied(1)))
        channels = -(-self.channels // -(-self.channels // fit))
        most = max(1, min(self.rows, MOST_PIXELS // self.out_columns))
        heights = [lines for lines in range(1, most + 1) if lines == 1 or self.copied(lines) * channels <= MOST_COPIED]
        most_channels = MOST_CHANNELS * MOST_PIXELS // max(MOST_PIXELS, self.out_columns)
        least_parts = min(panels, -(-panels * width // most_channels))
        widths = sorted({-(-panels // count) for count in range(least_parts, panels + 1)})

        def time(choice: tuple[int, int]) -> tuple[bool, float, int]:
            lines, across = choice
            items = -(-self.rows // lines) * -(-panels // across) * batch
            # A weight comes from the second or third cache once for all pixels, and takes as long as some of them.
            sums = (lines * self.out_columns + self.register.lanes) * across * width * self.window
            copying = 0 if self.apart else (self.lines_read(lines) * self.phases * COPY_LINE
                                            + self.copied(lines) * COPY_PIXEL)
            return items < wanted, -(-items // threads) * (sums + copying * self.register.lanes), items

        lines, across = min(((lines, across) for lines in heights for across in widths), key=time)
        return Tiling(lines * self.out_columns, across, channels * self.window, -(-self.rows // lines),
                      -(-panels // across), self.spread(across * width, 256))

    def spread(self, pitch: int, nbytes: int) -> int:
        """A line of the cache more, where rows that far apart would all fall into a few sets of the cache."""
        size = self.dtype.itemsize
        return pitch + CACHE_LINE // size if pitch * size % nbytes == 0 else pitch

    @property
    def plane(self) -> int:
        """Elements of a channel's lines in the copy."""
        return self.copied(self.tiling.tile_rows // self.out_columns)

    @property
    def transposed_pitch(self) -> int:
        """Between channels of a transposed tile: whole vectors, and never what makes rows and columns look like one
        axis."""
        lanes = self.register.lanes
        pitch = self.spread(-(-self.tiling.tile_rows // lanes) * lanes, 1024)
        return pitch + lanes if pitch == self.m else pitch

    # -- numbers -------------------------------------------------------------------------------------------------------
    def kernel(self) -> GemmKernel:
        return DirectConvKernel(self.dtype, heights=self.register.heights, vectors=self.register.vectors,
                                near=self.near, flat=self.flat, apart=self.apart, last=self.last)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the lines of a tile at one block of k."""
        if self.apart:
            return 0
        return rounded((self.tiling.depth // self.window * self.plane + TREE_LANES) * self.dtype.itemsize)

    def places(self, epilogue: LoopKernel) -> tuple[int, int, int, int, int]:
        """Where sums, transposed tile, epilogue scratch and the table of places begin, and the bytes of all."""
        size, t, lanes = self.dtype.itemsize, self.tiling, self.register.lanes
        sums_at = self.kept_bytes
        transposed_at = sums_at + rounded((t.tile_rows + lanes) * t.stride * size)
        scratch_at = transposed_at + rounded(max(TRANSPOSED_CHANNELS, lanes) * self.transposed_pitch * size)
        places_at = scratch_at + loop_scratch(epilogue, upper(self.m))
        return sums_at, transposed_at, scratch_at, places_at, places_at + rounded(8 * t.depth)

    def scratch(self, epilogue: LoopKernel) -> tuple[int, int, int]:
        sums_at, _, scratch_at, _, total = self.places(epilogue)
        return sums_at, scratch_at, total

    def numbers(self, epilogue: LoopCall) -> dict[str, Size | Sequence[Size]]:
        height = self.register.heights[0]
        tall = self.out_columns - -(-self.out_columns // height) * (height - 1)  # tiles; others are one pixel lower
        _, transposed_at, _, places_at, _ = self.places(epilogue.kernel)
        return super(ImplicitGemmConv, self).numbers(epilogue) | self.window_numbers() | {
            "images": 1, "a_group": self.channels * self.image.strides[1], "tall_columns": tall * height,
            "phases": self.phases, "line": self.line, "plane": self.plane, "places_at": places_at,
            "transposed_at": transposed_at, "transposed_pitch": self.transposed_pitch}


class PointwiseConv(DirectConv):
    """A constant matrix times one whose columns lie side by side, as a convolution by kernels of one element: the
    constant is packed once, and the other one never."""

    sides_change = False

    def __init__(self, shape: Shape, k: int, a: Matrix, b: Matrix, target: Target) -> None:
        m, n = upper(shape[-2]), upper(shape[-1])
        line = line_length(n, m, target.isa)
        batch = product(shape[:-2])
        images = View(b.view.slot, b.view.offset, (batch, k, n // line, line), (b.batch, b.rows, line, 1),
                       b.view.dtype)
        kernels = View(a.view.slot, a.view.offset, (m, k, 1, 1), (a.rows, a.columns, 1, 1), a.view.dtype)
        super().__init__((batch, m, n // line, line), images, kernels, Windows((0, 0), (1, 1), (1, 1), 1), target)
        self.tile = self.seen(shape, 1)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """As the user wrote them: the pixels of the convolution are the columns."""
        return product_sizes(self.batch, self.n, self.k, self.m)


def is_pointwise(dtype: DType, shape: Shape, k: Size, a: Matrix, b: Matrix, isa: Isa) -> bool:
    """Whether a product with a constant left operand is one of these."""
    sizes = (*shape[-2:], k)
    if dtype not in (float32, float64) or isa.vector_bits == 0 or b.columns != 1:
        return False
    if a.batch != 0 or a.counts is not None:
        return False
    return (all(isinstance(size, int) and size > 1 for size in sizes) and upper(k) >= LEAST_DEPTH
            and line_length(upper(shape[-1]), upper(shape[-2]), isa) > 0)
