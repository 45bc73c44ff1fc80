"""From a convolution to its step as an implicit product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from morpho.backends.cuda.gemm.conv import MmaConv, SimtConv, Windows
from morpho.backends.cuda.gemm.lower import MANY_TILES, tile_of
from morpho.backends.cuda.gemm.spec import BATCH_AXES, PRODUCT, STAGES
from morpho.backends.cuda.layout import CHUNK
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.lowering import Lowering, operations
from morpho.base.dims import product
from morpho.base.dtypes import DType, bfloat16, float16
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.program.kernel import Kernel
from morpho.program.program import Step
from morpho.program.view import View, channels_last, whole

FEWEST = 8  # kernels of a group from which on they are a product
MOST = (1 << 31) - 1


@dataclass(frozen=True)
class ConvKernel(Kernel):
    """Kernels times windows; see `PRODUCT` for its numbers, and `conv.py`."""

    dtype: DType
    tile: tuple[int, int, int, int]
    way: str
    windows: Windows

    role = "gemm"
    flops = 2

    def device_kernel(self, step: Step) -> MmaConv | SimtConv:
        small = (32, 32, 2, 2) if self.way == "mma" else self.tile
        simple = SimtConv(self, self.dtype, self.dtype, "k", "n", small, len(PRODUCT), self.windows)
        if self.way == "simt":
            return simple
        return MmaConv(self, self.dtype, self.dtype, "k", "n", self.tile, STAGES, len(PRODUCT), simple,
                       windows=self.windows)


def lower_conv(low: Lowering, node: Node) -> None:
    """A convolution as the user wrote it."""
    target = low.new_slot(node.shape, node.dtype)
    convolve(low, node, node.shape, node.attributes, target)
    low.views[node.serial] = [target]


def lower_followed_conv(low: Lowering, node: Node) -> None:
    """A convolution and the group that follows it, a step each."""
    inputs = [low.view(child) for child in node.inputs[2:]]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    apart = low.new_slot(node["shape"], node["dtype"])
    convolve(low, node, node["shape"], dict(node["windows"]), apart)
    seen = channels_last(apart) if node["last"] else whole(apart.slot, node["space"], apart.dtype)
    places = [*inputs[:node["product"]], seen, *inputs[node["product"]:]]
    low.step(lower_body(node, places, targets), node, joined(operations(node)))
    low.views[node.serial] = targets


def is_product(node: Node) -> bool:
    """Whether a node is a convolution whose sizes are known, and whose groups have kernels enough for a tile."""
    shape, how = node.shape, node.attributes
    if node.op.name != "conv":
        shape, how = node["shape"], dict(node["windows"] or ())
    if not how:
        return False
    x, weight = node.inputs[:2]
    known = (*shape, *x.shape, *weight.shape, *how["before"])
    if not all(isinstance(n, int) for n in known) or 0 in (*shape, *x.shape, *weight.shape):
        return False
    return x.dtype is weight.dtype and x.dtype.is_float and shape[1] // how["groups"] >= FEWEST and max(
        product(x.shape), product(shape)) <= MOST


def convolve(low: Lowering, node: Node, shape: tuple[Any, ...], how: Mapping[str, Any], target: View) -> None:
    """The step of a convolution into contiguous memory."""
    x, weight = (low.view(child) for child in node.inputs[:2])
    x = x if x.is_contiguous and not x.borders else low.copied(x, node)
    images, channels, *size = (int(n) for n in x.shape)
    kernels, _, *lengths = (int(n) for n in weight.shape)
    groups, pixels = int(how["groups"]), int(shape[2] * shape[3])
    m, n, k = kernels // groups, images * pixels, (channels // groups) * lengths[0] * lengths[1]
    half = x.dtype in (bfloat16, float16)
    weight, row = kernel_rows(low, node, weight, kernels, k, half)

    def pair(values: Any) -> tuple[int, int]:
        return int(values[0]), int(values[1])

    windows = Windows(pair(size), pair(shape[2:]), pair(lengths), pair(how["before"]), pair(how["steps"]),
                      pair(how["dilations"]), channels * size[0] * size[1], kernels * pixels)
    one = [1] * (BATCH_AXES - 1)
    values = PRODUCT.values(m=m, n=n, k=k, a_m=row, a_k=1, b_k=1, b_n=1, c_m=pixels, c_n=1, batches=[*one, groups],
                            a_batch=[0, 0, 0, m * row], b_batch=[0, 0, 0, channels // groups * size[0] * size[1]],
                            c_batch=[0, 0, 0, m * pixels])
    kernel = ConvKernel(x.dtype, _half_tile(groups, m, n) if half else tile_of(groups, m, n),
                        "mma" if half else "simt", windows)
    low.add(Step(kernel, (weight, x, target), (2,), values, 1, m * n * k, "conv", node.origin,
                 operations=2 * groups * m * n * k,
                 choice="implicit product on " + ("tensor cores (mma)" if half else "arithmetic units")))


def kernel_rows(low: Lowering, node: Node, weight: View, kernels: int, k: int, half: bool) -> tuple[View, int]:
    """Kernels as rows that lie side by side; those of half floats begin on 16 bytes, with zeros behind them."""
    if not half or k % CHUNK == 0:
        return (weight if weight.is_contiguous and not weight.borders else low.copied(weight, node)), k
    row = -(-k // CHUNK) * CHUNK
    flat = weight if weight.is_contiguous and not weight.borders else low.copied(weight, node)
    room = low.new_slot((kernels, row), weight.dtype)
    low.copy(0, room, node)
    low.copy(View(flat.slot, flat.offset, (kernels, k), (k, 1), flat.dtype),
             View(room.slot, 0, (kernels, k), (row, 1), room.dtype), node)
    return room, row


def _half_tile(groups: int, m: int, n: int) -> tuple[int, int, int, int]:
    """Rows and columns of a block and of a warp: large ones where there are enough of them, and rows to fill them."""
    for tile in ((128, 128, 64, 32), (64, 128, 32, 32)):
        if m > tile[0] // 2 and groups * -(-m // tile[0]) * -(-n // tile[1]) >= MANY_TILES:
            return tile
    return 64, 64, 32, 32
