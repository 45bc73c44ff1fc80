"""Where results of a GPU's program lie: in the order of their operands, and in rows that begin on 16 bytes.

Tensor cores are fed by the copy engine, which reads lines that begin on 16 bytes and have their numbers side by side
along one axis of a product. A cast of a transposed weight is therefore stored as the weight is, and rows of half floats
whose length is odd (logits over 50,257 words) have a little room behind them.
"""

from __future__ import annotations

from dataclasses import replace

from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.lowering import loops
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size
from morpho.base.dtypes import DType, bfloat16, float16
from morpho.base.shapes import contiguous_strides
from morpho.ir.node import Node
from morpho.ir.views import is_view
from morpho.program.view import View

CHUNK = 8  # half floats of 16 bytes
LONG = 256  # numbers of a row from which on room behind it costs little


def result_place(low: Lowering, node: Node, number: int) -> View:
    """As the operands lie, or in rows that begin on 16 bytes, where nobody outside sees it."""
    spec = node.outputs[number]
    if spec.dtype in (bfloat16, float16) and stays_inside(low, node):
        order = order_of_inputs(low, node, spec.shape)
        if order is not None:
            return in_order(low, spec.shape, spec.dtype, order)
        if odd_rows(spec.shape):
            return with_room(low, spec.shape, spec.dtype)
    return loops.result_place(low, node, number)


def product_place(low: Lowering, node: Node, shape: tuple[Size, ...], dtype: DType) -> View:
    """Memory for a product."""
    if dtype in (bfloat16, float16) and odd_rows(shape) and stays_inside(low, node):
        return with_room(low, shape, dtype)
    return low.new_slot(shape, dtype)


def with_room(low: Lowering, shape: tuple[Size, ...], dtype: DType) -> View:
    """Rows with room behind them."""
    assert isinstance(shape[-1], int)
    long = (*shape[:-1], -(-shape[-1] // CHUNK) * CHUNK)
    return View(low.new_slot(long, dtype).slot, 0, shape, contiguous_strides(long), dtype)


def in_order(low: Lowering, shape: tuple[Size, ...], dtype: DType, order: tuple[int, ...]) -> View:
    """Axes lie in this order, the first outermost."""
    turned = tuple(shape[axis] for axis in order)
    steps = dict(zip(order, contiguous_strides(turned), strict=True))
    strides = tuple(steps[axis] for axis in range(len(shape)))
    return View(low.new_slot(turned, dtype).slot, 0, shape, strides, dtype)


def order_of_inputs(low: Lowering, node: Node, shape: tuple[Size, ...]) -> tuple[int, ...] | None:
    """The order of the axes of a group's only whole operand, where that is dense and another than they are counted
    in."""
    whole = [child for child in node.inputs if child.shape == shape]
    if len(whole) != 1 or node.op.name != "group" or not all(isinstance(n, int) and n > 0 for n in shape):
        return None
    place = low.view(whole[0])
    if not all(isinstance(n, int) for n in place.strides) or place.borders:
        return None
    order = tuple(sorted(range(len(shape)), key=lambda axis: (shape[axis] != 1, -int(place.strides[axis]))))
    wanted = contiguous_strides(tuple(shape[axis] for axis in order))
    dense = all(place.strides[axis] == step for axis, step in zip(order, wanted, strict=True) if shape[axis] != 1)
    lasts = [axis for axis in order if shape[axis] != 1]
    return order if dense and lasts != sorted(lasts) else None


def stays_inside(low: Lowering, node: Node) -> bool:
    """Whether neither a node nor what only looks at it is a result of the program."""
    outputs = {output.serial for output in low.graph.outputs}
    stack = [node]
    while stack:
        one = stack.pop()
        if one.serial in outputs:
            return False
        stack += [user for user in low.graph.users[one.serial] if user.op.name == "pick" or is_view(user)]
    return True


def interchanged(call: LoopCall) -> LoopCall:
    """A map of rows whose operands lie side by side along the rows' axis, with rows for columns; others as they are."""
    kernel = call.kernel
    known = all(isinstance(n, int) for n in (call.rows, call.columns, *call.values))
    if not known or not kernel.is_plain or (kernel.outer_rank, kernel.inner_rank) != (1, 1) or kernel.gathered:
        return call
    if not all(i.full or i.name == "constant" for i in kernel.instructions):  # one of a row would be one of a column
        return call
    if any(a.kind not in ("load", "store") or a.guards or a.other >= 0 for a in kernel.accesses):
        return call
    rows, columns, *steps = (int(n) for n in call.values[:2 + 2 * len(kernel.accesses)])
    pairs = list(zip(steps[::2], steps[1::2], strict=True))
    better = sum((outer == 1) - (inner == 1) for outer, inner in pairs)
    if better <= 0 or rows < CHUNK or any(outer == 0 and a.kind == "store" for (outer, _), a in
                                          zip(pairs, kernel.accesses, strict=True)):
        return call
    patterns = {0: "zero", 1: "unit"}
    accesses = tuple(replace(access, pattern=patterns.get(outer, "strided"))
                     for access, (outer, _) in zip(kernel.accesses, pairs, strict=True))
    values = (columns, rows, *(step for outer, inner in pairs for step in (inner, outer)),
              *call.values[2 + len(steps):])
    return replace(call, kernel=replace(kernel, accesses=accesses), values=values, rows=columns, columns=rows)


def odd_rows(shape: tuple[Size, ...]) -> bool:
    """Whether rows would begin anywhere.

    >>> odd_rows((8, 50257)), odd_rows((8, 768)), odd_rows((50257,))
    (True, False, False)
    """
    return len(shape) > 1 and isinstance(shape[-1], int) and shape[-1] >= LONG and shape[-1] % CHUNK != 0
