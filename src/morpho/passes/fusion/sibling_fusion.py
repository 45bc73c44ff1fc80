"""Sibling fusion, after every node has a group: groups over the same operands, reductions side by side, row values.

Each saves a kernel and never changes a value: a group computes what its parts would.
"""

from __future__ import annotations

from morpho.base.dims import product
from morpho.ir.node import Node
from morpho.ir.views import Mapping, root_of, shows
from morpho.ops.elementwise import COSTLY
from morpho.ops.order import NUMBERS
from morpho.passes.fusion.candidates import MOST_FLOPS, MOST_INPUTS, Group
from morpho.passes.fusion.fuser import Fuser
from morpho.passes.fusion.group import row_shape
from morpho.passes.pieces import FEW_ELEMENTS

LIGHT = 4  # operations per element of a sum that is worth no walk of its own


def join_groups(fuser: Fuser) -> None:
    """All joins, in the order in which one may make room for the next."""
    absorb_rows(fuser)
    join_siblings(fuser)
    join_sums(fuser)
    join_parts(fuser)
    join_pieces(fuser)


# -- siblings ----------------------------------------------------------------------------------------------------------
def join_siblings(fuser: Fuser) -> None:
    """Groups that read the same value over the same space, one at least a reduction, share one walk over it."""
    readers: dict[int, list[int]] = {}
    # Numbers are read from nowhere: there is no walk to share.
    numbers = {node.serial for node in fuser.graph.nodes if root_of(node).op.name in NUMBERS}
    for number, group in fuser.groups.items():
        if group.full or group.rows:
            for serial in group.inputs - numbers:
                readers.setdefault(serial, []).append(number)
    for those in readers.values():
        for later in those[1:]:
            for earlier in those[:those.index(later)]:
                first, second = fuser.groups.get(earlier), fuser.groups.get(later)
                if first is not None and second is not None and _join(fuser, first, second):
                    break


def _join(fuser: Fuser, first: Group, second: Group) -> bool:
    """Merge two reductions that do not need each other; whether it could be done."""
    if first is second or not (first.axes and second.axes) or linked(fuser, first, second):
        return False
    if not fuser.can_merge(first, second) or len(first.inputs | second.inputs) > MOST_INPUTS:
        return False
    fuser.merge(first, second)
    return True


def join_parts(fuser: Fuser) -> None:
    """The groups that compute the real and the imaginary part of one value become one: it reads both parts of its
    operands once, and writes pairs."""
    for node in fuser.graph.nodes:
        if node.op.name != "complex":
            continue
        first, second = (fuser.groups.get(fuser.home.get(root_of(child).serial, -1)) for child in node.inputs)
        if first is not None and second is not None and first is not second and _share(fuser, first, second):
            fuser.merge(first, second)


def _share(fuser: Fuser, first: Group, second: Group) -> bool:
    """Whether two maps can be one walk."""
    native = all(group.full or group.rows for group in (first, second))
    fits = len(first.inputs | second.inputs) <= MOST_INPUTS and first.flops + second.flops <= MOST_FLOPS
    return native and fits and not linked(fuser, first, second) and fuser.can_merge(first, second)


def join_pieces(fuser: Fuser) -> None:
    """Groups that compute pieces of values put together become one where one reads all that the other reads, as for the
    sums and differences of a butterfly: what they read goes through memory once. So do small ones, such as the borders
    of a stencil, whatever they read."""
    numbers: dict[int, None] = {}
    for node in fuser.graph.nodes:
        if node.op.name == "concatenate":
            numbers |= dict.fromkeys(fuser.home.get(root_of(piece).serial, -1) for piece in node.inputs)
    found = [group for number in numbers if (group := fuser.groups.get(number)) is not None and not group.axes]
    found.sort(key=lambda group: -len(group.inputs))
    for number, second in enumerate(found):
        for first in found[:number]:
            same = bool(second.inputs) and second.inputs <= first.inputs
            there = fuser.groups.get(first.number) is first
            if there and (same or _is_small(second)) and _share(fuser, first, second):
                fuser.merge(first, second)
                break


def _is_small(group: Group) -> bool:
    count = product(group.space)
    return isinstance(count, int) and count <= FEW_ELEMENTS


def linked(fuser: Fuser, first: Group, second: Group) -> bool:
    return bool(fuser.before[first.number] >> second.number & 1 or fuser.before[second.number] >> first.number & 1)


def join_sums(fuser: Fuser) -> None:
    """Short sums over the same space share a walk when one reads what the group before the other reads or makes.

    So the gradients of a norm's weight and bias are one kernel: sum(dy * x') comes from the kernel that reads dy.
    """
    light = [group for group in fuser.groups.values() if group.axes and _work(group) <= LIGHT]
    roots = _roots(fuser)
    for number, second in enumerate(light):
        for first in light[:number]:
            alive = fuser.groups.get(first.number) is first and fuser.groups.get(second.number) is second
            if not alive or first.space != second.space or linked(fuser, first, second):
                continue
            if (_neighbours(fuser, roots, first, second) or _neighbours(fuser, roots, second, first)) \
                    and _join(fuser, first, second):
                break


def _work(group: Group) -> int:
    """Operations per element; values of rows cost next to nothing."""
    return sum(node.op.flops for node in group.nodes if node.serial in group.full or node.op.kind == "reduce")


def _roots(fuser: Fuser) -> dict[int, int]:
    """For every value, the one that its views look at."""
    found: dict[int, int] = {}
    for node in fuser.graph.nodes:
        found[node.serial] = found[node.inputs[0].serial] if shows(node) else node.serial
    return found


def _neighbours(fuser: Fuser, roots: dict[int, int], first: Group, second: Group) -> bool:
    """Whether a group that makes an input of the first one reads or makes every input of the second."""
    wanted = {roots[serial] for serial in second.inputs}
    for serial in first.inputs:
        home = fuser.groups.get(fuser.home.get(roots[serial], -1))
        if home is None:
            continue
        read = {roots[s] for s in home.inputs}
        if all(s in read or fuser.home.get(s) == home.number for s in wanted):
            return True
    return False


# -- values of rows ----------------------------------------------------------------------------------------------------
def absorb_rows(fuser: Fuser) -> None:
    """A group of values with one element per row moves into the reduction over these rows that uses them."""
    rows: dict[object, list[Group]] = {}
    for group in fuser.groups.values():
        if not group.axes and group.full and not group.rows:
            rows.setdefault(group.space, []).append(group)
    for group in [g for g in fuser.groups.values() if g.axes]:
        shape = row_shape(group.space, group.axes)
        for small in rows.get(shape, []) if shape != group.space else []:
            if fuser.groups.get(small.number) is small and fuser.groups.get(group.number) is group:
                _absorb(fuser, small, group)


def _absorb(fuser: Fuser, small: Group, group: Group) -> None:
    if not fuser.before[group.number] >> small.number & 1 or fuser.between(small, group):
        return
    if len(small.inputs | group.inputs) > MOST_INPUTS or any(node.op.flops >= COSTLY for node in small.nodes):
        return  # a dear function is better computed for many rows at once
    mapping = tuple(None if axis in group.axes else axis for axis in range(len(group.space)))
    rows: dict[int, Mapping] = {node.serial: mapping for node in small.nodes}
    full: set[int] = set()
    for node in group.nodes:
        for child in node.inputs:
            if child.serial in fuser.waits and small.number in fuser.homes(child):
                return
            if small in fuser.candidates_of(child) and (
                    child is fuser.gather_base(node) or not _held(fuser, child, group, rows, full)):
                return
    small.full, small.rows = full, rows
    fuser.merge(group, small)


def _held(fuser: Fuser, node: Node, group: Group, rows: dict[int, Mapping], full: set[int]) -> bool:
    """Whether views lead from values of rows to this one in forms the group can hold; those met are noted."""
    chain: list[Node] = []
    while node.serial not in rows and node.serial not in full:
        chain.append(node)
        node = node.inputs[0]
    for view in reversed(chain):
        if view.inputs[0].serial in full or not fuser.hold_view(view, group, rows, full):
            return False
    return True
