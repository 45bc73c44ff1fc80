"""From products of quantised weights and of bytes to their steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from morpho.backends.cuda.gemm import lower
from morpho.backends.cuda.gemm.epilogue import Epilogue
from morpho.backends.cuda.gemm.half.few_rows import MOST_ROWS, NARROW
from morpho.backends.cuda.gemm.quantised.bytes import CHUNK, BytesMma
from morpho.backends.cuda.gemm.quantised.few_rows import QuantisedFew
from morpho.backends.cuda.gemm.quantised.mma import FEW as FEW_WARPS
from morpho.backends.cuda.gemm.quantised.mma import QuantisedMma
from morpho.backends.cuda.gemm.quantised.rounded import RoundedDots, RoundRows
from morpho.backends.cuda.gemm.quantised.simt import FEW as FEW_THREADS
from morpho.backends.cuda.gemm.quantised.simt import QuantisedSimt
from morpho.backends.cuda.gemm.spec import BATCH_AXES, PRODUCT, STAGES
from morpho.backends.lowering.lower_rounded import rounded_call
from morpho.backends.lowering.lowering import Lowering, flat, operations
from morpho.base.dims import Size, divide, product
from morpho.base.dtypes import DType, float32, int8, int16, int32
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.ops.neural.quantised import BLOCK, LAYOUTS
from morpho.program.kernel import Kernel
from morpho.program.program import Step
from morpho.program.view import View


@dataclass(frozen=True)
class QuantisedProduct(Kernel):
    """C[m, n] = sum over k of A[m, k] * W[n, k], W in blocks of layout `kind`. Numbers as of any product."""

    dtype: DType
    kind: str
    tile: tuple[int, int, int, int]
    way: str
    epilogue: Epilogue | None = None
    still: bool = False  # whether no kernel of the program writes the weights

    role = "gemm"
    flops = 2

    def device_kernel(self, step: Step) -> QuantisedMma | QuantisedSimt | QuantisedFew:
        if self.way == "few":
            rows, columns, k, single = self.tile
            return QuantisedFew(self, self.dtype, self.dtype, "k", rows, columns, k, len(step.values), len(step.views),
                                self.epilogue, self.still, bool(single), self.kind)
        if self.way == "simt":
            return QuantisedSimt(self, self.dtype, self.dtype, "k", "k", self.tile, len(PRODUCT), self.kind)
        return QuantisedMma(self, self.dtype, self.dtype, "k", "k", self.tile, STAGES, len(step.values), None,
                            len(step.views), self.epilogue, self.kind)


@dataclass(frozen=True)
class BytesProduct(Kernel):
    """C[b, m, n] of int8 and uint8; k and all strides are counted in pairs of bytes."""

    signs: str
    tile: tuple[int, int, int, int]

    role = "gemm"
    flops = 2

    def device_kernel(self, step: Step) -> BytesMma:
        return BytesMma(self, int16, int32, "k", "k", self.tile, STAGES, len(PRODUCT), None, signs=self.signs)


def are_chunks(node: Node) -> bool:
    """Whether a product of bytes, or that of a group, has a k of whole chunks."""
    k = node.inputs[0].shape[-1]
    by_bytes = node.op.name != "gemm" or lower.follows("matmul_int8")(node)
    return by_bytes and isinstance(k, int) and k > 0 and k % CHUNK == 0


# -- quantised weights ---------------------------------------------------------------------------------------------
def multiply_quantised(low: Lowering, node: Node, shape: tuple[Size, ...], target: View,
                       following: lower.Following | None = None) -> bool:
    """All rows times the weights, which are read as they lie."""
    a, b = (low.view(child) for child in node.inputs[:2])
    simt = a.dtype is float32
    if not rows_alike(a) or a.strides[-1] != 1 or (not simt and divide(a.strides[-2], 8) is None):
        a = low.copied(a, node)
    b = b if b.strides[-1] == 1 and not b.borders else low.copied(b, node)
    m, n, k = product(tuple(shape[:-1])), shape[-1], a.shape[-1]
    none = [0] * BATCH_AXES
    values = PRODUCT.values(m=m, n=n, k=k, a_m=a.strides[-2], a_k=1, b_k=0, b_n=b.strides[-2],
                            c_m=target.strides[-2], c_n=target.strides[-1], batches=[1] * BATCH_AXES, a_batch=none,
                            b_batch=none, c_batch=none)
    few = isinstance(m, int) and m <= (FEW_THREADS[0] if simt else MOST_ROWS)
    tile = (FEW_THREADS if few else lower.tile_of(1, m, n)) if simt else (
        FEW_WARPS if few else lower.warp_tile(1, m, n))
    kernel = QuantisedProduct(a.dtype, node["kind"], tile, "simt" if simt else "mma")
    if few and not simt and whole_chunks(b, k, node["kind"]):
        kernel = replace(kernel, tile=(8 if int(m) <= 8 else MOST_ROWS, NARROW, int(k), int(m == 1)), way="few",
                         still=low.program.slots[b.slot].kind == "input")
    units = "arithmetic units" if simt else f"tensor cores ({kernel.way})"
    said = f"{units}, {node['kind']} dequantised on the way"
    if following is None:
        low.add(Step(kernel, (a, b, target), (2,), values, 1, m * n * k, "matmul", node.origin,
                     operations=2 * m * n * k, choice=said))
        return True
    if simt or not lower.is_wide(target, values):
        return False
    loop = following.epilogue.loop
    stores = tuple(2 + number for number, access in enumerate(loop.accesses) if access.kind == "store")
    low.add(lower.FollowedStep(replace(kernel, epilogue=following.epilogue), (a, b, *following.places), stores,
                               (*values, *following.values), 1, m * n * k, joined(["matmul", *operations(node)]),
                               node.origin, in_place=True, operations=2 * m * n * k,
                               choice=f"{said}, with what follows"))
    return True


# -- bytes ---------------------------------------------------------------------------------------------------------
def multiply_bytes(low: Lowering, node: Node, shape: tuple[Size, ...], target: View,
                   following: lower.Following | None = None) -> bool:
    """int8 and uint8, both with k side by side: else they are copied first, as they are in memory or turned. Nothing
    follows in the same step."""
    if following is not None:
        return False
    a, b = (low.view(child) for child in node.inputs[:2])
    a = a if in_chunks(a, -1, -2) else low.copied(a, node)
    if not in_chunks(b, -2, -1):
        room = low.new_slot((*b.shape[:-2], b.shape[-1], b.shape[-2]), b.dtype)
        held = replace(room, shape=b.shape, strides=(*room.strides[:-2], room.strides[-1], room.strides[-2]))
        low.copy(b, held, node)
        b = held
    batch = lower.batch_axes(shape[:-2], a, b, target)
    if len(batch) > BATCH_AXES:
        a, b = low.copied(a, node), b
        batch = lower.batch_axes(shape[:-2], a, b, target)
    assert len(batch) <= BATCH_AXES, "a product over more than four batch axes"
    m, n, k = shape[-2], shape[-1], a.shape[-1]
    sizes, a_batch, b_batch, c_batch = ([axis[i] for axis in batch] + [int(i == 0)] * (BATCH_AXES - len(batch))
                                        for i in range(4))
    pairs: Any = [divide(step, 2) for step in (k, a.strides[-2], b.strides[-1], *a_batch, *b_batch)]
    values = PRODUCT.values(m=m, n=n, k=pairs[0], a_m=pairs[1], a_k=1, b_k=1, b_n=pairs[2], c_m=target.strides[-2],
                            c_n=target.strides[-1], batches=sizes, a_batch=pairs[3:3 + BATCH_AXES],
                            b_batch=pairs[3 + BATCH_AXES:], c_batch=c_batch)
    signs = "".join("s" if child.dtype is int8 else "u" for child in node.inputs[:2])
    count = product(tuple(sizes))
    kernel = BytesProduct(signs, lower.warp_tile(count, m, n))
    low.add(Step(kernel, (a, b, target), (2,), values, 1, m * n * k, "matmul", node.origin,
                 operations=2 * count * m * n * k, choice="tensor cores (mma), int8"))
    return True


# -- activations in 8 bits -----------------------------------------------------------------------------------------
def lower_rounded(low: Lowering, node: Node) -> None:
    """Rows to records by a warp a block, and records times panels on tensor cores."""
    inputs = [flat(low, child, unit_rows=number == 0 and node.op.name == "quantise_rows")
              for number, child in enumerate(node.inputs)]
    target = low.new_slot(node.shape, node.dtype)
    call = rounded_call(node, inputs, target)
    kernel: Kernel = RoundRows() if node.op.name == "quantise_rows" else RoundedDots(node["kind"])
    said = "warps, a block each" if node.op.name == "quantise_rows" else "tensor cores (mma), int8"
    low.add(Step(kernel, *call[1:-1], node.op.name, node.origin, operations=call.operations, choice=said))
    low.views[node.serial] = [target]


def rows_alike(place: View) -> bool:
    """Whether all rows of a matrix with batch axes are one step apart."""
    pairs = zip(place.shape[1:-1], place.strides[:-2], place.strides[1:-1], strict=True)
    return not place.borders and all(outer == inner * size for size, outer, inner in pairs)


def whole_chunks(weights: View, k: Size, kind: str) -> bool:
    """Whether the bytes of every output are whole chunks: `cp.async` reads no parts of one."""
    if not isinstance(k, int) or k <= 0:
        return False
    sizes = (weights.strides[-2], weights.offset, k // BLOCK * LAYOUTS[kind].block_bytes)
    return all(divide(size, CHUNK) is not None for size in sizes)


def in_chunks(place: View, along: int, across: int) -> bool:
    """Whether lines along an axis begin on 16 bytes and lie side by side."""
    steps = (*place.strides[:-2], place.strides[across])
    return not place.borders and place.strides[along] == 1 and all(divide(step, CHUNK) is not None for step in steps)
