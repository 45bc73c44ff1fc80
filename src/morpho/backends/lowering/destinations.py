"""Values written where they are wanted: into a region of another value, or into their part of several put together.

An update `y[region] = e` writes into the memory of y where nothing reads the old y any more; else into new memory, of
which only what lies outside the region is copied. The kernel that computes e writes the region itself where it is the
only one that wants e. Likewise the parts of a concatenation are computed in place.
"""

from __future__ import annotations

from typing import NamedTuple

from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.shapes import reshape_strides
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through
from morpho.program.view import View

SLABS_BY_BYTES = 1 << 14  # of a region from which on it pays to copy what is around it piece by piece


class Wanted(NamedTuple):
    """Reader of a value, as which of its inputs, and the reshapes between."""

    user: Node
    position: int
    chain: list[Node]


own: frozenset[int] = frozenset()  # slots of parameters that may be written over: a loop's carried values


# -- who wants a value ---------------------------------------------------------------------------------------------
def wanted_by(low: Lowering, node: Node) -> Wanted | None:
    """The only reader of a value, if it puts it into another one."""
    chain: list[Node] = []
    while True:
        users = low.graph.users[node.serial]
        if len(users) != 1 or node in low.graph.outputs:
            return None
        user = users[0]
        if user.op.name == "reshape":
            chain.append(user)
            node = user
            continue
        positions = [n for n, child in enumerate(user.inputs) if child is node]
        if len(positions) != 1:
            return None
        if user.op.name == "concatenate" or (user.op.name == "update" and positions == [1]):
            return Wanted(user, positions[0], chain)
        return None


def destination(low: Lowering, node: Node, number: int = 0) -> View | None:
    """The place that a group may write a result into, if that can be known now; one of several only into a part of
    a concatenation, whose memory is new."""
    if node.outputs[number].dtype.is_complex:
        return None
    several = len(node.outputs) > 1
    picks = [user for user in low.graph.users[node.serial] if user.op.name == "pick" and user["index"] == number]
    if several and len(picks) != 1:
        return None
    wanted = wanted_by(low, picks[0] if several else node)
    if wanted is None or (several and wanted.user.op.name != "concatenate"):
        return None
    user, position, chain = wanted
    place = part_of(low, user, position) if user.op.name == "concatenate" else region_for(low, user, node)
    for view in reversed(chain):  # from the shape that is wanted back to the one that is computed
        if place is None:
            return None
        before = view.inputs[0].shape
        strides = reshape_strides(place.shape, place.strides, before)
        place = None if strides is None else View(place.slot, place.offset, before, strides, place.dtype)
    if place is not None:
        low.placed.add((user.serial, position))
    return place


# -- concatenations ------------------------------------------------------------------------------------------------
def part_of(low: Lowering, node: Node, position: int) -> View:
    """The part of a concatenation that one of its inputs is; one that is itself part of another lies in that."""
    if node.serial not in low.regions:
        wanted = wanted_by(low, node)
        if wanted is not None and wanted.user.op.name == "concatenate" and not wanted.chain:
            low.regions[node.serial] = part_of(low, wanted.user, wanted.position)
            low.placed.add((wanted.user.serial, wanted.position))
        else:
            low.regions[node.serial] = low.new_slot(node.shape, node.dtype)
    target, axis = low.regions[node.serial], node["axis"]
    start: Size = 0
    for child in node.inputs[:position]:
        start = start + child.shape[axis]
    offset = target.offset + start * target.strides[axis]
    return View(target.slot, offset, node.inputs[position].shape, target.strides, node.dtype)


def lower_concatenate(low: Lowering, node: Node) -> None:
    for position, child in enumerate(node.inputs):
        part = part_of(low, node, position)
        if product(child.shape) != 0 and (node.serial, position) not in low.placed:
            low.copy(low.view(child), part, node)
    low.views[node.serial] = [low.regions[node.serial]]


# -- updates -------------------------------------------------------------------------------------------------------
def lower_update(low: Lowering, node: Node) -> None:
    base, value = node.inputs
    if node.serial not in low.regions:
        low.regions[node.serial] = target_of(low, node, may_take(low, node, base, None))
    target = low.regions[node.serial]
    if product(value.shape) != 0 and (node.serial, 1) not in low.placed:
        low.copy(low.view(value), region_of(low, node, target), node)
    low.views[node.serial] = [target]


def region_of(low: Lowering, node: Node, target: View) -> View:
    """The region of an update in its result."""
    offset: Size = target.offset
    for start, stride in zip(node["starts"], target.strides, strict=True):
        offset = offset + start * stride
    strides = tuple(s * step for s, step in zip(target.strides, node["steps"], strict=True))
    return View(target.slot, offset, node.inputs[1].shape, strides, node.dtype)


def region_for(low: Lowering, node: Node, writer: Node) -> View | None:
    """The region of an update for the kernel that computes its value: None where the old value is not there yet."""
    base = node.inputs[0]
    root = look_through(base, is_view)[0]
    if root.op.kind != "source" and root.serial not in low.lowered:
        return None
    if product(node.inputs[1].shape) == 0:
        return None
    low.regions[node.serial] = target_of(low, node, may_take(low, node, base, writer))
    return region_of(low, node, low.regions[node.serial])


def may_take(low: Lowering, node: Node, base: Node, writer: Node | None) -> bool:
    """Whether the result of an update may take the memory of the value it changes: that is a value of this program,
    whole, and everything else that reads it has run. A `writer` may read the very elements it writes."""
    root = look_through(base, lambda view: view.op.name == "remat_barrier")[0]
    if root is not base or (root.serial not in low.views and root.op.kind == "source"):
        return False
    place = low.views[root.serial][0] if root.serial in low.views else None
    if place is None or not (place.offset == 0 and place.is_contiguous):
        return False
    slot = low.program.slots[place.slot]
    if slot.kind != "temporary" or product(place.shape) != slot.elements or place.dtype is not slot.dtype:
        return False
    whole = look_through(root, is_view)[0]  # others may read the value by other views than this one
    if whole.op.name == "parameter" and place.slot not in low.own:
        return False
    if whole.op.name == "pick" or len(whole.outputs) > 1:
        return False
    return all(has_read(low, user, whole, node, writer) for user in readers(low, whole))


def base_of(low: Lowering, node: Node) -> View | None:
    """The memory of the value that a scatter changes, where it may be written over."""
    base = node.inputs[0]
    return low.views[base.serial][0] if may_take(low, node, base, None) else None


def readers(low: Lowering, root: Node) -> list[Node]:
    """The nodes that read a value, through views too, and marks of outputs."""
    found: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node in low.graph.outputs:
            found.append(node)
        for user in low.graph.users[node.serial]:
            if is_view(user):
                stack.append(user)
            else:
                found.append(user)
    return found


def has_read(low: Lowering, user: Node, root: Node, update: Node, writer: Node | None) -> bool:
    """Whether a reader does not mind that the value changes."""
    if user is update:
        found = [look_through(child, is_view) for child in update.inputs[1:]]
        return all(seen is not root or _is_apart(chain, update) for seen, chain in found)
    if user is root or is_view(user):  # an output
        return False
    if user is writer:
        return reads_in_place(low, writer, root, update)
    return user.serial in low.lowered


def reads_in_place(low: Lowering, writer: Node, root: Node, update: Node) -> bool:
    """Whether a kernel reads of a value the elements that it writes, each where it writes it, and others that
    nobody writes."""
    region = {name: update[name] for name in ("starts", "sizes", "steps")}
    for child in writer.inputs:
        seen, chain = look_through(child, is_view)
        if seen is not root or _is_apart(chain, update):
            continue
        if len(chain) != 1 or chain[0].op.name != "slice" or any(chain[0][name] != region[name] for name in region):
            return False
    body = writer["body"].graph if "body" in writer.attributes else None
    return body is not None and not any(n.op.kind in ("index", "reduce") or n.op.name == "window"
                                        for n in body.nodes)


def target_of(low: Lowering, node: Node, in_place: bool) -> View:
    """The memory of an update's result, with the old elements around the region in it."""
    base = node.inputs[0]
    if in_place:
        return low.views[base.serial][0]
    target = low.new_slot(node.shape, node.dtype)
    source = low.number_or_place(base)
    if isinstance(source, View) and copy_around(low, node, source, target):
        return target
    low.copy(source, target, node)
    return target


def copy_around(low: Lowering, node: Node, source: View, target: View) -> bool:
    """Copy what an update does not write, in slabs along each axis, where that is much less than all of it."""
    starts, sizes, steps = node["starts"], node["sizes"], node["steps"]
    known = all(isinstance(n, int) for n in (*starts, *sizes, *node.shape)) and all(step == 1 for step in steps)
    if not known or product(sizes) * node.dtype.itemsize < SLABS_BY_BYTES or node.dtype.is_complex:
        return False
    if 2 * product(sizes) < product(node.shape):
        return False
    begins, ends = [0] * len(starts), list(node.shape)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        for first, last in ((0, start), (start + size, node.shape[axis])):
            if first < last:
                box = [(begins[d], ends[d]) if d != axis else (first, last) for d in range(len(starts))]
                low.copy(_box(source, box), _box(target, box), node)
        begins[axis], ends[axis] = start, start + size
    return True


def _is_apart(chain: list[Node], update: Node) -> bool:
    """Whether views, the last of them of the value that an update changes, show nothing of the region it writes."""
    if not chain or chain[-1].op.name != "slice" or update.op.name != "update":
        return False
    if not all(isinstance(n, int) for node in (chain[-1], update) for n in (*node["starts"], *node["sizes"])):
        return False
    read, write = ([range(start, start + size * step, step) for start, size, step in
                    zip(node["starts"], node["sizes"], node["steps"], strict=True)] for node in (chain[-1], update))
    return any(not a or not b or max(a[0], a[-1]) < min(b[0], b[-1]) or max(b[0], b[-1]) < min(a[0], a[-1])
               for a, b in zip(read, write, strict=True))


def _box(place: View, box: list[tuple[Size, Size]]) -> View:
    """A block of a place."""
    offset = place.offset
    for (first, _), stride in zip(box, place.strides, strict=True):
        offset = offset + first * stride
    return View(place.slot, offset, tuple(last - first for first, last in box), place.strides, place.dtype)
