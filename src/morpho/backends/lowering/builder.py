"""A program while it is written: its slots, where every value lies in them, and the steps of a loop kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, LoopCall, LoopKernel, lane_dtype
from morpho.backends.kernels.loops.transpose import as_transpose
from morpho.backends.lowering.groups.lower_group import lower_body, lower_copy
from morpho.base.dims import Shape, half_of, product
from morpho.base.dtypes import DType, bool_
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through
from morpho.passes.fusion.candidates import inlines
from morpho.passes.fusion.group import make_group
from morpho.program.program import HostStep, Program, Slot, Step
from morpho.program.view import View, as_pairs, look, whole

FEW_LONG_ROWS = 4
LONG_ROW = 16 * TREE_BLOCK
READ_AGAIN = 8  # rows that read the same elements by a stride
LEAST_PACKED, MOST_PACKED = 16, 1 << 16  # of those elements: a vector or two, and not more than nearby caches hold


def reads_first(kernel: LoopKernel) -> bool:
    """Whether a loop reads every element before it writes it."""
    return not kernel.gathers and kernel.reads_before_writing


def operations(group: Node) -> list[str]:
    """The names of what a group computes, for the label of its step."""
    return [n.op.name for n in group["body"].graph.nodes if n.op.kind in ("elementwise", "reduce", "index")]


def _is_turned(view: View) -> bool:
    """Whether a view shows large rows of memory as columns. A loop along its last axis would read a line of the cache
    for each element, and lines whose addresses are a power of two apart evict each other: at 1024 squared in float32
    a map took 8 times as long as one after a copy by tiles."""
    axes = [(size, stride) for size, stride in zip(view.shape, view.strides, strict=True) if size != 1]
    known = all(isinstance(n, int) for axis in axes for n in axis)
    if len(axes) < 2 or view.part is not None or view.borders or not known:
        return False
    (rows, step), (columns, across) = axes[-2:]
    large = min(rows, columns) >= LEAST_TURNED and rows * columns >= MANY_TURNED
    return bool(step in (1, -1) and abs(across) >= rows and large)


def _is_read_again(view: View) -> bool:
    """Whether a view shows few elements many times over, none of them from a border or a pair."""
    if not all(isinstance(size, int) for size in view.shape) or view.borders or view.part is not None:
        return False
    times = product(tuple(size for size, stride in zip(view.shape, view.strides, strict=True) if stride == 0))
    once = product(tuple(size for size, stride in zip(view.shape, view.strides, strict=True) if stride != 0))
    return times >= READ_AGAIN and LEAST_PACKED <= once <= MOST_PACKED


LEAST_TURNED, MANY_TURNED = 32, 1 << 14  # rows and columns of a view, and elements, from which a copy by tiles pays


def _backwards(view: View, axis: int) -> View:
    """A view from the other end of an axis."""
    strides = tuple(-stride if n == axis else stride for n, stride in enumerate(view.strides))
    return replace(view, offset=view.offset + (view.shape[axis] - 1) * view.strides[axis], strides=strides)


def _forwards(source: View, target: View) -> tuple[View, View]:
    """The views of a copy, read forwards along an axis before the last one that the source has side by side backwards,
    and written backwards: tiles are read so."""
    for axis, (size, step) in enumerate(zip(source.shape[:-1], source.strides, strict=False)):
        if step == -1 and isinstance(size, int) and size > 1 and source.part is None and not source.borders:
            return _backwards(source, axis), _backwards(target, axis)
    return source, target


class Builder(ABC):
    """Base of the lowering of every node; `lower_graph.py` adds the nodes."""

    vector_bits = 0  # of the target, where copies may be made of its vectors

    def __init__(self, inputs: int, own_outputs: bool) -> None:
        self.own_outputs = own_outputs
        self.program = Program()
        self.program.slots = [Slot("input", bool_, 0, index) for index in range(inputs)]
        self.views: dict[int, list[View]] = {}  # node -> where each of its outputs lies
        self.waiting: set[int] = set()  # pads that only windows look at: most of them need no memory

    @abstractmethod
    def lower(self, node: Node) -> None:
        """Write the steps that compute a node, and where its outputs lie."""

    def add(self, step: Step | HostStep) -> None:
        self.program.steps.append(step)

    # -- places --------------------------------------------------------------------------------------------------------
    def new_slot(self, shape: Shape, dtype: DType, kind: str = "temporary") -> View:
        self.program.slots.append(Slot(kind, dtype, product(shape)))
        return whole(len(self.program.slots) - 1, shape, dtype)

    def output(self, node: Node, results: set[int]) -> View:
        """Where an output lies; copied into memory of its own if it has none."""
        place = self.view(self.materialised(node))
        slot = self.program.slots[place.slot]
        if place.dtype.is_complex and not slot.dtype.is_complex and slot.kind == "temporary":  # pairs of a product
            count = half_of(slot.elements)
            assert count is not None
            slot.dtype, slot.elements = place.dtype, count
        exact = place.offset == 0 and place.is_contiguous and product(place.shape) == slot.elements
        taken = not exact or slot.kind == "input" or place.slot in results
        if place.dtype is not slot.dtype or slot.kind == "memory" or (self.own_outputs and taken):
            fresh = self.new_slot(node.shape, node.dtype, "result")
            self.copy(place, fresh, node)
            place = fresh
        if self.program.slots[place.slot].kind == "temporary":
            self.program.slots[place.slot].kind = "result"
        results.add(place.slot)
        return place

    def materialised(self, node: Node) -> Node:
        """A view of a constant or a range as a node that fills memory: it has no memory to look at."""
        root, _ = look_through(node, lambda view: is_view(view) and view.serial not in self.views)
        if inlines(node) and node is not root and node.serial not in self.views \
                and not node.dtype.is_complex:  # a complex constant has memory of its own and is looked at
            self.lower_source(node)
        return node

    def view(self, node: Node) -> View:
        """Where a value lies, computing it if nothing has yet; views only look."""
        node, chain = look_through(node, lambda view: is_view(view) and view.serial not in self.views)
        if node.serial in self.waiting:
            self.waiting.discard(node.serial)
            self.lower(node)
        elif node.serial not in self.views:
            self.lower_source(node)
        place = self.views[node.serial][0]
        for view in reversed(chain):
            if view.op.name == "pick":
                place = self.views[view.inputs[0].serial][view["index"]]
            else:
                seen = look(view, place)
                if seen is None:  # a reshape that strides cannot show: one counted copy
                    seen = look(view, self.copied(place, view))
                    assert seen is not None
                place = seen
            self.views[view.serial] = [place]
        return place

    def copied(self, place: View, node: Node) -> View:
        """The same elements in memory of their own; `program.copies` counts it."""
        fresh = self.new_slot(place.shape, place.dtype)
        self.copy(place, fresh, node)
        self.program.copies += 1
        return fresh

    def side_by_side_inputs(self, lowered: LoopCall, inputs: list[View], node: Node) -> list[View]:
        """The inputs of a loop, those that many rows read by a stride copied side by side first: a vector by a stride
        is a load for each of its elements, in every row."""
        strided = [view for access, view in zip(lowered.kernel.accesses, lowered.views, strict=True)
                   if access.kind == "load" and access.pattern == "strided"]
        if not strided or lowered.kernel.transposed or not self.vector_bits:
            return inputs
        known: dict[View, View] = {}
        for view in inputs:
            if view in strided and view not in known and (_is_read_again(view) or _is_turned(view)):
                known[view] = self.shown_once(view, node)
        return [known.get(view, view) for view in inputs]

    def shown_once(self, view: View, node: Node) -> View:
        """Copy what a view shows into memory of its own, once."""
        once = View(view.slot, view.offset, tuple(1 if stride == 0 else size for size, stride in zip(
            view.shape, view.strides, strict=True)), view.strides, view.dtype)
        fresh = self.copied(once, node)
        return replace(fresh, shape=view.shape, strides=tuple(
            0 if old == 0 else new for old, new in zip(view.strides, fresh.strides, strict=True)))

    # -- steps ---------------------------------------------------------------------------------------------------------
    def step(self, lowered: LoopCall, node: Node, label: str) -> None:
        """The step of a loop kernel, or the two of a long reduction."""
        kernel = lowered.kernel
        if self.is_long(lowered):
            self.split_step(lowered, node, label)
            return
        writes = tuple(i for i, access in enumerate(kernel.accesses) if access.kind == "store")
        reduces = any(i.reduces for i in kernel.instructions)
        self.add(Step(
            kernel, lowered.views, writes, lowered.values, lowered.rows, lowered.columns, label, node.origin,
            splits_columns=not reduces, in_place=reads_first(kernel), threads=self.loop_threads(lowered, node, label)))

    def loop_threads(self, lowered: LoopCall, node: Node, label: str) -> str:
        """Whether the threads share a loop: the driver decides."""
        return "auto"

    @staticmethod
    def is_long(lowered: LoopCall, several_walks: bool = False) -> bool:
        """Few rows of very many columns: blocks of a row are then divided among threads, with the same tree."""
        few = isinstance(lowered.rows, int) and lowered.rows <= FEW_LONG_ROWS
        long = few and isinstance(lowered.columns, int) and lowered.columns >= LONG_ROW
        kernel = lowered.kernel
        return long and (len(kernel.passes) > 1 and not kernel.transposed if several_walks else kernel.can_split)

    def split_step(self, lowered: LoopCall, node: Node, label: str) -> None:
        """A long reduction as two kernels: one value per block, then the blocks of each row together."""
        kernel = lowered.kernel
        blocks = -(-lowered.columns // TREE_BLOCK)
        partial = tuple(self.new_slot((lowered.rows, blocks), lane_dtype(kernel.instructions[r].dtype))
                        for r in kernel.passes[0].reductions)
        places, values = (*lowered.views, *partial), (*lowered.values, blocks)
        first = len(lowered.views)
        full = tuple(s.access for s in kernel.stores if s.full)
        rows = tuple(s.access for s in kernel.stores if not s.full)
        used = tuple(None if i in rows else place for i, place in enumerate(places))  # the second kernel writes rows
        self.add(Step(
            replace(kernel, part="blocks"), used, (*full, *range(first, first + len(partial))), values,
            lowered.rows * blocks, min(TREE_BLOCK, lowered.columns), label, node.origin))
        self.add(Step(replace(kernel, part="join"), places, rows, values, lowered.rows, blocks, f"{label} (join)",
                      node.origin))

    def copy(self, source: View | float | int | bool, target: View, node: Node) -> None:
        if isinstance(source, View) and source.dtype.is_complex:
            source, target = as_pairs(source), as_pairs(target)
        if isinstance(source, View):
            source, target = _forwards(source, target)
        lowered = lower_copy(source, target)
        turned = as_transpose(lowered, self.vector_bits)
        if turned is None:
            self.step(lowered, node, "copy" if isinstance(source, View) else "fill")
            return
        kernel, values = turned
        blocks, block = -(-values[0] // kernel.side), kernel.side * values[1] * kernel.run
        self.add(Step(kernel, lowered.views, (1,), values, blocks, block, "copy (transposed)", node.origin))

    def lower_source(self, node: Node) -> None:
        """A constant, range or size that is wanted in memory."""
        if node.dtype.is_complex:
            self.lower_host(node, fallback=False)
            return
        target = self.new_slot(node.shape, node.dtype)
        group = make_group([node], [], node.shape, ())
        self.step(lower_body(group, [], [target]), node, node.op.name)
        self.views[node.serial] = [target]

    def lower_host(self, node: Node, fallback: bool) -> None:
        inputs = tuple(self.view(child) for child in node.inputs)
        targets = tuple(self.new_slot(spec.shape, spec.dtype) for spec in node.outputs)
        self.add(HostStep(node, inputs, targets, node.op.name, node.origin, fallback))
        self.views[node.serial] = list(targets)
