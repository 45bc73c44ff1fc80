"""From a product or a convolution to its steps: what is packed before, and what follows on every tile at once.

Which kernel multiplies is decided in `matmul_dispatch.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from morpho.backends.kernels.conv.weight_gradient import WeightGradientConv
from morpho.backends.kernels.gemm.gemm import EPILOGUE
from morpho.backends.kernels.gemm.gemv import FOLLOWED_GEMV, GEMV, GemvKernel, way_of
from morpho.backends.kernels.gemm.matmul import PRODUCT, Matmul, follows, layout, loop_scratch
from morpho.backends.kernels.gemm.prologue import LEFT
from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.lowering.control.filling import is_column
from morpho.backends.lowering.groups.lower_group import lower_body, lower_copy
from morpho.backends.lowering.lowering import Lowering, operations, reads_first
from morpho.backends.lowering.matmul.matmul_dispatch import MatmulRequest, choose_conv, choose_matmul
from morpho.base.dims import upper
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.ir.views import CHANNELS_LAST, is_channels_last, is_view, look_through
from morpho.program.program import Step
from morpho.program.view import View, channels_last, whole


# -- nodes ---------------------------------------------------------------------------------------------------------
def lower_matmul(low: Lowering, node: Node) -> None:
    shape = node.shape
    if node.op.name == "matmul_quantised" and shape[-1] == 1:  # a second column, of zeros: tiles are matrices
        shape = (*shape[:-1], 2)
    c = low.new_slot(shape, node.dtype)
    found = choose_matmul(MatmulRequest(low, node, shape, False))
    if found.is_gemv:
        multiply_directly(low, node, found, c)
        low.views[node.serial] = [c]
        return
    # Rows and columns of the copy are those of the tiles, also where an axis has one element.
    multiply_into(low, node, found, c, 2 if found.swapped else 1, "matmul")
    low.views[node.serial] = [c if shape == node.shape else replace(c, shape=node.shape)]


def lower_conv(low: Lowering, node: Node) -> None:
    wanted_last = all(is_channels_last(user) for user in low.graph.users[node.serial]) \
        and node not in low.graph.outputs
    found = choose_conv(low, node, node.shape, node.attributes, wanted_last)
    if isinstance(found, WeightGradientConv):
        low.views[node.serial] = [weight_gradient(low, node, found)]
        return
    if found.last:
        shape = tuple(node.shape[axis] for axis in CHANNELS_LAST)
        target = low.new_slot(shape, node.dtype)
        multiply_into(low, node, found, target, 1, "conv")
        image, row, column, channel = target.strides
        low.views[node.serial] = [replace(target, shape=node.shape, strides=(image, channel, row, column))]
        return
    target = place_as_output(low, node) or low.new_slot(node.shape, node.dtype)
    multiply_into(low, node, found, target, 2, "conv")
    low.views[node.serial] = [target]


def lower_gemm(low: Lowering, node: Node) -> None:
    """A product or a convolution, and the group that follows it."""
    inputs = [low.view(child) for child in node.inputs[2:]]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    space, columns, windows = node["space"], node["columns"], node["windows"]

    def follow(seen: View) -> LoopCall:
        places = [*inputs[:node["product"]], seen, *inputs[node["product"]:]]
        return lower_body(node, places, targets, columns)

    found: Matmul
    kind, shown = "conv" if windows else "matmul", joined(operations(node))
    if windows:
        found = convolution = choose_conv(low, node, node["shape"], dict(windows), node["last"])
        if node["last"] and not convolution.last:
            apart = low.new_slot(node["shape"], node["dtype"])
            multiply_into(low, node, found, apart, 2, kind)
            low.step(follow(channels_last(apart)), node, shown)
            low.views[node.serial] = targets
            return
    else:
        found = choose_matmul(MatmulRequest(low, node, node["shape"], bool(node["axes"])))
    split = found.thresholds.choice.epilogue == "split" and not node["axes"]
    if found.is_gemv:
        apart = low.new_slot(node["shape"], node["dtype"])
        after = follow(whole(apart.slot, space, apart.dtype))
        if not multiply_directly(low, node, found, apart, after, f"+{shown}"):
            low.step(after, node, shown)
    elif split or not multiply(low, node, found, follow(found.seen(space, columns)), f"{kind}+{shown}"):
        apart = low.new_slot(node["shape"], node["dtype"])
        if node["last"]:
            apart = whole(apart.slot, space, apart.dtype)
        multiply_into(low, node, found, apart, 2 if windows and not node["last"] else 1, kind)
        low.step(follow(whole(apart.slot, space, apart.dtype)), node, shown)
    low.views[node.serial] = targets


def place_as_output(low: Lowering, node: Node) -> View | None:
    """Memory for a value that is wanted as an output in another order of its axes alone, as the gradient of a
    convolution's weights is: in that order, so that it is not copied; its lines stay lines."""
    users = low.graph.users[node.serial]
    if not low.own_outputs or node in low.graph.outputs or len(users) != 1 or users[0].op.name != "permute":
        return None
    order, output = users[0]["axes"], users[0]
    if order[-1] != len(order) - 1 or low.graph.outputs.count(output) != 1 or low.graph.users[output.serial]:
        return None
    place = low.new_slot(output.shape, output.dtype)
    strides = [place.strides[order.index(axis)] for axis in range(len(order))]
    return replace(place, shape=node.shape, strides=tuple(strides))


# -- steps ---------------------------------------------------------------------------------------------------------
def multiply(low: Lowering, node: Node, found: Matmul, after: LoopCall, label: str) -> bool:
    """One step for a product whose tiles `after` writes where they belong; False when that kernel cannot run tile
    by tile."""
    if not follows(after):
        return False
    packed = found.b.view if found.packs_right else packed_right(low, found, node)
    before = found.before
    places = [None if p is not None and p.slot in (PRODUCT, LEFT) else p
              for p in (found.a.view, packed, *after.views, *(before.views if before else ()))]
    writes = tuple(i + 2 for i, access in enumerate(after.kernel.accesses) if access.kind == "store")
    low.add(Step(
        found.kernel(), tuple(places), writes, found.values(after), found.items, found.work_per_item,
        found.label + label, node.origin, in_place=reads_first(after.kernel), epilogue=after.kernel,
        prologue=before.kernel if before else None, prologue_at=2 + len(after.views) if before else 0,
        scratch=found.scratch(after.kernel)[2], threads=low.threads_for(node, found.thresholds.choice.threads),
        sizes=found.sizes, choice=found.choice,
        operations=found.batch * found.m * (found.n * (2 * found.k + after.kernel.flops)
                                            + (found.k * before.kernel.flops if before else 0))))
    return True


def multiply_into(low: Lowering, node: Node, found: Matmul, target: View, columns: int, label: str) -> None:
    """One step for a product that is written as it is; the last `columns` axes of the target are its columns."""
    found.direct_store = found.takes_direct_store(target)
    written = multiply(low, node, found, lower_copy(found.tile, target, columns), label)
    assert written, f"{label}: a copy reads every tile once, in its own order"


def multiply_directly(low: Lowering, node: Node, found: Matmul, target: View, after: LoopCall | None = None,
                      label: str = "") -> bool:
    """One step that reads the right operand as it lies; whether it computes what comes `after` too."""
    a, b, nbytes = found.a, found.b, upper(found.n * found.k) * found.dtype.itemsize
    if after is not None and ((after.rows, after.columns) != (found.batch * found.m, found.n)
                              or not after.kernel.is_plain):
        after = None  # it has rows and columns of its own, or needs whole rows
    way = way_of(layout(b.rows, b.columns, ("rows", "columns")), nbytes)
    if way != "rows":
        way = found.thresholds.choice.gemv or way
    kernel = GemvKernel(found.dtype, way, after is not None)
    tiles, tile = found.direct_tiles
    numbers: dict[str, Any] = {
        "m": found.m, "n": found.n, "k": found.k, "a_batch": a.batch, "a_m": a.rows, "a_k": a.columns,
        "b_batch": b.batch, "b_k": b.rows, "b_n": b.columns, "batches": found.batches, "a_outer": a.outer,
        "b_outer": b.outer, "tiles": tiles, "tile": tile}
    values = GEMV.values(**numbers)
    places: tuple[View | None, ...] = (a.view, b.view, target)
    writes: tuple[int, ...] = (2,)
    flops = 2 * found.k
    more: dict[str, Any] = {}
    if after is not None:
        stores = [i for i, access in enumerate(after.kernel.accesses) if access.kind == "store"]
        places, writes, flops = places + after.views, (2, *(3 + i for i in stores)), flops + after.kernel.flops
        values = (*FOLLOWED_GEMV.values(**numbers, unused=[0] * (EPILOGUE - len(GEMV)), epilogue=0), *after.values)
        more = {"epilogue": after.kernel, "in_place": reads_first(after.kernel),
                "scratch": loop_scratch(after.kernel, upper(found.n))}
    rows = rows_that_count(low, node, found)
    if rows is not None:
        kernel, places = replace(kernel, rows_at=len(places)), (*places, rows)
    low.add(Step(kernel, places, writes, values, found.batch * tiles, found.m * tile * found.k,
                 "matmul (unpacked)" + (label if after is not None else ""), node.origin,
                 threads=low.threads_for(node, found.thresholds.choice.threads), sizes=found.sizes,
                 choice=found.choice,
                 operations=found.batch * found.m * found.n * flops, **more))
    return after is not None


def rows_that_count(low: Lowering, node: Node, found: Matmul) -> View | None:
    """Where the number of rows of the right operand lies behind which both operands are zeros, if that is known."""
    left, right = node.inputs[:2]
    rows = low.rows_there.get(right.serial)
    known = rows is not None and low.target.kind != "cuda" and found.m == 1 and not found.swapped
    return rows if known and is_column(left, right) else None


def weight_gradient(low: Lowering, node: Node, found: WeightGradientConv) -> View:
    """One step that writes the result with its first two axes exchanged, and the result as it is seen."""
    count, kernels, *pixels = node.shape
    target = low.new_slot((kernels, count, *pixels), node.dtype)
    low.add(Step(found.kernel(), (found.a.view, packed_right(low, found, node), target), (2,), found.record_values(),
                 found.items, found.work_per_item, "conv", node.origin, scratch=found.places[3],
                 threads=low.threads_for(node, found.thresholds.choice.threads), sizes=found.sizes,
                 choice=found.choice, operations=2 * found.m * found.n * found.k))
    first, second, *rest = target.strides
    return replace(target, shape=node.shape, strides=(second, first, *rest))


def packed_right(low: Lowering, found: Matmul, node: Node) -> View:
    """The right operand in panels; one operand used by several products is packed once, and again where it is read
    again, so that nothing is kept in between."""
    source, values = found.b.view, found.pack_values()
    key = (source, found.pack_kernel(), values, () if low.is_fixed(source) else waits(node.inputs[1]))
    if key not in low.packs:
        target = low.new_slot(found.packed_shape, source.dtype)
        panels = found.packed_shape[0] * found.packed_shape[1]
        low.add(Step(found.pack_kernel(), (source, target), (1,), values, panels,
                     found.k * found.register.width, "pack", node.origin))
        low.packs[key] = target
    return low.packs[key]


def waits(node: Node) -> tuple[int, ...]:
    """Values that must be ready before a value is read, by serial."""
    return tuple(child.serial for view in look_through(node, is_view)[1] for child in view.inputs[1:])
