"""From attention over pages, and the writing of pages, to kernels and their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.backends.kernels.attention.attention import UNIT_TILE, PagedAttentionKernel, forward_scratch_bytes
from morpho.backends.kernels.attention.pages import PageWriteKernel
from morpho.backends.lowering.lower_attention import Call, Sizes, add_calls, as_reshaped, strides, tallest_tile
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import product, upper
from morpho.base.target import Target
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View


class PagedSizes(Sizes):
    """The sizes of attention over pages: keys as many as the table has room for."""

    def __init__(self, node: Node) -> None:
        q, k, v, pages = (child.shape for child in node.inputs[:4])
        self.batch = q[:1]
        self.kv_heads, self.group = k[1], q[1] // k[1]
        self.queries, self.keys, self.depth, self.width = q[2], pages[1] * k[2], q[3], v[3]
        self.offset, self.window, self.moving = 0, node["window"] or self.far, True
        self.scale = self.bits(node["scale"])


def paged_call(node: Node, inputs: Sequence[View], results: Sequence[View], target: Target) -> Call:
    """q, k, v, result, logarithms, no mask, offset, pages."""
    sizes = PagedSizes(node)
    q, k, v, pages, offset = inputs
    places = (q, k, v, results[0], results[1], None, offset, pages)
    tallest = tallest_tile(node.dtype, target)
    tile = sizes.tile(target.threads, tallest)
    rows, lines = sizes.pieces(sizes.group * sizes.queries, tile)
    kernel = PagedAttentionKernel(node.dtype, 1, None, True, flops=2 * lines * sizes.line,
                                  scratch_bytes=forward_scratch_bytes(upper(sizes.depth), upper(sizes.width),
                                                                      tallest == UNIT_TILE))
    numbers = {**sizes.numbers(rows, tile), "pages": k.shape[0], "k_page": k.strides[0], "v_page": v.strides[0]}
    for operand, place in zip(kernel.operands, places, strict=True):
        numbers[f"{operand}_strides"] = strides(place, 1, sizes.group, "own")
    for operand, pool in (("k", k), ("v", v)):
        numbers[f"{operand}_strides"] = (0, pool.strides[1], 0, pool.strides[2], pool.strides[3])
    numbers["pages_strides"] = (pages.strides[0], 0, 0, pages.strides[1], 0)
    return Call(kernel, places, (3, 4), kernel.record.values(**numbers), rows, sizes.keys, sizes.operations)


def page_write_call(node: Node, inputs: Sequence[View], target: View) -> Call:
    """The old pool, new lines, places, and the pool that is written, which may be the old one."""
    pool, new, places = inputs
    kernel = PageWriteKernel(node.dtype)
    pages, heads, page, depth = pool.shape
    values = kernel.record.values(pages=pages, page=page, depth=depth, batch=new.shape[0], count=new.shape[2],
                                  pool=target.strides[:3], new=new.strides, places=places.strides)
    work = product((new.shape[0], new.shape[2], depth))
    return Call(kernel, (pool, new, places, target), (3,), values, heads, work, heads * work)


def lower_page_write(low: Lowering, node: Node) -> None:
    """Each line of the old pages that is not written stays: they may be written over."""
    inputs = [low.view(child) for child in node.inputs]
    if not inputs[0].is_contiguous:
        whole = low.new_slot(node.shape, node.dtype)
        low.copy(inputs[0], whole, node)
        inputs[0] = whole
    target = low.new_slot(node.shape, node.dtype)
    call = page_write_call(node, inputs, target)
    alone = inputs[1].shape != target.shape  # the new lines must not be taken for the old ones
    low.add(Step(*call[:-1], node.op.name, node.origin, in_place=alone, operations=call.operations))
    low.views[node.serial] = [target]


def lower_paged(low: Lowering, node: Node) -> None:
    inputs = [low.view(child) for child in node.inputs]
    targets = [as_reshaped(low, node, number) for number in range(len(node.outputs))]
    add_calls(low, node, [paged_call(node, inputs, targets, low.target)], targets)
