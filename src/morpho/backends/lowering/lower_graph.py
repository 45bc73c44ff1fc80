"""From a fused graph to a program: every node as steps, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection

from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.kernels.loops.sequential.scan import ScanKernel
from morpho.backends.lowering.builder import operations
from morpho.backends.lowering.control.lower_control import lower_control
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.groups.split_group import split_group
from morpho.backends.lowering.lower_attention import Sizes, lower_attention, lower_attention_backward
from morpho.backends.lowering.lower_buckets import Bucket, BucketLowering
from morpho.backends.lowering.lower_dft import lower_dft
from morpho.backends.lowering.lower_linalg import is_lapack, is_small, lower_lapack, lower_matrix
from morpho.backends.lowering.lower_pages import lower_page_write, lower_paged_attention
from morpho.backends.lowering.lower_rounded import lower_rounded
from morpho.backends.lowering.lower_sort import lower_search, lower_sort
from morpho.backends.lowering.lower_sparse import FOLLOWED
from morpho.backends.lowering.lower_tiles import lower_tiles
from morpho.backends.lowering.matmul.operand_facts import tuned_words
from morpho.base.dims import Size, bounds, product, upper
from morpho.base.dtypes import float32
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DEFAULT, DispatchThresholds
from morpho.cost.tuned_choices import Choice, Problem
from morpho.ir.body import symbols_in
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.ir.views import look_through
from morpho.ops.collective import START
from morpho.passes.fusion.prologue import product_after
from morpho.program.kernel import Kernel
from morpho.program.program import Control, Program, Step
from morpho.program.view import View, look, padded, part_of, whole

OF_PAIRS = frozenset({"copy", "scatter", "complex", "concatenate", "update", "dft"})  # that take complex numbers
SCANS_TOGETHER = 4  # rows whose running sums take turns
SPARSE = ("spmm", "spmm_transposed", "sddmm", "row_reduce", "spgemm_count", "spgemm", "sptrsv", "incomplete_factors")
SCANS = tuple(f"cumulative_{name}" for name in ("sum", "prod", "max", "min", "logsumexp"))


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


def build_program(graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int] = (),
                  thresholds: DispatchThresholds = DEFAULT,
                  announce: Callable[[Kernel], None] | None = None) -> Program:
    """Lower a fused graph for a target; it is called with `inputs` arguments, read or not. `own_outputs`: every output
    gets memory of its own, none is a view of an input. `constants` are inputs that seldom change. `thresholds` choose
    among kernels of the same bits. `announce` is told every kernel as soon as it is known."""
    return GraphLowering(graph, own_outputs, inputs, target, constants, thresholds).build(announce)


class GraphLowering(BucketLowering):
    """Walks a graph once; every kind of node has a method here, or in `lower_matmul.py`."""

    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int],
                 thresholds: DispatchThresholds) -> None:
        super().__init__(graph, own_outputs, inputs, target, constants, thresholds)
        self.vector_bits = 0 if target.kind == "cuda" else target.vector_bits
        self.prepare_destinations()
        self.join_scatters()
        self.buckets: dict[int, Bucket] = {}  # of the outermost graph alone
        self.checked: set[tuple[int, Size]] = set()  # indices, by serial, and sizes they are less than
        self.pairs: dict[int, View] = {}  # serial of a `complex` -> its memory, of which a part may be written already

    def build(self, announce: Callable[[Kernel], None] | None) -> Program:
        program, announced = self.program, 0
        for node in self.graph.parameters:
            strides = node.attributes.get("strides")
            slot = program.slots[node["index"]]
            slot.dtype, slot.elements = node.dtype, product(node.shape)
            place = whole(node["index"], node.shape, node.dtype)
            self.views[node.serial] = [place if strides is None else
                                        View(node["index"], 0, node.shape, strides, node.dtype)]
        self.prepare_buckets()
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
        waits = {"pad": self.only_windows, FOLLOWED: self.waits_for_group}.get(node.op.name, self.only_left)
        if waits(node):
            self.waiting.add(node.serial)
        else:
            self.lower(node)
            self.lowered.add(node.serial)

    def lower_nodes(self) -> None:
        """The steps of every node, into the program of the lowering around."""
        for node in self.graph.nodes:
            self.lower_node(node)

    def inside(self, graph: Graph, outside: set[int], own: frozenset[int]) -> GraphLowering:
        """The lowering of a body, whose steps become part of this program. Slots `outside` it are constants there, its
        `own` may be written over."""
        inner = GraphLowering(graph, False, 0, self.target, self.constants, self.thresholds)
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
        special = {"group": self.lower_group, "concatenate": self.lower_concatenate, "pad": self.lower_pad,
                   "update": self.lower_update, "copy": self.lower_copy_op, "matmul": self.lower_matmul,
                   "matmul_quantised": self.lower_matmul, "matmul_int8": self.lower_matmul, "conv": self.lower_conv,
                   "gemm": self.lower_gemm,
                   **dict.fromkeys(SCANS, self.lower_scan),
                   "paged_attention": self.lower_attention, "write_pages": self.lower_page_write,
                   "quantise_rows": self.lower_rounded, "matmul_rounded": self.lower_rounded,
                   "attention": self.lower_attention, "attention_backward": self.lower_attention,
                   "scatter": self.lower_scatter, "sort": self.lower_sort, "argsort": self.lower_sort,
                   "searchsorted": self.lower_search, "complex": self.lower_complex,
                   "dft": self.lower_dft, "counted": self.lower_counted, "tile_kernel": self.lower_tiles,
                   **dict.fromkeys(SPARSE, self.lower_sparse)}
        if node.op.kind == "control":
            lower_control(self, node)
            return
        native = not any(s.dtype.is_complex for s in (*node.outputs, *(c.spec for c in node.inputs)))
        first = len(self.program.steps)
        if node.serial in self.buckets:
            (self.lower_start if node.op is START else self.lower_wait)(node)
        elif node.op.name in special and (native or node.op.name in OF_PAIRS):
            special[node.op.name](node)
        elif is_small(node):
            self.lower_matrix(node)
        elif is_lapack(node):
            self.lower_lapack(node)
        else:
            self.lower_host(node, fallback=node.op.kind not in ("host", "collective") and native)
        indices = self.indices_checked_by(node)
        if indices and indices <= self.checked:
            for step in self.program.steps[first:]:
                if isinstance(step, Step):
                    step.checked = True
        self.checked |= indices or set()

    def only_left(self, node: Node) -> bool:
        """Whether a group was found to be the left side of a product and nothing else, and still is, or is computed by
        the loop that scatters it."""
        return node.serial in self.joined_groups or (
            bool(node.attributes.get("waits")) and product_after(node, self.graph) is not None)

    def only_windows(self, node: Node) -> bool:
        users = self.graph.users[node.serial]
        return bool(users) and not node.dtype.is_complex and all(user.op.name == "window" for user in users)

    def bordered(self, node: Node) -> View | None:
        """Windows over a pad that has no memory yet as windows over what it pads."""
        node, chain = look_through(node)
        waits = node.op.name == "pad" and node.serial in self.waiting
        place = padded(self.view(node.inputs[0]), node) if waits else None
        for view in reversed(chain):
            place = look(view, place) if place is not None else None
        return place

    def lower_windows(self, node: Node, targets: list[View]) -> LoopCall | None:
        """A group that reads windows over pads, if its kernel can do without memory for the pads."""
        places = [self.bordered(child) for child in node.inputs]
        if all(place is None for place in places):
            return None
        inputs = [place or self.view(child) for place, child in zip(places, node.inputs, strict=True)]
        lowered = lower_body(node, inputs, targets)
        return lowered if lowered.kernel.short else None

    def lower_group(self, node: Node) -> None:
        targets = [self.destination(node, n) or self.result_place(node, n) for n in range(len(node.outputs))]
        if self.lower_followed(node, targets):
            self.views[node.serial] = targets
            return
        lowered, inputs = self.lower_windows(node, targets), []
        if lowered is None:
            inputs = [self.view(child) for child in node.inputs]
            lowered = lower_body(node, inputs, targets)
            packed = self.side_by_side_inputs(lowered, inputs, node)
            if packed != inputs:
                inputs, lowered = packed, lower_body(node, packed, targets)
        if inputs and self.is_long(lowered, several_walks=True):
            self.split_walks(node, inputs, targets)
        else:
            self.step(lowered, node, joined(operations(node)) or "copy")
        self.views[node.serial] = targets

    def split_walks(self, node: Node, inputs: list[View], targets: list[View]) -> None:
        """A group of several walks over few long rows: each is lowered by itself, and divided among threads."""
        body = node["body"]
        known = {leaf: inputs[leaf["index"]] for leaf in body.graph.parameters}
        held = dict(zip(body.outputs, targets, strict=True))
        for part, read, made in split_group(node):
            for value in made:
                known[value] = held[value] if value in held else self.new_slot(value.shape, value.dtype)
            self.step(lower_body(part, [known[value] for value in read], [known[value] for value in made]), node,
                      joined(operations(part)))

    def result_place(self, node: Node, number: int) -> View:
        """Memory for a result of a group: among the pairs of complex numbers where it is one of their parts."""
        spec, users = node.outputs[number], self.graph.users
        value = next((user for user in users[node.serial] if user.op.name == "pick" and user["index"] == number), node)
        for user in users[value.serial] if value is not node or len(node.outputs) == 1 else ():
            if user.op.name == "complex" and user.inputs[0] is not user.inputs[1]:
                pairs = self.pairs.get(user.serial)
                if pairs is None:
                    pairs = self.pairs[user.serial] = self.new_slot(user.shape, user.dtype)
                return part_of(pairs, user.inputs.index(value))
        return self.new_slot(spec.shape, spec.dtype)

    def lower_complex(self, node: Node) -> None:
        """Two parts side by side; those that groups have computed are there already."""
        target = self.pairs.get(node.serial) or self.new_slot(node.shape, node.dtype)
        for index, child in enumerate(node.inputs):
            source, place = self.number_or_place(child), part_of(target, index)
            if source != place and product(node.shape) != 0:
                self.copy(source, place, node)
        self.views[node.serial] = [target]

    def lower_dft(self, node: Node) -> None:
        """A Fourier transform of an array that lies side by side."""
        place = self.view(node.inputs[0])
        place = place if place.is_contiguous else self.copied(place, node)
        target = self.new_slot(node.shape, node.dtype)
        found = lower_dft(node, self.target)
        self.add(Step(found.kernel, (place, target), (1,), found.values, found.rows, found.columns, "fft", node.origin))
        self.views[node.serial] = [target]

    def lower_counted(self, node: Node) -> None:
        """The first part of a line, whose length is a number of the program from here on."""
        place, count = (self.view(child) for child in node.inputs)
        numbers = [step.number for step in self.program.steps if isinstance(step, Control)]
        self.program.steps.append(Control("size", 1 + max(numbers, default=-1), "counted", node.origin, node["size"],
                                          value=count, reads=[count]))
        self.views[node.serial] = [View(place.slot, place.offset, node.shape, place.strides, place.dtype), count]

    def lower_tiles(self, node: Node) -> None:
        lower_tiles(self, node, self.target.kind == "cuda")

    def lower_copy_op(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        self.copy(self.view(node.inputs[0]), target, node)
        self.views[node.serial] = [target]

    def lower_pad(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        child = node.inputs[0]
        self.copy(node["value"], target, node)
        offset: Size = 0
        for before, stride in zip(node["before"], target.strides, strict=True):
            offset = offset + before * stride
        self.copy(self.view(child), View(target.slot, offset, child.shape, target.strides, node.dtype), node)
        self.views[node.serial] = [target]

    def lower_scan(self, node: Node) -> None:
        source, target = self.view(node.inputs[0]), self.new_slot(node.shape, node.dtype)
        axis = node["axis"]
        outer = [d for d in range(len(node.shape)) if d != axis]
        name = node.op.name.removeprefix("cumulative_")
        lanes = self._scan_lanes(name, node, outer, (source, target))
        count = product(tuple(node.shape[d] for d in outer))
        together = SCANS_TOGETHER if self.vector_bits and lanes == 1 and bounds(count)[0] >= SCANS_TOGETHER else 1
        kernel = ScanKernel(name, node.dtype, len(outer), lanes, together)
        strides = [[place.strides[d] for d in (*outer, axis)] for place in (source, target)]
        extents = [node.shape[d] for d in outer]
        chains: dict[str, Size] = {"rows": count} if together > 1 else {}
        if lanes > 1:
            chains, extents[-1] = {"chains": extents[-1]}, -(-extents[-1] // lanes)
        values = kernel.record.values(extents=extents, length=node.shape[axis], source=strides[0], target=strides[1],
                                      **chains)
        rows = -(-product(tuple(extents)) // together)
        self.add(Step(kernel, (source, target), (1,), values, rows, node.shape[axis], node.op.name, node.origin))
        self.views[node.serial] = [target]

    def _scan_lanes(self, name: str, node: Node, outer: list[int], places: tuple[View, View]) -> int:
        """Chains that are computed at once: those beside each other in memory, as many as half a page of vectors."""
        if not self.vector_bits or not outer or name == "logsumexp" or any(
                place.strides[outer[-1]] != 1 or place.part is not None or place.borders for place in places):
            return 1
        count, most = node.shape[outer[-1]], 4 * self.vector_bits // (8 * node.dtype.compute.itemsize)
        if not isinstance(count, int):
            return 1
        return next((lanes for lanes in (most, most // 2, most // 4, most // 8) if lanes > 1 and count >= lanes), 1)

    def lower_sort(self, node: Node) -> None:
        source, target = self.view(node.inputs[0]), self.new_slot(node.shape, node.dtype)
        call = lower_sort(node, source, target)
        self.add(Step(call.kernel, (source, target), (1,), call.values, call.items, call.work, node.op.name,
                      node.origin))
        self.views[node.serial] = [target]

    def lower_search(self, node: Node) -> None:
        line, values = (self.view(child) for child in node.inputs)
        target = self.new_slot(node.shape, node.dtype)
        call = lower_search(node, line, values, target, self.vector_bits)
        self.add(Step(call.kernel, (line, values, target), (2,), call.values, call.items, call.work, node.op.name,
                      node.origin))
        self.views[node.serial] = [target]

    def lower_matrix(self, node: Node) -> None:
        inputs = [self.view(child) for child in node.inputs]
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        call = lower_matrix(node, [*inputs, *targets])
        writes = tuple(range(len(inputs), len(inputs) + len(targets)))
        self.add(Step(call.kernel, (*inputs, *targets), writes, call.values, call.items, call.work, node.op.name,
                      node.origin))
        self.views[node.serial] = targets

    def lower_lapack(self, node: Node) -> None:
        inputs = [self.view(child) for child in node.inputs]
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        if node.op.name == "solve_refined":
            inputs[:1] = self.rounded_matrix(node, inputs[0])
        call = lower_lapack(node, [*inputs, *targets])
        writes = tuple(range(len(inputs), len(inputs) + len(targets)))
        writes = (1, *writes) if node.op.name == "solve_refined" else writes
        whose = "its" if len(call.kernel.routines) == 1 else "their"
        said = f"LAPACK's {', '.join(call.kernel.routines)}, called by {whose} address"
        self.add(Step(call.kernel, (*inputs, *targets), writes, call.values, call.items, 1, node.op.name, node.origin,
                      scratch=call.scratch_bytes, threads="library", operations=call.operations, choice=said))
        self.views[node.serial] = targets

    def rounded_matrix(self, node: Node, matrix: View) -> list[View]:
        """A matrix by rows, and its copy in float32, of numbers of the precision of the factors."""
        matrix = matrix if matrix.is_contiguous else self.copied(matrix, node)
        low, source = self.new_slot(matrix.shape, float32), matrix
        if node["dtype"] is not float32:
            source = self.new_slot(matrix.shape, node["dtype"])
            self.copy(matrix, source, node)
        self.copy(source, low, node)
        return [matrix, low]

    def lower_attention(self, node: Node) -> None:
        inputs = [self.view(child) for child in node.inputs]
        targets = [self.as_reshaped(node, number) for number in range(len(node.outputs))]
        said, threads = "", "auto"
        if node.op.name == "paged_attention":
            calls = [lower_paged_attention(node, inputs, targets, self.target)]
        elif node.op.name == "attention":
            choice = self.attention_choice(node)
            calls = lower_attention(node, inputs, targets, self.target, choice.tile_rows)
            said, threads = tuned_words(choice), self.threads_for(node, choice.threads)
        else:
            calls = lower_attention_backward(node, inputs, targets, self.target, self.new_slot)
        for call in calls:
            self.add(Step(*call[:-1], node.op.name, node.origin, operations=call.operations, choice=said,
                          threads=threads))
        self.views[node.serial] = targets

    def attention_choice(self, node: Node) -> Choice:
        """Rows of a tile and threads, where the tuner has found some."""
        sizes = Sizes(node)
        extent = (sizes.heads, sizes.group * sizes.queries, sizes.keys, sizes.depth)
        key = self.problem_key(node, "attention", node.dtype.name, extent, "causal" if node["causal"] else "")
        return self.tuned(node, Problem(key, "attention", node, tuple(upper(size) for size in extent),
                                        threads=self.target.threads)).choice

    def lower_page_write(self, node: Node) -> None:
        """Each line of the old pages that is not written stays: they may be written over."""
        inputs = [self.view(child) for child in node.inputs]
        if not inputs[0].is_contiguous:
            whole = self.new_slot(node.shape, node.dtype)
            self.copy(inputs[0], whole, node)
            inputs[0] = whole
        target = self.new_slot(node.shape, node.dtype)
        call = lower_page_write(node, inputs, target)
        alone = inputs[1].shape != target.shape  # the new lines must not be taken for the old ones
        self.add(Step(*call[:-1], node.op.name, node.origin, in_place=alone, operations=call.operations))
        self.views[node.serial] = [target]

    def lower_rounded(self, node: Node) -> None:
        """Rows in 8 bits, or their product with weights; operands lie side by side."""
        inputs = [self.flat(child, unit_rows=number == 0 and node.op.name == "quantise_rows")
                  for number, child in enumerate(node.inputs)]
        target = self.new_slot(node.shape, node.dtype)
        call = lower_rounded(node, inputs, target)
        self.add(Step(*call[:-1], node.op.name, node.origin, operations=call.operations))
        self.views[node.serial] = [target]

    def as_reshaped(self, node: Node, number: int) -> View:
        """Memory for a result of a node that can write it line by line: where its axes are permuted and then reshaped,
        as heads are before they are joined, it lies as that wants it, and nothing is copied."""
        spec, users = node.outputs[number], self.graph.users
        picks = [user for user in users[node.serial] if user.op.name == "pick" and user["index"] == number]
        for view in (user for pick in picks for user in users[pick.serial] if user.op.name == "permute"):
            axes, last = view["axes"], len(spec.shape) - 1
            if axes[last] == last and any(user.op.name == "reshape" for user in users[view.serial]):
                place = self.new_slot(view.shape, spec.dtype)
                strides = tuple(place.strides[axes.index(axis)] for axis in range(last + 1))
                return View(place.slot, 0, spec.shape, strides, spec.dtype)
        return self.new_slot(spec.shape, spec.dtype)
