"""From a sort of one long line to its launches."""

from __future__ import annotations

from math import prod

from morpho.backends.cuda.sorting.radix import DIGIT_BITS, DIGITS, CountDigits, PlaceElements, ScanCounts, tiles
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dtypes import DType, int32, uint8, uint16, uint32, uint64
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

LONG, MOST = 4096, (1 << 31) - 1  # elements of a line that is worth a grid
KEYS = {1: uint8, 2: uint16, 4: uint32, 8: uint64}


def is_long_line(node: Node) -> bool:
    """Whether a sort is of one line of thousands of elements: the whole grid sorts it, others a thread each."""
    length = node.shape[node["axis"]]
    others = prod(n if isinstance(n, int) else MOST for d, n in enumerate(node.shape) if d != node["axis"])
    return isinstance(length, int) and others == 1 and LONG <= length <= MOST


def lower_sort(low: Lowering, node: Node) -> None:
    length = node.shape[node["axis"]]
    source, target = low.view(node.inputs[0]), low.new_slot(node.shape, node.dtype)
    axis = node["axis"]
    sorted_line(low, node, source, source.strides[axis], int(length), node["descending"],
                8 * source.dtype.itemsize, (target, target.strides[axis]))
    low.views[node.serial] = [target]


def sorted_line(low: Lowering, node: Node, line: View, stride: object, length: int, descending: bool, bits: int,
                into: tuple[View, object] | None) -> tuple[View, View]:
    """The launches of a sort by the lowest `bits` of keys: keys and order of the line, or the result of a sort
    node `into` a place."""
    dtype, key = line.dtype, KEYS[line.dtype.itemsize]
    keys: View | None = None
    order: View | None = None
    values = into is not None and node.op.name == "sort"
    result: DType = int32 if into is None else into[0].dtype
    for shift in range(0, bits, DIGIT_BITS):
        first, last = shift == 0, into is not None and shift + DIGIT_BITS >= bits
        counts, places = (low.new_slot((DIGITS * tiles(length),), int32) for _ in range(2))

        numbers: tuple = (length, stride, 1 if into is None else into[1], shift)  # type: ignore[type-arg]

        def launch(kernel: object, views: tuple[View | None, ...], writes: tuple[int, ...],
                   numbers: tuple = numbers) -> None:  # type: ignore[type-arg]
            low.add(Step(kernel, views, writes, numbers, 1, length, node.op.name,  # type: ignore[arg-type]
                         node.origin, operations=length, choice="the whole grid"))

        launch(CountDigits(dtype, descending, first), (line if first else keys, counts), (1,))
        launch(ScanCounts(), (counts, places), (1,))
        kernel = PlaceElements(dtype, descending, first, last, int32, values, result)
        if last:
            assert into is not None
            launch(kernel, (line, keys, order, places, into[0], None), (4,))
            break
        new_keys, new_order = low.new_slot((length,), key), low.new_slot((length,), int32)
        launch(kernel, (line, keys, order, places, new_keys, new_order), (4, 5))
        keys, order = new_keys, new_order
    assert into is not None or (keys is not None and order is not None)
    return (into[0], into[0]) if into is not None else (keys, order)  # type: ignore[return-value]
