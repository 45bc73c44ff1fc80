"""The fuser's state: the group of every node, and the dependence relation between groups."""

from __future__ import annotations

from morpho.base.dims import Shape
from morpho.ir.graph import Graph
from morpho.ir.node import Node, in_place_of, rebuild
from morpho.ir.views import Mapping, is_view, maker_of, reshaped, root_of
from morpho.ops.sources import pick
from morpho.passes.fusion.candidates import (
    INLINE,
    MOST_FLOPS,
    MOST_INPUTS,
    Group,
    inlines,
    is_native,
    is_uneven,
    only_checks,
)
from morpho.passes.fusion.group import make_group


class Fuser:
    """The state of one fusion: group of each node, and which groups each depends on.

    `before` holds all of those as bits, so that a question costs one operation; `after` the direct readers alone, so
    that a change is carried to the groups it concerns and no others.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: dict[int, Group] = {}
        self.home: dict[int, int] = {}  # node serial -> group number; views and inlined leaves have none
        self.before: dict[int, int] = {}  # group number -> bits of groups it depends on, transitively
        self.after: dict[int, set[int]] = {}  # group number -> numbers of groups that read it
        self.merged: dict[int, int] = {}  # number of a group that is no more -> the one it became part of
        self.roots: dict[int, Node] = {}  # serial of a view -> the node it looks at
        self.waits: dict[int, tuple[Node, ...]] = {}  # serial of a view -> what must be there before it is read
        self.made: dict[int, Node] = {}  # group number -> its node, once it is built
        self.count = 0

    # -- bookkeeping ---------------------------------------------------------------------------------------------------
    def new_group(self, space: Shape, axes: tuple[int, ...]) -> Group:
        group = Group(self.count, space, axes)
        self.groups[self.count] = group
        self.before[self.count], self.after[self.count] = 0, set()
        self.count += 1
        return group

    def depends(self, node: Node) -> int:
        """Bits of all groups the value of a node needs, its own group included."""
        bits = 0
        for home in self.homes(node):
            bits |= self.before[home] | 1 << home
        return bits

    def homes(self, node: Node) -> list[int]:
        """Numbers of the groups that a value comes from: what it looks at, and what must be there before."""
        roots = [self.roots.get(part.serial, part) for part in (node, *self.waits.get(node.serial, ()))]
        return [self.home[root.serial] for root in roots if root.serial in self.home]

    def dependents(self, number: int) -> set[int]:
        """Numbers of all groups that need a value of this one, through others too."""
        found: set[int] = set()
        stack = [number]
        while stack:
            for reader in self.after[stack.pop()]:
                while reader in self.merged:
                    reader = self.merged[reader]
                if reader not in found and reader != number:
                    found.add(reader)
                    stack.append(reader)
        return found

    def place(self, node: Node, group: Group) -> None:
        group.nodes.append(node)
        group.flops += node.op.flops
        self.home[node.serial] = group.number
        extra = 0
        for child in node.inputs:
            if self.home.get(child.serial) != group.number:
                extra |= self.depends(child)
                if not inlines(child):  # a number is part of the code
                    group.inputs.add(child.serial)
                for read in self.homes(child):
                    self.after[read].add(group.number)
        extra &= ~(1 << group.number)
        if extra & ~self.before[group.number]:
            self.before[group.number] |= extra
            for other in self.dependents(group.number):
                self.before[other] |= self.before[group.number]

    def merge(self, first: Group, second: Group) -> Group:
        """Two groups become the first one."""
        first.axes = first.axes or second.axes
        first.nodes += second.nodes
        first.full |= second.full
        first.rows |= second.rows
        first.inputs |= second.inputs
        first.flops += second.flops
        old, new = 1 << second.number, 1 << first.number
        both = (self.before[first.number] | self.before[second.number]) & ~(old | new)
        for node in second.nodes:
            self.home[node.serial] = first.number
        del self.groups[second.number], self.before[second.number]
        self.merged[second.number] = first.number
        self.after[first.number] |= self.after.pop(second.number)
        self.before[first.number] = both
        for other in self.dependents(first.number):
            self.before[other] = (self.before[other] & ~old) | new | both
        first.nodes.sort(key=lambda node: self.position[node.serial])
        return first

    def can_merge(self, first: Group, second: Group) -> bool:
        """Same space, compatible axes, and neither memory nor a third group between the two."""
        if first.space != second.space or (first.axes and second.axes and first.axes != second.axes):
            return False
        if self.reads_memory_of(first, second) or self.reads_memory_of(second, first):
            return False
        return not self.between(first, second) and not self.between(second, first)

    def reads_memory_of(self, reader: Group, other: Group) -> bool:
        """Whether one group needs a value of the other in memory: the base of a gather, or a view it cannot hold."""
        for node in reader.nodes:
            for child in node.inputs:
                if other.number in self.homes(child) or other in self.candidates_of(child):
                    held = child.serial in other.full or child.serial in other.rows
                    if not held or child is self.gather_base(node):
                        return True
        return False

    def between(self, early: Group, late: Group) -> bool:
        """Whether a group other than these lies on a path from `early` to `late`."""
        if not self.before[late.number] >> early.number & 1:
            return False
        return any(self.before[late.number] >> number & 1 for number in self.dependents(early.number))

    # -- collecting ----------------------------------------------------------------------------------------------------
    def collect(self, only_single: bool) -> None:
        self.position = {node.serial: i for i, node in enumerate(self.graph.nodes)}
        for node in self.graph.nodes:
            if node.op.name in INLINE or node.op.kind == "source":
                continue
            if is_view(node):
                self.visit_view(node)
            elif is_native(node):
                self.visit(node, only_single)
            else:
                group = self.new_group(node.shape, ())
                self.place(node, group)

    def visit_view(self, node: Node) -> None:
        """A view of a row value may be one too, or the way back to the full space; otherwise it is a read."""
        child = node.inputs[0]
        self.roots[node.serial] = self.roots.get(child.serial, child)
        waits = self.waits.get(child.serial, ())
        if node.op.name == "remat_barrier":
            waits += node.inputs[1:]
        if waits:
            self.waits[node.serial] = waits
        for group in self.candidates_of(child):
            if not group.axes or child.serial not in group.rows:
                continue
            self.hold_view(node, group, group.rows, group.full)

    @staticmethod
    def hold_view(node: Node, group: Group, rows: dict[int, Mapping], full: set[int]) -> bool:
        """Note a view of a row value that is one too, or fills the space; whether it is either."""
        child = node.inputs[0]
        mapping = rows[child.serial]
        if node.op.name == "reshape":
            moved = reshaped(mapping, child.shape, node.shape)
            if moved is not None:
                rows[node.serial] = moved
                return True
        elif node.op.name == "expand" and node.shape == group.space and all(
                size == 1 or axis == d for d, (size, axis) in enumerate(zip(child.shape, mapping, strict=True))):
            full.add(node.serial)
            return True
        return False

    def candidates_of(self, node: Node) -> list[Group]:
        """The group a value is computed in, looking through views."""
        home = self.home.get(root_of(node).serial)
        return [self.groups[home]] if home is not None else []

    def visit(self, node: Node, only_single: bool) -> None:
        base = self.gather_base(node)
        chosen: Group | None = None
        for child in () if only_single else self.joinable(node):
            for group in self.candidates_of(child):
                if group is chosen or not self.fits(node, child, group):
                    continue
                if chosen is None:
                    if self.may_enter(node, base, group):
                        chosen = group
                elif self.can_merge(chosen, group) and self.level(node, child, group) == self.level_in(node, chosen) \
                        and len(chosen.inputs) + len(group.inputs) < MOST_INPUTS \
                        and chosen.flops + group.flops < MOST_FLOPS \
                        and self.may_enter(node, base, chosen, group):
                    chosen = self.merge(chosen, group)
        if chosen is None:
            space = node.inputs[0].shape if node.op.kind == "reduce" else node.shape
            chosen = self.new_group(space, node["axes"] if node.op.kind == "reduce" else ())
        if node.op.kind == "reduce":
            chosen.axes = node["axes"]
        self.assign_level(node, chosen)
        self.place(node, chosen)

    def joinable(self, node: Node) -> tuple[Node, ...]:
        return node.inputs[1:] if node.op.name == "gather" else node.inputs

    def gather_base(self, node: Node) -> Node | None:
        """Value in memory that a gather reads."""
        return node.inputs[0] if node.op.name == "gather" and not only_checks(node) else None

    def fits(self, node: Node, child: Node, group: Group) -> bool:
        """Whether the node's value has a form that the group can hold."""
        if node.op.kind == "reduce":
            return child.serial in group.full and group.axes in ((), node["axes"]) and not self.is_uneven(group, node)
        if len(group.inputs) >= MOST_INPUTS or group.flops + node.op.flops > MOST_FLOPS:
            return False
        return self.level(node, child, group) != ""

    def is_uneven(self, group: Group, reduce: Node) -> bool:
        """Whether a group reads parts of lines, over which a reduction over several axes would look elements up one by
        one: it is a kernel after it, which reads whole lines. Sums of columns walk along the columns."""
        axes = reduce["axes"]
        if sum(group.space[axis] != 1 for axis in axes) < 2 or max(axes) < len(group.space) - 1:
            return False
        read = {child.serial: child for node in group.nodes for child in node.inputs if child.serial in group.inputs}
        return any(child.shape == group.space and is_uneven(child, axes) for child in read.values())

    def level(self, node: Node, child: Node, group: Group) -> str:
        if child.serial in group.full and node.shape == group.space:
            return "full"
        return "row" if child.serial in group.rows and group.axes else ""

    def level_in(self, node: Node, group: Group) -> str:
        for child in self.joinable(node):
            found = self.level(node, child, group)
            if found:
                return found
        return ""

    def may_enter(self, node: Node, base: Node | None, *groups: Group) -> bool:
        """No input may depend on these groups by a way that leaves them; a gather reads its base from memory."""
        bits = sum(1 << group.number for group in groups)
        for child in node.inputs:
            held = child is not base and any(
                self.home.get(child.serial) == group.number or child.serial in group.full or child.serial in group.rows
                for group in groups)
            if not held and self.depends(child) & bits:
                return False
        return True

    def assign_level(self, node: Node, group: Group) -> None:
        if node.op.kind == "reduce":
            group.rows[node.serial] = tuple(None if d in node["axes"] else d for d in range(len(node.shape)))
            if node.inputs[0].serial not in group.full and self.home.get(node.inputs[0].serial) == group.number:
                raise AssertionError("a reduction of a value that is not full")
            return
        levels = {child.serial: self.level(node, child, group) for child in self.joinable(node)}
        rows = [serial for serial, level in levels.items() if level == "row"]
        if rows and "full" not in levels.values():  # with reduced axes of size 1 the shapes do not tell them apart
            group.rows[node.serial] = group.rows[rows[0]]
        else:
            group.full.add(node.serial)

    # -- building ------------------------------------------------------------------------------------------------------
    def build(self) -> Graph:
        """Replace every group of native nodes by a group node, in an order that respects the dependencies."""
        done: dict[int, Node] = {}
        outputs = {node.serial for node in self.graph.outputs}
        order = sorted(self.groups.values(), key=lambda g: (self.before[g.number].bit_count(), g.number))
        for group in order:
            native = bool(group.full or group.rows)
            if not native:
                self.build_alone(group.nodes[0], done)
                continue
            inside = {node.serial for node in group.nodes}
            results = [n for n in group.nodes if n.serial in outputs or self.used_outside(n, group, inside, outputs)]
            inputs = self.external_inputs(group, inside)
            made = self.made[group.number] = self.make(group, results, inputs, done)
            for index, node in enumerate(results):
                done[node.serial] = pick(made, index)
        return Graph(tuple(self.resolve(node, done) for node in self.graph.outputs))

    def build_alone(self, node: Node, done: dict[int, Node]) -> None:
        """A node of no group: a fused op that was not taken apart is one group all the same, others stay."""
        if node.op.composition is None:
            self.resolve(node, done)
            return
        inputs = list(dict.fromkeys(node.inputs))
        made = make_group([in_place_of(node, node.op.composition)], inputs, node.inputs[0].shape, node["axes"])
        done[node.serial] = rebuild(made, [self.resolve(child, done) for child in inputs])

    def make(self, group: Group, results: list[Node], inputs: list[Node], done: dict[int, Node]) -> Node:
        """The group node: the body is cut at the original inputs, then read from their replacements."""
        made = make_group(results, inputs, group.space, group.axes)
        return rebuild(made, [self.resolve(node, done) for node in inputs])

    def resolve(self, node: Node, done: dict[int, Node]) -> Node:
        """A node outside groups rebuilt on what its inputs became; iterative, for long chains of views."""
        stack = [node]
        while stack:
            current = stack[-1]
            if current.serial in done:
                stack.pop()
                continue
            read = current.inputs[:1] if current.op.name == "remat_barrier" else current.inputs
            waiting = [child for child in read if child.serial not in done]
            if waiting:
                stack.extend(waiting)
                continue
            order = [self.built(child, done) for child in current.inputs[len(read):]]
            done[current.serial] = rebuild(current, [*[done[child.serial] for child in read], *order])
            stack.pop()
        return done[node.serial]

    def built(self, node: Node, done: dict[int, Node]) -> Node:
        """Any value of the kernel that computes a node: what only has to wait for it asks no more."""
        root = self.roots.get(node.serial, node)
        made = self.made.get(self.home[root.serial])
        return pick(done[root.serial] if made is None else made, 0)

    def held(self, node: Node, group: Group) -> bool:
        """Whether the group holds the value of a view itself."""
        return is_view(node) and (node.serial in group.full or node.serial in group.rows)

    def used_outside(self, node: Node, group: Group, inside: set[int], outputs: set[int]) -> bool:
        """Whether any user needs the value in memory: one outside the group, or a view that the group does not hold."""
        users, seen = self.graph.users, {node.serial}
        stack = list(users[node.serial])
        while stack:
            user = stack.pop()
            if user.op.name == "remat_barrier" and user.inputs[0] is not node and user.inputs[0].serial not in seen:
                continue  # it waits, and reads nothing
            seen.add(user.serial)
            if user.serial in inside:
                if user.op.name == "gather" and user.inputs[0] is node:
                    return True
                continue
            if not self.held(user, group):
                return True
            if user.serial in outputs:
                return True
            stack.extend(users[user.serial])
        return False

    def external_inputs(self, group: Group, inside: set[int]) -> list[Node]:
        """Values the group reads from memory, in first-use order; constants and index numbers stay inside."""
        found: dict[int, Node] = {}
        for node in group.nodes:
            for child in node.inputs:
                read = child is self.gather_base(node)  # wanted in memory, whatever it is
                if not read and (child.serial in inside or inlines(child)
                                 or self.comes_from(child, group, inside)):
                    continue
                found.setdefault(child.serial, child)
        return list(found.values())

    def comes_from(self, node: Node, group: Group, inside: set[int]) -> bool:
        """A held view whose root is computed in this group."""
        if not self.held(node, group):
            return False
        return maker_of(node).serial in inside
