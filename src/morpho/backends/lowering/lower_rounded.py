"""From products with activations in 8 bits to kernels and their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.backends.kernels.quantised.rounded import PRODUCT, ROW, RoundedKernel, RoundRowsKernel
from morpho.backends.lowering.lower_attention import Call
from morpho.backends.lowering.lowering import Lowering, flat
from morpho.ir.node import Node
from morpho.ops.neural.quantised import BLOCK
from morpho.ops.neural.rounded import RECORD
from morpho.program.program import Step
from morpho.program.view import View


def rounded_call(node: Node, inputs: Sequence[View], target: View) -> Call:
    """Called over rows (`quantise_rows`), or over panels of weights, each for all rows."""
    if node.op.name == "quantise_rows":
        rows, wide = inputs[0].shape
        values = ROW.values(blocks=wide // BLOCK, row_stride=inputs[0].strides[0])
        return Call(RoundRowsKernel(), (inputs[0], target), (1,), values, rows, wide, 4 * rows * wide)
    left, panels = inputs
    blocks = left.shape[1] // RECORD
    values = PRODUCT.values(rows=left.shape[0], blocks=blocks, n=node.shape[1], row_bytes=left.shape[1],
                            result_stride=node.shape[1])
    work = left.shape[0] * blocks * BLOCK
    return Call(RoundedKernel(node["kind"]), (left, panels, target), (2,), values, panels.shape[0], 16 * work,
                2 * work * node.shape[1])


def lower_rounded(low: Lowering, node: Node) -> None:
    """Rows in 8 bits, or their product with weights; operands lie side by side."""
    inputs = [flat(low, child, unit_rows=number == 0 and node.op.name == "quantise_rows")
              for number, child in enumerate(node.inputs)]
    target = low.new_slot(node.shape, node.dtype)
    call = rounded_call(node, inputs, target)
    low.add(Step(*call[:-1], node.op.name, node.origin, operations=call.operations))
    low.views[node.serial] = [target]
