"""From a scatter to a kernel and its numbers; scatters along a line together with what they scatter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from morpho.backends.kernels.loops.loop_spec import LoopCall, Store
from morpho.backends.kernels.loops.sequential.scatter import INDEX, PIECE, TARGET, VALUE, ScatterKernel
from morpho.backends.kernels.loops.sequential.scatter_loop import Scatter, ScatterLoop
from morpho.backends.lowering.destinations import base_of
from morpho.backends.lowering.groups.group_body import Operand, structural_hash
from morpho.backends.lowering.groups.joined_scatters import body_of
from morpho.backends.lowering.groups.lower_group import GroupLowering
from morpho.backends.lowering.lowering import Lowering, operations
from morpho.base.dims import Size, bounds, product
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.program.program import Step
from morpho.program.view import View, as_pairs

WORTH_DIVIDING = 1 << 14  # values of a loop whose targets threads divide
MANY_THREADS = 4  # that look through all indices for their own: fewer lose by it what they gain
WIDE_ROW = 16  # columns beside which the list of indices costs little
WIDE_RANGE = 256  # places of a target for every thread: in fewer, sums wait for the stores before them


@dataclass(frozen=True, slots=True)
class ScatterCall:
    """A kernel and what to call it with."""

    kernel: ScatterKernel
    values: tuple[Size, ...]
    items: Size
    work: Size  # of one item


def scatter_call(places: tuple[View, View, View], axis: int, mode: str, threads: int = 1) -> ScatterCall:
    """The kernel for index, value and target: the columns run along the axis in which most lies side by side. A single
    line of few columns is divided among threads by its places."""
    others = [d for d in range(len(places[TARGET].shape)) if d != axis]
    columns = _column_axis(places, others)
    outer = [d for d in others if d != columns]
    shape = places[VALUE].shape
    width: Size = 1 if columns is None else shape[columns]
    pieces = -(-width // PIECE) if isinstance(width, int) else width  # an unknown width has at most so many
    strides = [[p.strides[d] for d in outer] + [p.strides[axis], 0 if columns is None else p.strides[columns]]
               for p in places]
    lines, values_of_line = product(tuple(shape[d] for d in outer)), shape[axis] * width
    shared = strides[INDEX][-1] == 0 or width == 1
    divides = (threads >= (MANY_THREADS if bounds(width)[1] < WIDE_ROW else 2) and lines == 1 and pieces == 1 and shared
               and isinstance(values_of_line, int) and values_of_line >= WORTH_DIVIDING)
    if divides:
        pieces = threads
    kernel = ScatterKernel(mode, places[VALUE].dtype, places[TARGET].dtype, places[INDEX].dtype, len(outer),
                           shared=shared,
                           unit=strides[VALUE][-1] == 1 and strides[TARGET][-1] == 1, divides=divides)
    values = kernel.record.values(
        extents=[shape[d] for d in outer], count=shape[axis], columns=width, pieces=pieces,
        size=places[TARGET].shape[axis], index=strides[INDEX], value=strides[VALUE], target=strides[TARGET])
    work = shape[axis] * (min(width, PIECE) if isinstance(width, int) else PIECE)
    return ScatterCall(kernel, values, lines * pieces, -(-work // threads) if divides else work)


def _column_axis(places: tuple[View, View, View], others: list[int]) -> int | None:
    """An axis whose elements share their index, best one along which the target lies side by side."""
    if not others:
        return None
    return max(others, key=lambda d: (places[TARGET].strides[d] == 1, places[INDEX].strides[d] == 0, d))


def scatter_step(low: Lowering, node: Node, places: tuple[View, View, View]) -> None:
    """The step of index, value and a target that has the base in it."""
    call = scatter_call(places, node["axis"], node["mode"], 1 if low.target.kind == "cuda" else low.target.threads)
    low.add(Step(call.kernel, places, (2,), call.values, call.items, call.work,
                 "scatter" if node["mode"] == "set" else f"scatter_{node['mode']}", node.origin))


def lower_scatter(low: Lowering, node: Node, into: Callable[..., None] = scatter_step) -> None:
    """A copy of the base that the values are put into; where half floats add up, a wide one, rounded at the end."""
    index, value = (low.view(child) for child in node.inputs[1:])
    taken = base_of(low, node)
    base = low.number_or_place(node.inputs[0])
    target = taken or low.new_slot(node.shape, node.dtype)
    low.views[node.serial] = [target]
    if node.dtype.is_complex:  # both parts go to the same place
        assert isinstance(base, View)
        base, value, target = as_pairs(base), as_pairs(value), as_pairs(target)
        index = View(index.slot, index.offset, (*index.shape, 2), (*index.strides, 0), index.dtype)
    wide = target
    if node["mode"] in ("add", "mul") and node.dtype.compute is not node.dtype:
        wide = low.new_slot(target.shape, node.dtype.compute)
    if taken is None or wide is not target:
        low.copy(base, wide, node)
    into(low, node, (index, value, wide))
    if wide is not target:
        low.copy(wide, target, node)


def has_pairs_in_order(node: Node) -> bool:
    """Whether a scatter of complex numbers is one of their parts: products and extremes are not."""
    return not node.dtype.is_complex or node["mode"] in ("set", "add")


def lower_cluster(low: Lowering, node: Node) -> bool:
    """One loop for scatters along a line and the groups that compute what they scatter."""
    cluster = low.clusters.get(node.serial)
    if cluster is None:
        return False
    body = body_of(cluster)
    inputs = [low.view(child) for child in body.inputs]
    targets = [scatter_target(low, node) for node in cluster.scatters]
    lowering = GroupLowering(cluster.space, (), inputs)
    outputs = (*body.indices, *body.values)
    lowering.mappings = lowering.find_mappings(outputs)
    lowering.hashes = structural_hash(outputs, inputs, cluster.space)
    scatters, stores = [], []
    for node, target, *pair in zip(cluster.scatters, targets, body.indices, body.values, strict=True):
        index, value = (lowering.value(part, lowering.mappings[part.serial]) for part in pair)
        axis = node["axis"]
        lowering.operands.append(Operand("gather", target.dtype, target, (0,) * len(cluster.space),
                                         target.shape[axis], target.strides[axis]))
        scatters.append(Scatter(node["mode"], index, value, len(lowering.operands) - 1))
        stores += [Store(len(lowering.operands) - 1, number, True) for number in (index, value)]
    call = lowering.finish(tuple(stores))
    labels = [name for group in cluster.groups for name in operations(group)]
    labels += ["scatter" if node["mode"] == "set" else f"scatter_{node['mode']}" for node in cluster.scatters]
    looked_up = [operand for operand in lowering.operands if operand.kind == "gather"]
    sizes = [operand.extent for operand in looked_up]
    kernel = ScatterLoop(call.kernel, tuple(scatters), tuple(sizes.index(size) for size in sizes),
                         tuple(operand.step == 1 or operand.view is None for operand in looked_up),
                         divides=shared_by(low, call, [node.shape[node["axis"]] for node in cluster.scatters]))
    rows, columns, values, threads = call.rows, call.columns, call.values, "one"
    if kernel.divides:
        values = (*values, columns, low.target.threads)
        rows, columns, threads = low.target.threads, -(-columns // low.target.threads), "auto"
    low.add(Step(kernel, call.views, tuple(s.target for s in scatters), values, rows, columns, joined(labels),
                 cluster.scatters[0].origin, threads=threads))
    low.waiting -= {group.serial for group in cluster.groups}
    low.lowered |= {node.serial for node in (*cluster.groups, *cluster.scatters)}
    return True


def shared_by(low: Lowering, call: LoopCall, sizes: list[Size]) -> str:
    """How threads divide a loop whose targets have these sizes, where there is enough to do: by runs of columns if
    indices ascend, else, if they are many and targets long, by ranges of targets."""
    threads, columns = low.target.threads, call.columns
    if threads < 2 or call.rows != 1 or not isinstance(columns, int) or columns < WORTH_DIVIDING:
        return ""
    far = all(isinstance(size, int) and size >= WIDE_RANGE * threads for size in sizes)
    return "ranges" if threads >= MANY_THREADS and far else "sorted"


def scatter_target(low: Lowering, node: Node) -> View:
    """Memory for the result of a scatter, with the base in it."""
    taken = base_of(low, node)
    target = taken or low.new_slot(node.shape, node.dtype)
    if taken is None:
        low.copy(low.number_or_place(node.inputs[0]), target, node)
    low.views[node.serial] = [target]
    return target
