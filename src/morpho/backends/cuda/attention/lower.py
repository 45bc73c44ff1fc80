"""From an attention node to its step on tensor cores, where its operands are half floats that lie in chunks."""

from __future__ import annotations

from morpho.backends.cuda.attention.backward_spec import BACKWARD, READ, RESULTS
from morpho.backends.cuda.attention.kernel import AttentionBackward, AttentionKernel
from morpho.backends.cuda.attention.spec import (
    ATTENTION,
    BATCH_AXES,
    KEYS,
    filled,
    group_of,
    paged_values,
    steps_of,
)
from morpho.backends.lowering.lower_attention import as_reshaped
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import divide, product
from morpho.base.dtypes import bfloat16, float16
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

DEEPEST = 128


def lower_attention(low: Lowering, node: Node) -> bool:
    """One step, where operands lie in chunks."""
    inputs = [low.view(child) for child in node.inputs]
    if not on_tensor_cores(node, inputs):
        return False
    targets = [as_reshaped(low, node, 0), low.new_slot(node.outputs[1].shape, node.outputs[1].dtype)]
    q, k, v, *extra = inputs
    mask = extra.pop(0) if node["masked"] else None
    positions = extra.pop(0) if node["moving"] else None
    queries, keys = q.shape[-2], k.shape[-2]
    few = isinstance(queries, int) and queries <= 64
    grouped = "wgmma" in low.target.machine.features and by_copy_engine(q, k, v)
    kernel = AttentionKernel(q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], node["offset"],
                             node["causal"], node["window"], None if mask is None else mask.dtype,
                             positions is not None, (64 if grouped or queries > 16 else 16) if few else 128,
                             "wgmma" if grouped else "mma")
    places = {"q": q, "k": k, "v": v, "o": targets[0], "l": targets[1], "x": mask, "p": positions}
    values = ATTENTION.values(queries=queries, keys=keys, heads=q.shape[-3], group=group_of(q, k),
                              batches=filled(q.shape[:-3], 1), x_column=0 if mask is None else mask.strides[-1],
                              **{key: value for name, place in places.items()
                                 for key, value in steps_of(name, place).items()})
    views = tuple(place for place in places.values() if place is not None)
    work = product(tuple(q.shape[:-1])) * keys
    low.add(Step(kernel, views, (3, 4), values, 1, work, "attention", node.origin,
                 operations=2 * work * (q.shape[-1] + v.shape[-1]), choice=f"tensor cores ({kernel.way})"))
    low.views[node.serial] = targets
    return True


def lower_gradient(low: Lowering, node: Node) -> bool:
    """Two steps: dq, then dk and dv."""
    inputs = [low.view(child) for child in node.inputs]
    if inputs[0].dtype in (bfloat16, float16) and inputs[3].strides[-1] == 0:  # the gradient of a sum is one number
        inputs[3] = low.copied(inputs[3], node)
    if not on_tensor_cores(node, inputs, 4):
        return False
    targets = [as_reshaped(low, node, number) for number in range(3)]
    q, k, v, _, _, _, *extra = inputs
    mask = extra.pop(0) if node["masked"] else None
    positions = extra.pop(0) if node["moving"] else None
    places = dict(zip(READ + "abd", [*inputs[:6], mask, positions, *targets], strict=True))
    values = BACKWARD.values(queries=q.shape[-2], keys=k.shape[-2], heads=q.shape[-3], group=group_of(q, k),
                             batches=filled(q.shape[:-3], 1), x_column=0 if mask is None else mask.strides[-1],
                             **{key: value for name, place in places.items()
                                for key, value in steps_of(name, place).items()})
    work = product(tuple(q.shape[:-1])) * k.shape[-2]
    grouped = "wgmma" in low.target.machine.features and by_copy_engine(*inputs[:4])
    for part, products in (("queries", 3), ("keys", 4)):
        kernel = AttentionBackward(part, q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], node["offset"],
                                   node["causal"], node["window"], None if mask is None else mask.dtype,
                                   positions is not None, "wgmma" if grouped else "mma")
        views = tuple(place for name in kernel.operands if (place := places[name]) is not None)
        read = len(views) - len(RESULTS[part])
        low.add(Step(kernel, views, tuple(range(read, len(views))), values, 1, work, "attention_backward",
                     node.origin, operations=products * work * (q.shape[-1] + v.shape[-1]),
                     choice=f"tensor cores ({kernel.way}), {part}"))
    low.views[node.serial] = targets
    return True


def over_pages(low: Lowering, node: Node) -> bool:
    """One step, over pools of pages: always by warps, whatever the number of queries."""
    inputs = [low.view(child) for child in node.inputs]
    if not on_tensor_cores(node, inputs) or inputs[1].shape[2] != KEYS:
        return False
    targets = [as_reshaped(low, node, 0), low.new_slot(node.outputs[1].shape, node.outputs[1].dtype)]
    q, k, v, table, positions = inputs
    queries = q.shape[-2]
    rows = 128 if not isinstance(queries, int) else 16 if queries <= 16 else 64 if queries <= 64 else 128
    kernel = AttentionKernel(q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], 0, True,
                             node["window"], None, True, rows, "mma", True)
    values, keys = paged_values(inputs, targets)
    work = product(tuple(q.shape[:-1])) * keys
    low.add(Step(kernel, (q, k, v, *targets, positions, table), (3, 4), values, 1, work, "paged_attention",
                 node.origin, operations=2 * work * (q.shape[-1] + v.shape[-1]),
                 choice="tensor cores (mma), over pages"))
    low.views[node.serial] = targets
    return True


def by_copy_engine(*places: View) -> bool:
    """Whether tensor maps describe the operands: two batch axes, and no row twice. It does not depend on the number of
    queries: a row's bits do not either."""
    for place in places:
        sizes, strides = place.shape[:-1], place.strides[:-1]
        if len(sizes) > 4 and sizes[0] != 1:
            return False
        if any(step == 0 and size != 1 for size, step in zip(sizes[-4:], strides[-4:], strict=True)):
            return False
    return all(size != 0 for place in places for size in place.shape)


def on_tensor_cores(node: Node, inputs: list[View], count: int = 3) -> bool:
    """Whether q, k and v, and the cotangent, are half floats whose rows lie in chunks of 16 bytes."""
    q = inputs[0]
    if q.dtype not in (bfloat16, float16) or len(q.shape) > BATCH_AXES + 3 or not node["scale"] > 0:
        return False
    for place in inputs[:count]:
        depth = place.shape[-1]
        if not isinstance(depth, int) or not 0 < depth <= DEEPEST or depth % 8 or place.strides[-1] != 1:
            return False
        if any(divide(n, 8) is None for n in (*place.strides[:-1], place.offset)):  # whatever the sizes of a call are
            return False
    return True
