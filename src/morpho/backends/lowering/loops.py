"""Groups of elementwise operations and reductions, copies, borders and scans as steps."""

from __future__ import annotations

from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.kernels.loops.sequential.scan import ScanKernel
from morpho.backends.lowering.destinations import destination
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.groups.split_group import split_group
from morpho.backends.lowering.lower_sparse import lower_followed
from morpho.backends.lowering.lowering import Lowering, is_long, operations, side_by_side_inputs
from morpho.base.dims import Size, bounds, product
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.ir.views import look_through
from morpho.passes.fusion.prologue import product_after
from morpho.program.program import Control, Step
from morpho.program.view import View, look, padded, part_of

SCANS_TOGETHER = 4  # rows whose running sums take turns
SCANS = tuple(f"cumulative_{name}" for name in ("sum", "prod", "max", "min", "logsumexp"))


def only_left(low: Lowering, node: Node) -> bool:
    """Whether a group was found to be the left side of a product and nothing else, and still is, or is computed by
    the loop that scatters it."""
    return node.serial in low.joined_groups or (
        bool(node.attributes.get("waits")) and product_after(node, low.graph) is not None)


def only_windows(low: Lowering, node: Node) -> bool:
    users = low.graph.users[node.serial]
    return bool(users) and not node.dtype.is_complex and all(user.op.name == "window" for user in users)


def bordered(low: Lowering, node: Node) -> View | None:
    """Windows over a pad that has no memory yet as windows over what it pads."""
    node, chain = look_through(node)
    waits = node.op.name == "pad" and node.serial in low.waiting
    place = padded(low.view(node.inputs[0]), node) if waits else None
    for view in reversed(chain):
        place = look(view, place) if place is not None else None
    return place


def lower_windows(low: Lowering, node: Node, targets: list[View]) -> LoopCall | None:
    """A group that reads windows over pads, if its kernel can do without memory for the pads."""
    places = [bordered(low, child) for child in node.inputs]
    if all(place is None for place in places):
        return None
    inputs = [place or low.view(child) for place, child in zip(places, node.inputs, strict=True)]
    lowered = lower_body(node, inputs, targets)
    return lowered if lowered.kernel.short else None


def lower_group(low: Lowering, node: Node) -> None:
    targets = [destination(low, node, n) or low.device.result_place(low, node, n) for n in range(len(node.outputs))]
    if lower_followed(low, node, targets):
        low.views[node.serial] = targets
        return
    lowered, inputs = lower_windows(low, node, targets), []
    if lowered is None:
        inputs = [low.view(child) for child in node.inputs]
        lowered = lower_body(node, inputs, targets)
        packed = side_by_side_inputs(low, lowered, inputs, node)
        if packed != inputs:
            inputs, lowered = packed, lower_body(node, packed, targets)
    if inputs and is_long(lowered, several_walks=True):
        split_walks(low, node, inputs, targets)
    else:
        low.step(lowered, node, joined(operations(node)) or "copy")
    low.views[node.serial] = targets


def split_walks(low: Lowering, node: Node, inputs: list[View], targets: list[View]) -> None:
    """A group of several walks over few long rows: each is lowered by itself, and divided among threads."""
    body = node["body"]
    known = {leaf: inputs[leaf["index"]] for leaf in body.graph.parameters}
    held = dict(zip(body.outputs, targets, strict=True))
    for part, read, made in split_group(node):
        for value in made:
            known[value] = held[value] if value in held else low.new_slot(value.shape, value.dtype)
        low.step(lower_body(part, [known[value] for value in read], [known[value] for value in made]), node,
                 joined(operations(part)))


def result_place(low: Lowering, node: Node, number: int) -> View:
    """Memory for a result of a group: among the pairs of complex numbers where it is one of their parts."""
    spec, users = node.outputs[number], low.graph.users
    value = next((user for user in users[node.serial] if user.op.name == "pick" and user["index"] == number), node)
    for user in users[value.serial] if value is not node or len(node.outputs) == 1 else ():
        if user.op.name == "complex" and user.inputs[0] is not user.inputs[1]:
            pairs = low.pairs.get(user.serial)
            if pairs is None:
                pairs = low.pairs[user.serial] = low.new_slot(user.shape, user.dtype)
            return part_of(pairs, user.inputs.index(value))
    return low.new_slot(spec.shape, spec.dtype)


def lower_complex(low: Lowering, node: Node) -> None:
    """Two parts side by side; those that groups have computed are there already."""
    target = low.pairs.get(node.serial) or low.new_slot(node.shape, node.dtype)
    for index, child in enumerate(node.inputs):
        source, place = low.number_or_place(child), part_of(target, index)
        if source != place and product(node.shape) != 0:
            low.copy(source, place, node)
    low.views[node.serial] = [target]


def lower_copy_op(low: Lowering, node: Node) -> None:
    target = low.new_slot(node.shape, node.dtype)
    low.copy(low.view(node.inputs[0]), target, node)
    low.views[node.serial] = [target]


def lower_pad(low: Lowering, node: Node) -> None:
    target = low.new_slot(node.shape, node.dtype)
    child = node.inputs[0]
    low.copy(node["value"], target, node)
    offset: Size = 0
    for before, stride in zip(node["before"], target.strides, strict=True):
        offset = offset + before * stride
    low.copy(low.view(child), View(target.slot, offset, child.shape, target.strides, node.dtype), node)
    low.views[node.serial] = [target]


def _scan_lanes(low: Lowering, name: str, node: Node, outer: list[int], places: tuple[View, View]) -> int:
    """Chains that are computed at once: those beside each other in memory, as many as four vectors hold."""
    if not low.vector_bits or not outer or name == "logsumexp" or any(
            place.strides[outer[-1]] != 1 or place.part is not None or place.borders for place in places):
        return 1
    count, most = node.shape[outer[-1]], 4 * low.vector_bits // (8 * node.dtype.compute.itemsize)
    if not isinstance(count, int):
        return 1
    return next((lanes for lanes in (most, most // 2, most // 4, most // 8) if lanes > 1 and count >= lanes), 1)


def lower_scan(low: Lowering, node: Node) -> None:
    source, target = low.view(node.inputs[0]), low.new_slot(node.shape, node.dtype)
    axis = node["axis"]
    outer = [d for d in range(len(node.shape)) if d != axis]
    name = node.op.name.removeprefix("cumulative_")
    lanes = _scan_lanes(low, name, node, outer, (source, target))
    count = product(tuple(node.shape[d] for d in outer))
    together = SCANS_TOGETHER if low.vector_bits and lanes == 1 and bounds(count)[0] >= SCANS_TOGETHER else 1
    kernel = ScanKernel(name, node.dtype, len(outer), lanes, together)
    strides = [[place.strides[d] for d in (*outer, axis)] for place in (source, target)]
    extents = [node.shape[d] for d in outer]
    chains: dict[str, Size] = {"rows": count} if together > 1 else {}
    if lanes > 1:
        chains, extents[-1] = {"chains": extents[-1]}, -(-extents[-1] // lanes)
    values = kernel.record.values(extents=extents, length=node.shape[axis], source=strides[0], target=strides[1],
                                  **chains)
    rows = -(-product(tuple(extents)) // together)
    low.add(Step(kernel, (source, target), (1,), values, rows, node.shape[axis], node.op.name, node.origin))
    low.views[node.serial] = [target]


def lower_counted(low: Lowering, node: Node) -> None:
    """The first part of a line, whose length is a number of the program from here on."""
    place, count = (low.view(child) for child in node.inputs)
    numbers = [step.number for step in low.program.steps if isinstance(step, Control)]
    low.program.steps.append(Control("size", 1 + max(numbers, default=-1), "counted", node.origin, node["size"],
                                     value=count, reads=[count]))
    low.views[node.serial] = [View(place.slot, place.offset, node.shape, place.strides, place.dtype), count]
