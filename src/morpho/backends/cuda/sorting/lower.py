"""From a sort to its launches (`blocks/radix.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.backends.cuda.blocks.radix import (
    COUNTER,
    DIGIT_BITS,
    DIGITS,
    MOST_ITEMS,
    THREADS,
    TILE,
    CountDigits,
    SortPass,
    SortTiles,
)
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product, upper
from morpho.base.dtypes import DType, bool_, int32, uint8, uint16, uint32, uint64
from morpho.ir.node import Node
from morpho.program.kernel import Kernel
from morpho.program.program import Step
from morpho.program.view import View

LEAST, MOST = 64, (1 << 30) - 1  # elements of a line; shorter ones are a thread's each
KEYS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}
MANY = 1 << 16  # lines below which a block for each of 64 elements is worth it
LONGEST = TILE  # elements of a line of a block
PARTS = 512  # blocks that count digits


def has_blocks(node: Node) -> bool:
    """Whether lines are long enough for a block each, and not so many and so short that a thread each is better."""
    length, dtype = node.shape[node["axis"]], node.inputs[0].dtype
    lines = product(tuple(size for d, size in enumerate(node.shape) if d != node["axis"]))
    many = upper(lines) >= MANY and isinstance(length, int) and length < THREADS
    return (isinstance(length, int) and LEAST <= length <= MOST and not many and not dtype.is_complex
            and dtype is not bool_)


def lower_sort(low: Lowering, node: Node) -> None:
    axis, dtype = node["axis"], node.inputs[0].dtype
    length, outer = int(node.shape[axis]), [d for d in range(len(node.shape)) if d != axis]
    source, target = low.view(node.inputs[0]), low.new_slot(node.shape, node.dtype)
    extents = [node.shape[d] for d in outer]
    along = [[place.strides[d] for d in (*outer, axis)] for place in (source, target)]
    order = node.dtype if node.op.name == "argsort" else None
    if length <= LONGEST:
        items = next(n for n in (1, 2, 4, 8, MOST_ITEMS) if n * THREADS >= length)
        kernel = SortTiles(dtype, node["descending"], order, len(outer), items)
        values = kernel.record.values(length=length, extents=extents, source=along[0], target=along[1])
        low.add(Step(kernel, (source, target), (1,), values, product(tuple(extents)), length, node.op.name,
                     node.origin, choice="a block a line"))
    else:
        sorted_lines(low, node, source, extents, along, length, node["descending"], 8 * dtype.itemsize, (target, order))
    low.views[node.serial] = [target]


def sorted_line(low: Lowering, node: Node, line: View, stride: Size, length: int, descending: bool,
                bits: int) -> tuple[View, View]:
    """Keys and order of one line by the lowest bits of its keys."""
    return sorted_lines(low, node, line, [], [[stride], [1]], length, descending, bits, None)


def sorted_lines(low: Lowering, node: Node, source: View, extents: Sequence[Size], along: Sequence[Sequence[Size]],
                 length: int, descending: bool, bits: int,
                 into: tuple[View, DType | None] | None) -> tuple[View, View]:
    """The launches of a sort. `along`: strides of the source and of the target; `into`: where the result goes, and
    its dtype where it is the order. Without it the result is keys and order."""
    dtype, rank, passes = source.dtype, len(extents), -(-bits // DIGIT_BITS)
    lines, tiles = product(tuple(extents)), -(-length // TILE)
    each = -(-max(TILE, upper(lines) * length // PARTS) // THREADS) * THREADS
    parts = -(-length // each)
    words = COUNTER + lines * (tiles * DIGITS)
    counts, status = low.new_slot((lines * (passes * DIGITS),), int32), low.new_slot((passes, words), int32)
    low.copy(0, counts, node)
    low.copy(0, status, node)

    def launch(kernel: Kernel, views: tuple[View | None, ...], writes: tuple[int, ...], values: tuple[Size, ...],
               rows: Size) -> None:
        low.add(Step(kernel, views, writes, values, rows, TILE, node.op.name, node.origin,
                      operations=lines * length, choice="the whole grid"))

    count = CountDigits(dtype, descending, passes, rank)
    launch(count, (source, counts), (1,), count.record.values(
        length=length, parts=parts, each=each, extents=extents, source=along[0]), lines * parts)
    keys: View | None = None
    order: View | None = None
    for number in range(passes):
        last = into is not None and number == passes - 1
        kernel = SortPass(dtype, descending, number == 0, last, into[1] if into is not None else None, passes, rank)
        values = kernel.record.values(length=length, tiles=tiles, digit=number, extents=extents, source=along[0],
                                      target=along[1] if last else [0] * (rank + 1))
        places = View(status.slot, status.offset + number * words, (words,), (1,), int32)
        new_keys = None if last else low.new_slot((lines * length,), KEYS[dtype.itemsize])
        new_order = into[0] if into is not None and last else low.new_slot((lines * length,), int32)
        launch(kernel, (source, keys, order, counts, places, new_keys, new_order), (4, 6) if last else (4, 5, 6),
               values, lines * tiles)
        keys, order = new_keys, new_order
    assert order is not None
    return (keys, order) if keys is not None else (order, order)
