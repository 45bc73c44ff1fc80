"""From an attention node and the places of its operands to a kernel and its numbers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from morpho.base.dims import Size, product, upper
from morpho.ir.node import Node
from morpho.kernels.attention import AttentionKernel, scratch_bytes
from morpho.kernels.attention_backward import AttentionBackwardKernel
from morpho.kernels.attention_backward import scratch_bytes as backward_scratch_bytes
from morpho.kernels.attention_code import BLOCK
from morpho.kernels.attention_tiles import FAR, TILE
from morpho.kernels.place import Place


class Call(NamedTuple):
    """The parts of a step."""

    kernel: Any
    places: tuple[Place | None, ...]
    writes: tuple[int, ...]
    values: tuple[Size, ...]
    rows: Size
    columns: Size


class Sizes:
    """The sizes of one node, as its kernels are told."""

    def __init__(self, node: Node) -> None:
        q, k, v = (child.shape for child in node.inputs[:3])
        self.batch = q[:-3]
        self.kv_heads, self.group = k[-3], q[-3] // k[-3]
        self.queries, self.keys, self.depth, self.width = q[-2], k[-2], q[-1], v[-1]
        self.offset = node["offset"] if node["causal"] else FAR
        self.window = node["window"] or 2 * FAR
        self.scale = struct.unpack("<q", struct.pack("<d", node["scale"]))[0]

    def counts(self, rows: Size) -> list[Size]:
        return [self.kv_heads, self.group, self.queries, self.keys, self.depth, self.width, rows, self.offset,
                self.window, self.scale]

    @property
    def heads(self) -> Size:
        return product(self.batch) * self.kv_heads

    @property
    def line(self) -> int:
        """Elements of a query and a value together, at most."""
        return upper(self.depth + self.width)

    def pieces(self, lines: Size, of: int) -> tuple[Size, int]:
        """Pieces of so many lines in all heads, and the lines of a piece; an unknown number is bounded by one each."""
        if isinstance(lines, int):
            return self.heads * -(-lines // of), of
        return self.heads * lines, 1


def strides(place: Place | None, rank: int, group: int, kind: str) -> tuple[Size, ...]:
    """Batch axes, key-value head, head of the group, row, along the row; 0 for what is not there."""
    if place is None:
        return (0,) * (rank + 4)
    batch, head, *rest = place.strides[:rank], *place.strides[rank:]
    if kind == "shared":
        return (*batch, head, 0, *rest)
    return (*batch, head * group, head, *(*rest, 0, 0)[:2])


def lower_attention(node: Node, inputs: Sequence[Place], targets: Sequence[Place]) -> list[Call]:
    """The forward kernel: q, k, v, result, logarithms, mask, offset."""
    sizes = Sizes(node)
    q, k, v, *extra = inputs
    mask = extra.pop(0) if node["masked"] else None
    offset = extra.pop(0) if node["moving"] else None
    places = (q, k, v, targets[0], targets[1], mask, offset)
    rows, lines = sizes.pieces(sizes.group * sizes.queries, TILE)
    values: list[Size] = [*sizes.batch, *sizes.counts(rows)]
    for place, kind in zip(places, ("own", "shared", "shared", "own", "own", "own", "own"), strict=True):
        values += strides(place, len(sizes.batch), sizes.group, kind)
    kernel = AttentionKernel(node.dtype, len(sizes.batch), None if mask is None else mask.dtype, offset is not None,
                             flops=2 * lines * sizes.line,
                             scratch_bytes=scratch_bytes(upper(sizes.depth), upper(sizes.width)))
    return [Call(kernel, places, (3, 4), tuple(values), rows, sizes.keys)]


def lower_attention_backward(node: Node, inputs: Sequence[Place], targets: Sequence[Place]) -> list[Call]:
    """The two kernels of the gradient: q, k, v, cotangent, logarithms, sums, mask, offset, then their results."""
    sizes = Sizes(node)
    read: list[Place | None] = list(inputs[:6])
    extra = list(inputs[6:])
    read.append(extra.pop(0) if node["masked"] else None)
    read.append(extra.pop(0) if node["moving"] else None)
    kinds = ["own", "shared", "shared", *["own"] * 5]
    calls = []
    for part, results, kind, across, along, of in (
            ("queries", targets[:1], "own", sizes.group * sizes.queries, sizes.keys, TILE),
            ("keys", targets[1:], "shared", sizes.keys, sizes.group * sizes.queries, BLOCK)):
        rows, lines = sizes.pieces(across, of)
        places = (*read, *results)
        values: list[Size] = [*sizes.batch, *sizes.counts(rows)]
        for place, form in zip(places, (*kinds, *[kind] * len(results)), strict=True):
            values += strides(place, len(sizes.batch), sizes.group, form)
        kernel = AttentionBackwardKernel(
            part, node.dtype, len(sizes.batch), None if read[6] is None else read[6].dtype, read[7] is not None,
            flops=4 * lines * sizes.line, scratch_bytes=backward_scratch_bytes(upper(sizes.depth), upper(sizes.width)))
        calls.append(Call(kernel, places, tuple(range(8, len(places))), tuple(values), rows, along))
    return calls
