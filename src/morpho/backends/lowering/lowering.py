"""A program while it is written: its slots, where every value lies in them, its steps, and what is known of operands.

Which steps a node becomes is decided by the rows of a table (`Way`): those of the CPU and what all devices share are in
`lower_graph.py`, a GPU's in `cuda/lowering.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, LoopCall, LoopKernel, lane_dtype
from morpho.backends.kernels.loops.transpose import as_transpose
from morpho.backends.lowering.groups.joined_scatters import Cluster, find_clusters
from morpho.backends.lowering.groups.lower_group import lower_body, lower_copy
from morpho.base.dims import Shape, Size, half_of, product
from morpho.base.dtypes import DType, bool_
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DispatchThresholds
from morpho.cost.tuned_choices import Choice, Problem, bucket
from morpho.ir.body import symbols_in
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.views import is_view, look_through
from morpho.passes.fusion.candidates import inlines
from morpho.passes.fusion.group import make_group
from morpho.passes.memory.liveness import checked_indices
from morpho.program.co_schedule import LEAST_OF
from morpho.program.kernel import Kernel
from morpho.program.program import HostStep, Program, Slot, Step
from morpho.program.view import View, as_pairs, look, whole

PRODUCTS = ("matmul", "gemm")  # nodes with a right operand that may be packed
FEW_LONG_ROWS = 4
LONG_ROW = 16 * TREE_BLOCK
READ_AGAIN = 8  # rows that read the same elements by a stride
LEAST_TURNED, MANY_TURNED = 32, 1 << 14  # rows and columns of a view, and elements, from which a copy by tiles pays
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


def _is_read_again(view: View) -> bool:
    """Whether a view shows few elements many times over, none of them from a border or a pair."""
    if not all(isinstance(size, int) for size in view.shape) or view.borders or view.part is not None:
        return False
    times = product(tuple(size for size, stride in zip(view.shape, view.strides, strict=True) if stride == 0))
    once = product(tuple(size for size, stride in zip(view.shape, view.strides, strict=True) if stride != 0))
    return times >= READ_AGAIN and LEAST_PACKED <= once <= MOST_PACKED


def after_counts(graph: Graph) -> list[Node]:
    """The nodes in order, each behind those that say what its sizes are."""
    counts = {name: node for node in graph.nodes if node.op.name == "counted" for name in node["size"].symbols}
    if not counts:
        return graph.nodes
    done: dict[int, Node] = {}  # in order
    for last in graph.nodes:
        stack = [last]
        while stack:
            node = stack[-1]
            symbols = symbols_in([node.outputs, list(node.attributes.values())])
            before = [count for name, count in counts.items() if name in symbols and count is not node]
            missing = [one for one in (*before, *node.inputs) if one.serial not in done]
            stack += missing
            if not missing:
                done[stack.pop().serial] = node
    return list(done.values())


def always(node: Node) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Way:
    """A row of the table: how nodes of an op become steps. The first row whose condition holds is tried, and the next
    one where its function declines; `explain()` names the rows that were taken."""

    op: str  # "*" for any: behind all rows of the op itself
    name: str
    lower: Callable[[Lowering, Node], bool | None]  # False: declined, with no step but those of its operands
    when: Callable[[Node], bool] = always
    pairs: bool = False  # takes complex numbers


def by_op(*rows: Way) -> dict[str, tuple[Way, ...]]:
    """The rows of each op, in order."""
    table: dict[str, tuple[Way, ...]] = {}
    for row in rows:
        table[row.op] = (*table.get(row.op, ()), row)
    return table


@dataclass(frozen=True)
class Device:
    """What is lowered differently for a device."""

    ways: Mapping[str, tuple[Way, ...]]
    result_place: Callable[[Lowering, Node, int], View]  # memory for a result of a group
    waits: Callable[[Lowering, Node], bool]  # whether a node is left to whoever can do without memory for it
    begin: Callable[[Lowering], None] = lambda low: None  # writes the first steps of a program
    loop: Callable[[LoopCall], LoopCall] = lambda call: call  # changes a loop kernel before its step is written
    sparse_product: Callable[[Lowering, Node, Step], Step] = lambda low, node, step: step  # the same of such a product
    joins_scatters: bool = True  # whether scatters along one line may be one loop
    model: str | None = None  # behind the names of problems: choices hold for one kind of device


@dataclass
class Bucket:
    """A bucket of gradients that is started once and waited for once: its number among the memories of the program,
    where its parts begin in it and, once they are there, their places."""

    number: int
    wire: DType
    places: list[int]
    count: int
    views: list[View] = field(default_factory=list)


class Lowering:
    """A program of one graph while it is written."""

    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int],
                 thresholds: DispatchThresholds, device: Device) -> None:
        self.graph, self.own_outputs, self.target, self.device = graph, own_outputs, target, device
        self.constants, self.thresholds = constants, thresholds
        self.vector_bits = 0 if target.kind == "cuda" else target.vector_bits  # where copies are made of vectors
        self.program = Program()
        self.program.slots = [Slot("input", bool_, 0, index) for index in range(inputs)]
        self.views: dict[int, list[View]] = {}  # node -> where each of its outputs lies
        self.waiting: set[int] = set()  # pads that only windows look at: most of them need no memory
        self.lowered: set[int] = set()  # nodes whose steps are written
        # Of operands: what is there before the first call, and who shares it.
        self.right_operands: Counter[int] | None = None  # how many products have a node, by serial, on their right
        self.fixed: set[int] = set()  # slots that only constants decide, as far as steps were looked at
        self.looked_at = 0
        self.own: frozenset[int] = frozenset()  # slots of parameters that may be written over: carried values
        self.rows_there: dict[int, View] = {}  # of a node: where the number of its rows lies that are not zeros yet
        self.checked: set[tuple[int, Size]] = set()  # indices, by serial, and sizes they are less than
        # Of families of ops.
        self.packs: dict[Any, View] = {}  # packed right operands of products
        self.regions: dict[int, View] = {}  # update or concatenation -> the memory of its result
        self.placed: set[tuple[int, int]] = set()  # (user, position) of values that lie in their place already
        self.pairs: dict[int, View] = {}  # serial of a `complex` -> its memory, of which a part may be written already
        self.buckets: dict[int, Bucket] = {}  # of the outermost graph alone
        clusters = find_clusters(graph) if device.joins_scatters else []
        self.clusters: dict[int, Cluster] = {node.serial: cluster for cluster in clusters for node in cluster.scatters}
        self.joined_groups: set[int] = {group.serial for cluster in clusters for group in cluster.groups}

    # -- the walk ------------------------------------------------------------------------------------------------------
    def build(self, announce: Callable[[Kernel], None] | None) -> Program:
        program, announced = self.program, 0
        for node in self.graph.parameters:
            strides = node.attributes.get("strides")
            slot = program.slots[node["index"]]
            slot.dtype, slot.elements = node.dtype, product(node.shape)
            place = whole(node["index"], node.shape, node.dtype)
            self.views[node.serial] = [place if strides is None else
                                       View(node["index"], 0, node.shape, strides, node.dtype)]
        self.device.begin(self)
        for node in after_counts(self.graph):
            self.lower_node(node)
            if announce is not None:
                announced = self.announce(announced, announce)
        results: set[int] = set()
        for node in self.graph.outputs:
            program.outputs.append(self.output(node, results))
        if announce is not None:
            self.announce(announced, announce)
        for index, slot in enumerate(s for s in program.slots if s.kind == "result"):
            slot.index = index
        return program

    def lower_node(self, node: Node) -> None:
        """The steps of a node that computes, unless it waits for whoever can do without memory for it."""
        if node.serial in self.views or node.op.kind == "source" or "view" in node.op.properties:
            return
        if self.device.waits(self, node):
            self.waiting.add(node.serial)
        else:
            self.lower(node)
            self.lowered.add(node.serial)

    def lower_nodes(self) -> None:
        """The steps of every node, into the program of the lowering around."""
        for node in self.graph.nodes:
            self.lower_node(node)

    def inside(self, graph: Graph, outside: set[int], own: frozenset[int]) -> Lowering:
        """The lowering of a body, whose steps become part of this program. Slots `outside` it are constants there, its
        `own` may be written over."""
        inner = Lowering(graph, False, 0, self.target, self.constants, self.thresholds, self.device)
        inner.program, inner.fixed = self.program, self.fixed | outside
        inner.looked_at, inner.own = len(self.program.steps), own
        return inner

    def announce(self, start: int, tell: Callable[[Kernel], None]) -> int:
        """Tell the kernels of the steps from `start` on; where the next ones begin."""
        for step in self.program.steps[start:]:
            for kernel in step.kernels if isinstance(step, Step) else ():
                tell(kernel)
        return len(self.program.steps)

    def lower(self, node: Node) -> None:
        """Write the steps of a node by the first row of the table that takes it."""
        native = not any(s.dtype.is_complex for s in (*node.outputs, *(c.spec for c in node.inputs)))
        ways, first = self.device.ways, len(self.program.steps)
        way = next(way for way in (*ways.get(node.op.name, ()), *ways["*"])
                   if (native or way.pairs) and way.when(node) and way.lower(self, node) is not False)
        taken = self.program.ways.setdefault(node.op.name, {})
        taken[way.name] = taken.get(way.name, 0) + 1
        indices = self.indices_checked_by(node)
        if indices and indices <= self.checked:
            for step in self.program.steps[first:]:
                if isinstance(step, Step):
                    step.checked = True
        self.checked |= indices or set()

    def indices_checked_by(self, node: Node) -> set[tuple[int, Size]] | None:
        """Indices that the steps of a node check, including scatters joined with it; see `checked_indices`."""
        cluster = self.clusters.get(node.serial)
        found: set[tuple[int, Size]] = set()
        for part in (node,) if cluster is None else (*cluster.groups, *cluster.scatters):
            indices = checked_indices(part)
            if indices is None:
                return None
            found |= indices
        return found

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

    # -- steps ---------------------------------------------------------------------------------------------------------
    def step(self, lowered: LoopCall, node: Node, label: str) -> None:
        """The step of a loop kernel, or the two of a long reduction."""
        lowered = self.device.loop(lowered)
        kernel = lowered.kernel
        if is_long(lowered):
            split_step(self, lowered, node, label)
            return
        writes = tuple(i for i, access in enumerate(kernel.accesses) if access.kind == "store")
        reduces = any(i.reduces for i in kernel.instructions)
        self.add(Step(
            kernel, lowered.views, writes, lowered.values, lowered.rows, lowered.columns, label, node.origin,
            splits_columns=not reduces, in_place=reads_first(kernel), threads=loop_threads(self, lowered, node, label)))

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

    # -- what is known of operands, and the tuner's choices ------------------------------------------------------------
    def thresholds_of(self, node: Node) -> DispatchThresholds:
        """Those for a product of which its user may have said how many threads it shall have."""
        points = LEAST_OF.get(node.attributes.get("threads", "auto"))
        return self.thresholds if points is None else replace(self.thresholds, parallel_macs=points)

    def problem_key(self, node: Node, kind: str, dtype: str, sizes: Sequence[Size], more: str = "") -> str:
        """The name of a problem that the tuner may have a choice for: sizes in buckets, what is known of the operands,
        threads and instruction set. Sizes within a bucket share a choice: any choice is right for any size."""
        extent = "x".join(str(bucket(size)) for size in sizes)
        words = [kind, dtype, extent, *[more] * bool(more), f"t{self.target.threads}", self.target.isa.name]
        return " ".join(words if self.device.model is None else [*words, f"on {self.device.model}"])

    def tuned(self, node: Node, problem: Problem) -> DispatchThresholds:
        """Those for a problem, which is remembered for whoever tunes this program; a number of threads that its user
        has named stays."""
        self.program.problems.setdefault(problem.key, problem)
        found = self.thresholds_of(node).chosen(problem.key)
        points = LEAST_OF.get(found.choice.threads)
        asked = node.attributes.get("threads", "auto") != "auto"
        return found if points is None or asked else replace(found, parallel_macs=points)

    def offer(self, key: str, ways: Sequence[str]) -> None:
        """Rows of the dispatch table that could have been taken for a problem."""
        self.program.problems[key] = replace(self.program.problems[key], ways=tuple(ways))

    def threads_for(self, node: Node, chosen: str) -> str:
        """Threads of a step: as its user has said, else as the tuner has."""
        asked: str = node.attributes.get("threads", "auto")
        return chosen or "auto" if asked == "auto" else asked

    def is_shared(self, node: Node) -> bool:
        """Whether more than two products have this right operand: it is packed once for all of them."""
        if self.right_operands is None:
            self.right_operands = Counter(product.inputs[1].serial for product in self.graph.nodes
                                          if product.op.name in PRODUCTS and len(product.inputs) > 1)
        return self.right_operands[node.inputs[1].serial] > 2

    def is_fixed(self, place: View) -> bool:
        """Whether a value is there before the first call: a constant, or made of constants alone (`hoist.py`)."""
        for step in self.program.steps[self.looked_at:]:
            if isinstance(step, HostStep):
                continue
            targets = {place.slot for place in step.written}
            if step.reads and all(self.is_constant(read.slot) for read in step.reads):
                self.fixed |= targets
            else:
                self.fixed -= targets
        self.looked_at = len(self.program.steps)
        return self.is_constant(place.slot)

    def is_constant(self, number: int) -> bool:
        slot = self.program.slots[number]
        return number in self.fixed or (slot.kind == "input" and slot.index in self.constants)

    def number_or_place(self, node: Node) -> View | float | int | bool:
        """Source of a copy: the number that fills a value, which then needs no memory, or where it lies."""
        number = number_of(node)
        return self.view(node) if number is None else number


def number_of(node: Node) -> float | int | bool | None:
    """The number that fills a value, where it is one."""
    while node.op.name in ("expand", "reshape", "permute", "slice"):
        node = node.inputs[0]
    return node["value"] if node.op.name == "constant" and not node.dtype.is_complex else None


def place_of(low: Lowering, node: Node) -> View:
    """Where a value lies, in memory of its own where it is a constant."""
    return low.view(low.materialised(node))


def flat(low: Lowering, node: Node, unit_rows: bool = False) -> View:
    """An operand whose elements lie side by side; with `unit_rows` its rows may lie apart."""
    place = low.view(node)
    fine = place.is_contiguous or (unit_rows and place.strides[-1] == 1)
    return place if fine else low.copied(place, node)


def tuned_words(choice: Choice) -> str:
    """Words of `explain()` for a step for which the tuner chose; empty if it did not."""
    return "" if choice.is_default else f"from the tuner: {choice.said()}"


def loop_threads(low: Lowering, lowered: LoopCall, node: Node, label: str) -> str:
    """Whether the threads share a loop, where the tuner has a choice."""
    if low.target.threads < 2:
        return "auto"
    dtype = node.outputs[0].dtype.name
    key = low.problem_key(node, f"loop {label}"[:60].strip(), dtype, (lowered.rows, lowered.columns))
    return low.tuned(node, Problem(key, "loop", node, threads=low.target.threads)).choice.threads or "auto"


def is_long(lowered: LoopCall, several_walks: bool = False) -> bool:
    """Few rows of very many columns: blocks of a row are then divided among threads, with the same tree."""
    few = isinstance(lowered.rows, int) and lowered.rows <= FEW_LONG_ROWS
    long = few and isinstance(lowered.columns, int) and lowered.columns >= LONG_ROW
    kernel = lowered.kernel
    return long and (len(kernel.passes) > 1 and not kernel.transposed if several_walks else kernel.can_split)


def split_step(low: Lowering, lowered: LoopCall, node: Node, label: str) -> None:
    """A long reduction as two kernels: one value per block, then the blocks of each row together."""
    kernel = lowered.kernel
    blocks = -(-lowered.columns // TREE_BLOCK)
    partial = tuple(low.new_slot((lowered.rows, blocks), lane_dtype(kernel.instructions[r].dtype))
                    for r in kernel.passes[0].reductions)
    places, values = (*lowered.views, *partial), (*lowered.values, blocks)
    first = len(lowered.views)
    full = tuple(s.access for s in kernel.stores if s.full)
    rows = tuple(s.access for s in kernel.stores if not s.full)
    used = tuple(None if i in rows else place for i, place in enumerate(places))  # the second kernel writes rows
    low.add(Step(
        replace(kernel, part="blocks"), used, (*full, *range(first, first + len(partial))), values,
        lowered.rows * blocks, min(TREE_BLOCK, lowered.columns), label, node.origin))
    low.add(Step(replace(kernel, part="join"), places, rows, values, lowered.rows, blocks, f"{label} (join)",
                 node.origin))


def side_by_side_inputs(low: Lowering, lowered: LoopCall, inputs: list[View], node: Node) -> list[View]:
    """The inputs of a loop, those that many rows read by a stride copied side by side first: a vector by a stride
    is a load for each of its elements, in every row."""
    strided = [view for access, view in zip(lowered.kernel.accesses, lowered.views, strict=True)
               if access.kind == "load" and access.pattern == "strided"]
    if not strided or lowered.kernel.transposed or not low.vector_bits:
        return inputs
    known: dict[View, View] = {}
    for view in inputs:
        if view in strided and view not in known and (_is_read_again(view) or _is_turned(view)):
            known[view] = shown_once(low, view, node)
    return [known.get(view, view) for view in inputs]


def shown_once(low: Lowering, view: View, node: Node) -> View:
    """Copy what a view shows into memory of its own, once."""
    once = View(view.slot, view.offset, tuple(1 if stride == 0 else size for size, stride in zip(
        view.shape, view.strides, strict=True)), view.strides, view.dtype)
    fresh = low.copied(once, node)
    return replace(fresh, shape=view.shape, strides=tuple(
        0 if old == 0 else new for old, new in zip(view.strides, fresh.strides, strict=True)))


def operand_word(low: Lowering, node: Node) -> str:
    """How a right operand comes: there before the first call or not, and which views look at it."""
    root, views = look_through(node, is_view)
    fixed = root.op.name == "parameter" and root["index"] in low.constants
    return "+".join(["fixed" if fixed else "given", *(view.op.name for view in views)])
