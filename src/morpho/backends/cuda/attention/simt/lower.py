"""From attention of float32 and float64 to its step on the arithmetic units."""

from __future__ import annotations

from morpho.backends.cuda.attention.backward_spec import BACKWARD, READ, RESULTS
from morpho.backends.cuda.attention.simt.backward import SimtBackwardSpec
from morpho.backends.cuda.attention.simt.forward import FEW, MANY, SimtSpec
from morpho.backends.cuda.attention.simt.tiles import WARPS
from morpho.backends.cuda.attention.spec import ATTENTION, BATCH_AXES, KEYS, filled, group_of, paged_values, steps_of
from morpho.backends.lowering.lower_attention import as_reshaped
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import product
from morpho.base.dtypes import float32, float64
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

SAID = "arithmetic units, block by block"


def simt_forward(low: Lowering, node: Node) -> bool:
    """softmax(q k^T) v."""
    inputs = [low.view(child) for child in node.inputs]
    if not are_floats(inputs[:3]):
        return False
    q, k, v = with_rows_side_by_side(low, node, inputs[:3])
    extra = inputs[3:]
    mask = extra.pop(0) if node["masked"] else None
    positions = extra.pop(0) if node["moving"] else None
    queries = q.shape[-2]
    spec = SimtSpec(q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], node["offset"], node["causal"],
                    node["window"], None if mask is None else mask.dtype, positions is not None, rows_of(q), "simt")
    if not spec.fits or len(q.shape) > BATCH_AXES + 3:
        return False
    targets = [as_reshaped(low, node, 0), low.new_slot(node.outputs[1].shape, node.outputs[1].dtype)]
    places = {"q": q, "k": k, "v": v, "o": targets[0], "l": targets[1], "x": mask, "p": positions}
    values = ATTENTION.values(queries=queries, keys=k.shape[-2], heads=q.shape[-3], group=group_of(q, k),
                              batches=filled(q.shape[:-3], 1), x_column=0 if mask is None else mask.strides[-1],
                              **{key: value for name, place in places.items()
                                 for key, value in steps_of(name, place).items()})
    work = product(tuple(q.shape[:-1])) * k.shape[-2]
    low.add(Step(spec, tuple(place for place in places.values() if place is not None), (3, 4), values, 1, work,
                 "attention", node.origin, operations=2 * work * (q.shape[-1] + v.shape[-1]), choice=SAID))
    low.views[node.serial] = targets
    return True


def simt_over_pages(low: Lowering, node: Node) -> bool:
    """The same over pools of pages."""
    inputs = [low.view(child) for child in node.inputs]
    if not are_floats(inputs[:3]):
        return False
    inputs[:1] = with_rows_side_by_side(low, node, inputs[:1])
    q, k, v, table, positions = inputs
    spec = SimtSpec(q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], 0, True, node["window"], None, True,
                    rows_of(q), "simt", True)
    if not spec.fits or k.shape[2] != KEYS or len(q.shape) != 4:
        return False
    targets = [as_reshaped(low, node, 0), low.new_slot(node.outputs[1].shape, node.outputs[1].dtype)]
    values, keys = paged_values(inputs, targets)
    work = product(tuple(q.shape[:-1])) * keys
    low.add(Step(spec, (q, k, v, *targets, positions, table), (3, 4), values, 1, work, "paged_attention",
                 node.origin, operations=2 * work * (q.shape[-1] + v.shape[-1]), choice=f"{SAID}, over pages"))
    low.views[node.serial] = targets
    return True


def simt_gradient(low: Lowering, node: Node) -> bool:
    """Two steps: dq, then dk and dv."""
    inputs = [low.view(child) for child in node.inputs]
    if not are_floats(inputs[:4]):
        return False
    inputs[:4] = with_rows_side_by_side(low, node, inputs[:4])
    q, k, v, *_ = inputs
    extra = inputs[6:]
    mask = extra.pop(0) if node["masked"] else None
    positions = extra.pop(0) if node["moving"] else None
    specs = [SimtBackwardSpec(part, q.dtype, int(q.shape[-1]), int(v.shape[-1]), node["scale"], node["offset"],
                              node["causal"], node["window"], None if mask is None else mask.dtype,
                              positions is not None, "simt") for part in RESULTS]
    if not all(spec.fits for spec in specs) or len(q.shape) > BATCH_AXES + 3:
        return False
    targets = [as_reshaped(low, node, number) for number in range(3)]
    places = dict(zip(READ + "abd", [*inputs[:6], mask, positions, *targets], strict=True))
    values = BACKWARD.values(queries=q.shape[-2], keys=k.shape[-2], heads=q.shape[-3], group=group_of(q, k),
                             batches=filled(q.shape[:-3], 1), x_column=0 if mask is None else mask.strides[-1],
                             **{key: value for name, place in places.items()
                                for key, value in steps_of(name, place).items()})
    work = product(tuple(q.shape[:-1])) * k.shape[-2]
    for spec, products in zip(specs, (3, 4), strict=True):
        views = tuple(place for name in spec.operands if (place := places[name]) is not None)
        read = len(views) - len(RESULTS[spec.part])
        low.add(Step(spec, views, tuple(range(read, len(views))), values, 1, work, "attention_backward",
                     node.origin, operations=products * work * (q.shape[-1] + v.shape[-1]),
                     choice=f"{SAID}, {spec.part}"))
    low.views[node.serial] = targets
    return True


def rows_of(q: View) -> int:
    """Queries of a block: few where there are no more. A row's bits do not depend on it."""
    queries = q.shape[-2]
    return WARPS * (FEW if isinstance(queries, int) and queries <= WARPS else MANY)


def are_floats(places: list[View]) -> bool:
    """Whether these are float32 or float64 of known depths."""
    return all(place.dtype in (float32, float64) and isinstance(place.shape[-1], int) and place.shape[-1] > 0
               for place in places)


def with_rows_side_by_side(low: Lowering, node: Node, places: list[View]) -> list[View]:
    """The operands, or copies of those whose rows do not lie side by side: the gradient of a sum is one number."""
    return [place if place.strides[-1] == 1 or place.shape[-1] == 1 else low.copied(place, node) for place in places]
