"""From an attention node and the places of its operands to a kernel and its numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from morpho.backends.kernels.attention.attention import (
    FAR,
    KEY_BLOCK,
    OPERANDS,
    READ,
    RESULTS,
    TALL_TILE,
    TILE,
    UNIT_TILE,
    WIDEST,
    AttentionBackwardKernel,
    AttentionKernel,
    backward_scratch_bytes,
    forward_scratch_bytes,
)
from morpho.backends.lowering.lowering import Lowering, tuned_words
from morpho.base.dims import Size, product, upper
from morpho.base.dtypes import DType, bfloat16
from morpho.base.target import Target
from morpho.cost.tuned_choices import Choice, Problem
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

HEADS_PER_THREAD = 3  # from so many on, threads that take a head each are busy to the end
TALL_TILES_PER_THREAD = 6  # the same for tall tiles, which may differ in size


class Call(NamedTuple):
    """The parts of a step."""

    kernel: Any
    views: tuple[View | None, ...]
    writes: tuple[int, ...]
    values: tuple[Size, ...]
    rows: Size
    columns: Size
    operations: Size  # of all rows, while those of `kernel` count a whole tile of them however few there are


class Sizes:
    """The sizes of one node, as its kernels are told."""

    def __init__(self, node: Node) -> None:
        q, k, v = (child.shape for child in node.inputs[:3])
        self.batch = q[:-3]
        self.kv_heads, self.group = k[-3], q[-3] // k[-3]
        self.queries, self.keys, self.depth, self.width = q[-2], k[-2], q[-1], v[-1]
        self.offset = node["offset"] if node["causal"] else FAR
        self.window, self.moving = node["window"] or self.far, node["moving"]
        self.scale = self.bits(node["scale"])

    far = 2 * FAR  # a window that leaves nothing out

    @staticmethod
    def bits(scale: float) -> int:
        """A number as the bits of a float64."""
        return int(struct.unpack("<q", struct.pack("<d", scale))[0])

    def numbers(self, rows: Size, tile: int = TILE) -> dict[str, Size | Sequence[Size]]:
        """Numbers of every kernel's record, but for strides."""
        return {"batch": self.batch, "kv_heads": self.kv_heads, "group": self.group, "queries": self.queries,
                "keys": self.keys, "depth": self.depth, "width": self.width, "rows": rows, "offset": self.offset,
                "window": self.window, "scale": self.scale, "tile": tile}

    @property
    def heads(self) -> Size:
        return product(self.batch) * self.kv_heads

    @property
    def operations(self) -> Size:
        """Of one product of queries and keys and one of weights and values, for the keys that a query sees."""
        return self.heads * self.group * self.pairs * 2 * self.line

    @property
    def pairs(self) -> Size:
        """How many keys all queries of a head see together by their positions; all, where those are not known."""
        queries, keys, offset = self.queries, self.keys, self.offset
        if self.moving or not (isinstance(queries, int) and isinstance(keys, int) and isinstance(offset, int)):
            return queries * keys
        ends: np.ndarray[Any, Any] = offset + 1 + np.arange(queries)  # the key after the last one that a query sees
        seen = np.minimum(np.maximum(ends, 0), keys)
        missed = np.minimum(np.maximum(ends - self.window, 0), seen)
        return int((seen - missed).sum())

    @property
    def line(self) -> int:
        """Elements of a query and a value together, at most."""
        return upper(self.depth + self.width)

    @property
    def padded_depth(self) -> Size:
        """The depth as the widest vectors pad it, or more."""
        if isinstance(self.depth, int):
            return -(-self.depth // WIDEST) * WIDEST
        return self.depth + WIDEST - 1

    def pieces(self, lines: Size, of: int) -> tuple[Size, int]:
        """Pieces of so many lines in all heads, and the lines of a piece; an unknown number is bounded by one each."""
        if isinstance(lines, int):
            return self.heads * -(-lines // of), of
        return self.heads * lines, 1

    def tile(self, threads: int, tallest: int = TALL_TILE) -> int:
        """Rows of a tile: many where there are tiles enough. Tiles of an unknown number of rows are at least one a
        head."""
        lines, tile = self.group * self.queries, tallest
        while tile > TILE:
            tiles = self.pieces(lines, tile)[0] if isinstance(lines, int) else self.heads
            if isinstance(tiles, int) and tiles >= TALL_TILES_PER_THREAD * threads:
                break
            tile //= 2
        return tile


def tallest_tile(dtype: DType, target: Target) -> int:
    """Rows of a tile at most."""
    return UNIT_TILE if dtype is bfloat16 and target.isa.matrix_units else TALL_TILE


def strides(place: View | None, rank: int, group: Size, kind: str) -> tuple[Size, ...]:
    """Batch axes, key-value head, head of the group, row, along the row; 0 for what is not there."""
    if place is None:
        return (0,) * (rank + 4)
    batch, head, *rest = place.strides[:rank], *place.strides[rank:]
    if kind == "shared":
        return (*batch, head, 0, *rest)
    return (*batch, head * group, head, *(*rest, 0, 0)[:2])


def forward_calls(node: Node, inputs: Sequence[View], results: Sequence[View], target: Target,
                    tile_rows: int = 0) -> list[Call]:
    """The forward kernel: q, k, v, result, logarithms, mask, offset. `tile_rows`: of queries in a tile, where somebody
    chose: every row meets the blocks of keys in the same order, whatever tile it is in."""
    sizes = Sizes(node)
    q, k, v, *extra = inputs
    mask = extra.pop(0) if node["masked"] else None
    offset = extra.pop(0) if node["moving"] else None
    places = (q, k, v, results[0], results[1], mask, offset)
    tallest = tallest_tile(node.dtype, target)
    tile = min(tile_rows, tallest) or sizes.tile(target.threads, tallest)
    rows, lines = sizes.pieces(sizes.group * sizes.queries, tile)
    numbers = sizes.numbers(rows, tile)
    for operand, place in zip(OPERANDS, places, strict=True):
        kind = "shared" if operand in ("k", "v") else "own"
        numbers[f"{operand}_strides"] = strides(place, len(sizes.batch), sizes.group, kind)
    kernel = AttentionKernel(node.dtype, len(sizes.batch), None if mask is None else mask.dtype, offset is not None,
                             flops=2 * lines * sizes.line,
                             scratch_bytes=forward_scratch_bytes(upper(sizes.depth), upper(sizes.width),
                                                                 tallest == UNIT_TILE),
                             uneven=rows != sizes.heads)
    return [Call(kernel, places, (3, 4), kernel.record.values(**numbers), rows, sizes.keys, sizes.operations)]


def backward_calls(node: Node, inputs: Sequence[View], results: Sequence[View], target: Target,
                             room: Callable[[tuple[Size, ...], DType], View]) -> list[Call]:
    """The kernels of the gradient: q, k, v, cotangent, logarithms, sums, mask, offset, then their results."""
    sizes = Sizes(node)
    read: list[View | None] = list(inputs[:6])
    extra = list(inputs[6:])
    read.append(extra.pop(0) if node["masked"] else None)
    read.append(extra.pop(0) if node["moving"] else None)
    dq, dk, dv = results
    lines = sizes.group * sizes.queries
    if isinstance(sizes.heads, int) and sizes.heads >= HEADS_PER_THREAD * target.threads:
        total = room((sizes.heads, lines, sizes.padded_depth), node.dtype.compute)
        return [_backward("heads", node, sizes, [*read, dk, dv, dq, total], ("shared", "shared", "own", "none"),
                          (sizes.heads, upper(sizes.keys)), lines)]
    return [_backward("queries", node, sizes, [*read, dq], ("own",), sizes.pieces(lines, TILE), sizes.keys),
            _backward("keys", node, sizes, [*read, dk, dv], ("shared", "shared"), sizes.pieces(sizes.keys, KEY_BLOCK),
                      lines)]


def _backward(part: str, node: Node, sizes: Sizes, places: Sequence[View | None], results: Sequence[str],
              pieces: tuple[Size, int], along: Size) -> Call:
    rank = len(sizes.batch)
    numbers = sizes.numbers(pieces[0])
    operands, kinds = (*READ, *RESULTS[part]), ("own", "shared", "shared", *["own"] * 5, *results)
    for operand, place, kind in zip(operands, places, kinds, strict=True):
        numbers[f"{operand}_strides"] = strides(None if kind == "none" else place, rank, sizes.group, kind)
    mask, offset = places[6:8]
    kernel = AttentionBackwardKernel(
        part, node.dtype, rank, None if mask is None else mask.dtype, offset is not None,
        flops=4 * pieces[1] * sizes.line, scratch_bytes=backward_scratch_bytes(upper(sizes.depth), upper(sizes.width)))
    return Call(kernel, tuple(places), tuple(range(8, len(places))), kernel.record.values(**numbers), pieces[0], along,
                2 * sizes.operations)


def lower_attention(low: Lowering, node: Node) -> None:
    inputs = [low.view(child) for child in node.inputs]
    targets = [as_reshaped(low, node, number) for number in range(len(node.outputs))]
    choice = attention_choice(low, node)
    calls = forward_calls(node, inputs, targets, low.target, choice.tile_rows)
    add_calls(low, node, calls, targets, tuned_words(choice), low.threads_for(node, choice.threads))


def lower_gradient(low: Lowering, node: Node) -> None:
    inputs = [low.view(child) for child in node.inputs]
    targets = [as_reshaped(low, node, number) for number in range(len(node.outputs))]
    add_calls(low, node, backward_calls(node, inputs, targets, low.target, low.new_slot), targets)


def add_calls(low: Lowering, node: Node, calls: Sequence[Call], targets: list[View], words: str = "",
              threads: str = "auto") -> None:
    """Steps of a node, and where they write its results."""
    for call in calls:
        low.add(Step(*call[:-1], node.op.name, node.origin, operations=call.operations, choice=words, threads=threads))
    low.views[node.serial] = targets


def attention_choice(low: Lowering, node: Node) -> Choice:
    """Rows of a tile and threads, where the tuner has found some."""
    sizes = Sizes(node)
    extent = (sizes.heads, sizes.group * sizes.queries, sizes.keys, sizes.depth)
    key = low.problem_key(node, "attention", node.dtype.name, extent, "causal" if node["causal"] else "")
    return low.tuned(node, Problem(key, "attention", node, tuple(upper(size) for size in extent),
                                   threads=low.target.threads)).choice


def as_reshaped(low: Lowering, node: Node, number: int) -> View:
    """Memory for a result of a node that can write it line by line: where its axes are permuted and then reshaped,
    as heads are before they are joined, it lies as that wants it, and nothing is copied."""
    spec, users = node.outputs[number], low.graph.users
    picks = [user for user in users[node.serial] if user.op.name == "pick" and user["index"] == number]
    for view in (user for pick in picks for user in users[pick.serial] if user.op.name == "permute"):
        axes, last = view["axes"], len(spec.shape) - 1
        if axes[last] == last and any(user.op.name == "reshape" for user in users[view.serial]):
            place = low.new_slot(view.shape, spec.dtype)
            strides = tuple(place.strides[axes.index(axis)] for axis in range(last + 1))
            return View(place.slot, 0, spec.shape, strides, spec.dtype)
    return low.new_slot(spec.shape, spec.dtype)
