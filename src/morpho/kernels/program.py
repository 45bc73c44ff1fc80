"""A program: the graph as a list of steps over slots of memory, ready to be compiled and run.

Slots are inputs, results (memory the caller keeps) and temporaries (in one planned arena). A step is a native kernel
with its places and numbers, or a host operation on NumPy arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from morpho.base.dims import Shape, Size, product, upper
from morpho.base.dtypes import DType, bfloat16, bool_
from morpho.cost.crossovers import DEFAULT, Crossovers
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ir.op import Cost
from morpho.kernels.direct_window import DirectProduct, PointwiseProduct, is_direct, is_pointwise
from morpho.kernels.int8 import ByteProduct
from morpho.kernels.loop_spec import LoopKernel
from morpho.kernels.lower_attention import lower_attention, lower_attention_backward
from morpho.kernels.lower_gemm import PRODUCT, Product, as_matrix, batch_stride, current_isa, follows, layout
from morpho.kernels.lower_group import Lowered, lower_body, lower_copy
from morpho.kernels.matmul import ROWS, MatmulKernel
from morpho.kernels.place import Place, as_pairs, look, padded, whole
from morpho.kernels.quantised import QuantisedProduct
from morpho.kernels.reductions import BLOCK, lane_dtype
from morpho.kernels.row_product import RowProduct, way_of
from morpho.kernels.scan import ScanKernel
from morpho.kernels.scatter import lower_scatter
from morpho.kernels.split_group import split_group
from morpho.kernels.tiles import BfloatTiles, ByteTiles
from morpho.kernels.unpacked_gemm import UnpackedProduct, vectors_of_tile
from morpho.kernels.window_gemm import WindowProduct, Windows, kernel_strides
from morpho.passes.fuse import inlines
from morpho.passes.liveness import checked_indices

DIRECT = "matmul (unpacked)"  # the label of a product that reads its right operand as it lies
PRODUCTS = ("matmul", "gemm")  # nodes with a right operand that may be packed
FEW_ROWS = 4
LONG_ROW = 16 * BLOCK


@dataclass(slots=True)
class Slot:
    """Memory for `elements` of a dtype. `kind` is input, result or temporary; `index` counts within the kind."""

    kind: str
    dtype: DType
    elements: Size
    index: int = 0
    offset: int = 0  # of a temporary in the arena, in bytes

    @property
    def nbytes(self) -> int:
        """The most bytes it can need."""
        return upper(self.elements) * self.dtype.itemsize


@dataclass(slots=True)
class Step:
    """One native kernel call."""

    kernel: Any
    places: tuple[Place | None, ...]
    writes: tuple[int, ...]  # positions in `places`
    values: tuple[Size, ...]
    rows: Size
    columns: Size
    label: str
    origin: str
    splits_columns: bool = False
    in_place: bool = False  # every element is read before it is written, so an output may take an input's memory
    epilogue: LoopKernel | None = None  # called by the kernel on every finished tile
    scratch: int = 0  # bytes besides what the kernel always needs
    threads: str = "auto"  # "one" and "many" leave no choice
    operations: Size | None = None  # of the whole step, where rows x columns do not say it
    checked: bool = False  # its indices were found right by an earlier step
    together: int = 1  # how many steps from here on run as one launch; 0 for those after the first

    @property
    def cost(self) -> Cost:
        """Operations, and every element of its operands moved once, at the largest sizes."""
        operations = self.rows * self.columns * self.kernel.flops if self.operations is None else self.operations
        places = {(p.slot, p.offset, p.shape, p.strides): p for p in self.places if p is not None}
        return Cost(upper(operations), sum(_distinct(place) * place.dtype.itemsize for place in places.values()))

    @property
    def work(self) -> int:
        """Operations per column, moving its operands among them."""
        return int(self.kernel.flops) + 2 * len(self.places)

    @property
    def is_product(self) -> bool:
        """Whether rows x columns are the multiply-adds of a product."""
        return self.epilogue is not None or self.label == DIRECT

    @property
    def reads(self) -> list[Place]:
        return [p for i, p in enumerate(self.places) if p is not None and i not in self.writes]

    @property
    def written(self) -> list[Place]:
        return [place for i in self.writes if (place := self.places[i]) is not None]

    def scratch_bytes(self, threads: int, number: Callable[[Size], int] = upper) -> int:
        """Scratch of so many threads together, at the largest sizes or at those that `number` gives."""
        columns = (number(self.columns) + 63) // 64 * 64
        one = columns * self.kernel.scratch_bytes_per_column + self.kernel.scratch_bytes + self.scratch
        return (int(one) + 63) // 64 * 64 * threads  # lines of the cache: steps of a joint launch share a stride

    @property
    def operands(self) -> set[int]:
        """Slots that are read until the step is over, whatever `in_place` says: those of a product's two sides."""
        return {p.slot for p in self.places[:2] if p is not None} if self.epilogue is not None else set()

    @property
    def may_fault(self) -> bool:
        """Whether the step checks indices that no earlier one has."""
        return not self.checked and any(getattr(kernel, "may_fault", False) for kernel in (self.kernel, self.epilogue))


def _reads_first(kernel: LoopKernel) -> bool:
    """Whether a loop reads every element before it writes it."""
    return not kernel.gathers and kernel.reads_before_writing


def _distinct(place: Place) -> int:
    """Elements of a place that lie apart: a broadcast axis repeats them."""
    return upper(product(tuple(size for size, stride in zip(place.shape, place.strides, strict=True) if stride != 0)))


@dataclass(slots=True)
class HostStep:
    """An operation that runs in NumPy between native steps."""

    node: Node
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    label: str
    origin: str
    fallback: bool

    @property
    def reads(self) -> list[Place]:
        return list(self.inputs)


@dataclass
class Program:
    """Steps, slots, and the place of every output."""

    slots: list[Slot] = field(default_factory=list)
    steps: list[Step | HostStep] = field(default_factory=list)
    outputs: list[Place] = field(default_factory=list)
    prepare: list[Step] = field(default_factory=list)  # steps on constants, run once
    kept: dict[int, bool] = field(default_factory=dict)  # slots they write, and whether a call reads them
    copies: int = 0
    arena_bytes: int = 0
    liveness_bytes: int = 0
    reused_bytes: int = 0

    @property
    def kernels(self) -> int:
        return sum(isinstance(step, Step) for step in self.steps)

    @property
    def is_native(self) -> bool:
        return all(isinstance(step, Step) for step in self.steps)


def build_program(graph: Graph, own_outputs: bool, inputs: int, constants: Collection[int] = (),
                  crossovers: Crossovers = DEFAULT, announce: Callable[[Any], None] | None = None) -> Program:
    """Lower a fused graph that is called with `inputs` arguments, read or not. `own_outputs`: every output gets memory
    of its own, none is a view of an input. `constants` are inputs that seldom change. `crossovers` choose among kernels
    of the same bits. `announce` is told every kernel as soon as it is known."""
    return _Builder(graph, own_outputs, inputs, constants, crossovers).build(announce)


class _Builder:
    def __init__(self, graph: Graph, own_outputs: bool, inputs: int, constants: Collection[int],
                 crossovers: Crossovers) -> None:
        self.graph, self.own_outputs, self.constants = graph, own_outputs, constants
        self.crossovers = crossovers
        self.program = Program()
        self.program.slots = [Slot("input", bool_, 0, index) for index in range(inputs)]
        self.places: dict[int, list[Place]] = {}  # node -> place of each of its outputs
        self.packs: dict[Any, Place] = {}  # packed right operands of products
        self.right_operands: Counter[int] | None = None  # how many products have a node, by serial, on their right
        self.fixed: set[int] = set()  # slots that only constants decide, as far as steps were looked at
        self.looked_at = 0
        self.checked: set[tuple[int, Size]] = set()  # indices, by serial, and sizes they are less than
        self.waiting: set[int] = set()  # pads that only windows look at: most of them need no memory

    def build(self, announce: Callable[[Any], None] | None) -> Program:
        program, announced = self.program, 0
        for node in self.graph.parameters:
            strides = node.attributes.get("strides")
            slot = program.slots[node["index"]]
            slot.dtype, slot.elements = node.dtype, product(node.shape)
            place = whole(node["index"], node.shape, node.dtype)
            self.places[node.serial] = [place if strides is None else
                                        Place(node["index"], 0, node.shape, strides, node.dtype)]
        for node in self.graph.nodes:
            if node.serial not in self.places and node.op.kind != "source" and "view" not in node.op.properties:
                if node.op.name == "pad" and self.only_windows(node):
                    self.waiting.add(node.serial)
                else:
                    self.lower(node)
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

    def announce(self, start: int, tell: Callable[[Any], None]) -> int:
        """Tell the kernels of the steps from `start` on; where the next ones begin."""
        for step in self.program.steps[start:]:
            for kernel in (step.kernel, step.epilogue) if isinstance(step, Step) else ():
                if kernel is not None:
                    tell(kernel)
        return len(self.program.steps)

    # -- places --------------------------------------------------------------------------------------------------------
    def new_slot(self, shape: Shape, dtype: DType, kind: str = "temporary") -> Place:
        self.program.slots.append(Slot(kind, dtype, product(shape)))
        return whole(len(self.program.slots) - 1, shape, dtype)

    def output(self, node: Node, results: set[int]) -> Place:
        """Where an output lies; copied into memory of its own if it has none."""
        place = self.place(self.materialised(node))
        slot = self.program.slots[place.slot]
        exact = place.offset == 0 and place.is_contiguous and product(place.shape) == slot.elements
        if self.own_outputs and (not exact or slot.kind == "input" or place.slot in results):
            fresh = self.new_slot(node.shape, node.dtype, "result")
            self.copy(place, fresh, node)
            place = fresh
        if self.program.slots[place.slot].kind == "temporary":
            self.program.slots[place.slot].kind = "result"
        results.add(place.slot)
        return place

    def materialised(self, node: Node) -> Node:
        """A view of a constant or a range as a node that fills memory: it has no memory to look at."""
        root = node
        while "view" in root.op.properties and root.serial not in self.places:
            root = root.inputs[0]
        if inlines(node) and node is not root and node.serial not in self.places \
                and not node.dtype.is_complex:  # a complex constant has memory of its own and is looked at
            self.lower_source(node)
        return node

    def place(self, node: Node) -> Place:
        """Where a value lies, computing it if nothing has yet; views only look."""
        chain = []
        while node.serial not in self.places and "view" in node.op.properties:
            chain.append(node)
            node = node.inputs[0]
        if node.serial in self.waiting:
            self.waiting.discard(node.serial)
            self.lower(node)
        elif node.serial not in self.places:
            self.lower_source(node)
        place = self.places[node.serial][0]
        for view in reversed(chain):
            if view.op.name == "pick":
                place = self.places[view.inputs[0].serial][view["index"]]
            else:
                seen = look(view, place)
                if seen is None:  # a reshape that strides cannot show: one counted copy
                    fresh = self.new_slot(place.shape, place.dtype)
                    self.copy(place, fresh, view)
                    self.program.copies += 1
                    seen = look(view, fresh)
                    assert seen is not None
                place = seen
            self.places[view.serial] = [place]
        return place

    # -- steps ---------------------------------------------------------------------------------------------------------
    def step(self, lowered: Lowered, node: Node, label: str) -> None:
        kernel = lowered.kernel
        if self.is_long(lowered):
            self.split_step(lowered, node, label)
            return
        writes = tuple(i for i, access in enumerate(kernel.accesses) if access.kind == "store")
        reduces = any(i.reduces for i in kernel.instructions)
        self.program.steps.append(Step(
            kernel, lowered.places, writes, lowered.values, lowered.rows, lowered.columns, label, node.origin,
            splits_columns=not reduces, in_place=_reads_first(kernel)))

    @staticmethod
    def is_long(lowered: Lowered, several_walks: bool = False) -> bool:
        """Few rows of very many columns: blocks of a row are then divided among threads, with the same tree."""
        few = isinstance(lowered.rows, int) and lowered.rows <= FEW_ROWS
        long = few and isinstance(lowered.columns, int) and lowered.columns >= LONG_ROW
        kernel = lowered.kernel
        return long and (len(kernel.passes) > 1 and not kernel.transposed if several_walks else kernel.can_split)

    def split_step(self, lowered: Lowered, node: Node, label: str) -> None:
        """A long reduction as two kernels: one value per block, then the blocks of each row together."""
        kernel = lowered.kernel
        blocks = -(-lowered.columns // BLOCK)  # type: ignore[operator]
        partial = tuple(self.new_slot((lowered.rows, blocks), lane_dtype(kernel.instructions[r].dtype))
                        for r in kernel.passes[0].reductions)
        places, values = (*lowered.places, *partial), (*lowered.values, blocks)
        first = len(lowered.places)
        full = tuple(s.access for s in kernel.stores if s.full)
        rows = tuple(s.access for s in kernel.stores if not s.full)
        self.program.steps.append(Step(
            replace(kernel, part="blocks"), places, (*full, *range(first, first + len(partial))), values,
            lowered.rows * blocks, min(BLOCK, lowered.columns), label, node.origin))  # type: ignore[type-var]
        self.program.steps.append(Step(replace(kernel, part="join"), places, rows, values, lowered.rows, blocks,
                                       f"{label} (join)", node.origin))

    def copy(self, source: Place | float | int | bool, target: Place, node: Node) -> None:
        if isinstance(source, Place) and source.dtype.is_complex:
            source, target = as_pairs(source), as_pairs(target)
        self.step(lower_copy(source, target), node, "copy" if isinstance(source, Place) else "fill")

    def lower_source(self, node: Node) -> None:
        """A constant, range or size that is wanted in memory."""
        from morpho.passes.group import make_group

        if node.dtype.is_complex:
            self.lower_host(node, fallback=False)
            return
        target = self.new_slot(node.shape, node.dtype)
        group = make_group([node], [], node.shape, ())
        self.step(lower_body(group, [], [target]), node, node.op.name)
        self.places[node.serial] = [target]

    def lower(self, node: Node) -> None:
        special = {"group": self.lower_group, "concatenate": self.lower_concatenate, "pad": self.lower_pad,
                   "update": self.lower_update, "copy": self.lower_copy_op, "matmul": self.lower_matmul,
                   "matmul_quantised": self.lower_matmul, "matmul_int8": self.lower_matmul, "conv": self.lower_conv,
                   "gemm": self.lower_gemm, "cumulative_sum": self.lower_scan, "cumulative_prod": self.lower_scan,
                   "attention": self.lower_attention, "attention_backward": self.lower_attention,
                   "scatter": self.lower_scatter}
        native = not any(s.dtype.is_complex for s in (*node.outputs, *(c.spec for c in node.inputs)))
        first = len(self.program.steps)
        if node.op.name in special and (native or node.op.name in ("copy", "scatter")):
            special[node.op.name](node)
        else:
            self.lower_host(node, fallback=node.op.kind != "host" and native)
        indices = checked_indices(node)
        if indices and indices <= self.checked:
            for step in self.program.steps[first:]:
                if isinstance(step, Step):
                    step.checked = True
        self.checked |= indices or set()

    def only_windows(self, node: Node) -> bool:
        users = self.graph.users[node.serial]
        return bool(users) and not node.dtype.is_complex and all(user.op.name == "window" for user in users)

    def bordered(self, node: Node) -> Place | None:
        """Windows over a pad that has no memory yet as windows over what it pads."""
        chain = []
        while "view" in node.op.properties and node.op.name != "pick":
            chain.append(node)
            node = node.inputs[0]
        place = padded(self.place(node.inputs[0]), node) if node.serial in self.waiting else None
        for view in reversed(chain):
            place = look(view, place) if place is not None else None
        return place

    def lower_windows(self, node: Node, targets: list[Place]) -> Lowered | None:
        """A group that reads windows over pads, if its kernel can do without memory for the pads."""
        places = [self.bordered(child) for child in node.inputs]
        if all(place is None for place in places):
            return None
        inputs = [place or self.place(child) for place, child in zip(places, node.inputs, strict=True)]
        lowered = lower_body(node, inputs, targets)
        return lowered if lowered.kernel.short else None

    def lower_group(self, node: Node) -> None:
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        lowered, inputs = self.lower_windows(node, targets), []
        if lowered is None:
            inputs = [self.place(child) for child in node.inputs]
            lowered = lower_body(node, inputs, targets)
        names = [n.op.name for n in node["body"].graph.nodes if n.op.kind in ("elementwise", "reduce", "index")]
        shown = "+".join(names[:6]) + ("+..." if len(names) > 6 else "")
        if inputs and self.is_long(lowered, several_walks=True):
            self.split_walks(node, inputs, targets)
        else:
            self.step(lowered, node, shown or "copy")
        self.places[node.serial] = targets

    def split_walks(self, node: Node, inputs: list[Place], targets: list[Place]) -> None:
        """A group of several walks over few long rows: each is lowered by itself, and divided among threads."""
        body = node["body"]
        known = {leaf: inputs[leaf["index"]] for leaf in body.graph.parameters}
        held = dict(zip(body.outputs, targets, strict=True))
        for part, read, made in split_group(node):
            for value in made:
                known[value] = held[value] if value in held else self.new_slot(value.shape, value.dtype)
            names = [n.op.name for n in part["body"].graph.nodes if n.op.kind in ("elementwise", "reduce", "index")]
            self.step(lower_body(part, [known[value] for value in read], [known[value] for value in made]), node,
                      "+".join(names[:6]))

    def lower_copy_op(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        if node.dtype.is_complex:
            self.lower_host(node, fallback=False)
            return
        self.copy(self.place(node.inputs[0]), target, node)
        self.places[node.serial] = [target]

    def lower_concatenate(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        axis, position = node["axis"], 0
        for child in node.inputs:
            part = Place(target.slot, position * target.strides[axis], child.shape, target.strides, node.dtype)
            if product(child.shape) != 0:
                self.copy(self.place(child), part, node)
            position = position + child.shape[axis]
        self.places[node.serial] = [target]

    def lower_pad(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        child = node.inputs[0]
        self.copy(node["value"], target, node)
        offset: Size = 0
        for before, stride in zip(node["before"], target.strides, strict=True):
            offset = offset + before * stride
        self.copy(self.place(child), Place(target.slot, offset, child.shape, target.strides, node.dtype), node)
        self.places[node.serial] = [target]

    def lower_update(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        base, value = node.inputs
        root = base
        while root.op.name in ("expand", "reshape"):
            root = root.inputs[0]
        self.copy(root["value"] if root.op.name == "constant" else self.place(base), target, node)
        offset: Size = 0
        for start, stride in zip(node["starts"], target.strides, strict=True):
            offset = offset + start * stride
        strides = tuple(s * step for s, step in zip(target.strides, node["steps"], strict=True))
        if product(value.shape) != 0:
            self.copy(self.place(value), Place(target.slot, offset, value.shape, strides, node.dtype), node)
        self.places[node.serial] = [target]

    def lower_matmul(self, node: Node) -> None:
        if node.op.name == "matmul" and not node.dtype.is_float:
            self.lower_integer_matmul(node)
            return
        shape = node.shape
        if node.op.name == "matmul_quantised" and shape[-1] == 1:  # a second column, of zeros: tiles are matrices
            shape = (*shape[:-1], 2)
        c = self.new_slot(shape, node.dtype)
        found = self.product(node, shape, False)
        if self.is_direct(node, found):
            self.multiply_directly(node, found, c)
            self.places[node.serial] = [c]
            return
        # Rows and columns of the copy are those of the tiles, also where an axis has one element.
        self.multiply(node, found, lower_copy(found.tile, c, columns=2 if found.swapped else 1), "matmul")
        self.places[node.serial] = [c if shape == node.shape else replace(c, shape=node.shape)]

    def lower_conv(self, node: Node) -> None:
        target = self.new_slot(node.shape, node.dtype)
        found = self.windows(node, node.shape, node.attributes)
        self.multiply(node, found, lower_copy(found.tile, target, columns=2), "conv")
        self.places[node.serial] = [target]

    def lower_gemm(self, node: Node) -> None:
        """A product or a convolution, and the group that follows it."""
        inputs = [self.place(child) for child in node.inputs[2:]]
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        space, columns, windows = node["space"], node["columns"], node["windows"]

        def follow(seen: Place) -> Lowered:
            places = [*inputs[:node["product"]], seen, *inputs[node["product"]:]]
            return lower_body(node, places, targets, columns)

        names = [n.op.name for n in node["body"].graph.nodes if n.op.kind in ("elementwise", "reduce", "index")]
        kind, shown = "conv" if windows else "matmul", "+".join(names[:6])
        if windows:
            found = self.windows(node, node["shape"], dict(windows))
        else:
            found = self.product(node, node["shape"], bool(node["axes"]))
        if not windows and self.is_direct(node, found):
            apart = self.new_slot(node["shape"], node["dtype"])
            self.multiply_directly(node, found, apart)
            self.step(follow(whole(apart.slot, space, apart.dtype)), node, shown)
        elif not self.multiply(node, found, follow(found.seen(space, columns)), f"{kind}+{shown}"):
            apart = self.new_slot(node["shape"], node["dtype"])
            self.multiply(node, found, lower_copy(found.tile, apart, columns=2 if windows else 1), kind)
            self.step(follow(whole(apart.slot, space, apart.dtype)), node, shown)
        self.places[node.serial] = targets

    def windows(self, node: Node, shape: Shape, how: Mapping[str, Any]) -> Product:
        """The convolution of a node's first input by its second."""
        x, weight = (self.place(child) for child in node.inputs[:2])
        if kernel_strides(weight, how["groups"]) is None:
            weight = self.copied(weight, node)
        windows = Windows(how["before"], how["steps"], how["dilations"], how["groups"])
        if is_direct(shape, x, weight, windows):
            return DirectProduct(shape, x, weight, windows)
        return WindowProduct(shape, x, weight, windows, self.crossovers)

    def multiply(self, node: Node, found: Product, after: Lowered, label: str) -> bool:
        """One step for a product whose tiles `after` writes where they belong; False when that kernel cannot run tile
        by tile."""
        if not follows(after):
            return False
        packed = found.b.place if found.packs_right else self.packed(found, node)
        places = [None if p is not None and p.slot == PRODUCT else p for p in after.places]
        writes = tuple(i + 2 for i, access in enumerate(after.kernel.accesses) if access.kind == "store")
        self.program.steps.append(Step(
            found.kernel(), (found.a.place, packed, *places), writes, found.values(after), found.items,
            found.work_per_item, label, node.origin, in_place=_reads_first(after.kernel), epilogue=after.kernel,
            scratch=found.scratch(after.kernel)[2],
            threads=node.attributes.get("threads", "auto"),
            operations=found.batch * found.m * found.n * (2 * found.k + after.kernel.flops)))
        return True

    def is_direct(self, node: Node, found: Product) -> bool:
        """Whether it is a few rows times a matrix that changes from call to call: packing it would take longer than
        the product."""
        return found.has_few_rows and not self.is_fixed(found.b.place) and not self.is_shared(node)

    def is_fixed(self, place: Place) -> bool:
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

    def is_shared(self, node: Node) -> bool:
        """Whether more than two products have this right operand: it is packed once for all of them."""
        if self.right_operands is None:
            self.right_operands = Counter(product.inputs[1].serial for product in self.graph.nodes
                                          if product.op.name in PRODUCTS and len(product.inputs) > 1)
        return self.right_operands[node.inputs[1].serial] > 2

    def multiply_directly(self, node: Node, found: Product, target: Place) -> None:
        """One step that reads the right operand as it lies."""
        a, b, nbytes = found.a, found.b, found.n * found.k * found.dtype.itemsize
        kernel = RowProduct(found.dtype, way_of(layout(b.rows, b.columns, ("rows", "columns")), nbytes))
        tiles, tile = found.direct_tiles
        values = (found.m, found.n, found.k, a.batch, a.rows, a.columns, b.batch, b.rows, b.columns, tiles, tile)
        self.program.steps.append(Step(kernel, (a.place, b.place, target), (2,), values, found.batch * tiles,
                                       found.m * tile * found.k, DIRECT, node.origin,
                                       threads=node.attributes.get("threads", "auto"),
                                       operations=2 * found.batch * found.m * found.n * found.k))

    def product(self, node: Node, shape: Shape, whole_rows: bool) -> Product:
        a, b = (as_matrix(self.place(child), lambda place, n=child: self.copied(place, n)) for child in node.inputs[:2])
        left, by = node.inputs[0], node.attributes.get("by", node.op.name)
        given = (left.shape[-1], a, b, whole_rows, self.crossovers)
        if by == "matmul_int8":
            of_bytes = ByteTiles if current_isa().matrix_units else ByteProduct
            return of_bytes([child.dtype for child in node.inputs[:2]], shape, *given)
        if by == "matmul_quantised":
            if b.columns != 1:
                b = as_matrix(self.copied(b.place, node), lambda place: place)
            return QuantisedProduct(node["kind"], left.dtype, shape, left.shape[-1], a, b, whole_rows, self.crossovers)
        if not whole_rows and self.is_fixed(a.place) and is_pointwise(left.dtype, shape, left.shape[-1], a, b):
            return PointwiseProduct(shape, left.shape[-1], a, b)
        if left.dtype is bfloat16 and current_isa().matrix_units:
            return BfloatTiles(left.dtype, shape, *given)
        found = Product(left.dtype, shape, *given)
        if whole_rows or vectors_of_tile(found, found.tiling) is None or self.is_fixed(b.place) or self.is_shared(node):
            return found
        return UnpackedProduct(left.dtype, shape, *given)

    def packed(self, found: Product, node: Node) -> Place:
        """The right operand in panels; one operand used by several products is packed once, and again where it is read
        again, so that nothing is kept in between."""
        source, values = found.b.place, found.pack_values()
        key = (source, found.pack_kernel(), values, () if self.is_fixed(source) else self.waits(node.inputs[1]))
        if key not in self.packs:
            target = self.new_slot(found.packed_shape, source.dtype)
            panels = found.packed_shape[0] * found.packed_shape[1]
            self.program.steps.append(Step(found.pack_kernel(), (source, target), (1,), values, panels,
                                           found.k * found.register.width, "pack", node.origin))
            self.packs[key] = target
        return self.packs[key]

    @staticmethod
    def waits(node: Node) -> tuple[int, ...]:
        """What must be there before a value is read, by serial."""
        found: list[int] = []
        while "view" in node.op.properties:
            found += [child.serial for child in node.inputs[1:]]
            node = node.inputs[0]
        return tuple(found)

    def copied(self, place: Place, node: Node) -> Place:
        fresh = self.new_slot(place.shape, place.dtype)
        self.copy(place, fresh, node)
        self.program.copies += 1
        return fresh

    def lower_integer_matmul(self, node: Node) -> None:
        a, b = (self.matrix(child, columns_together=i == 1) for i, child in enumerate(node.inputs))
        c = self.new_slot(node.shape, node.dtype)
        m, n, k = node.shape[-2], node.shape[-1], node.inputs[0].shape[-1]
        batch = product(node.shape[:-2])
        tiles = (m + ROWS - 1) // ROWS if isinstance(m, int) else m  # an unknown m has at most m tiles
        values = (m, n, k, batch_stride(a), a.strides[-2], a.strides[-1], batch_stride(b), b.strides[-2],
                  m * n, n, tiles)
        self.program.steps.append(Step(MatmulKernel(node.dtype), (a, b, c), (2,), values, batch * tiles, n * k * ROWS,
                                       "matmul", node.origin))
        self.places[node.serial] = [c]

    def matrix(self, node: Node, columns_together: bool) -> Place:
        """An operand of a product: batch axes with one stride, and for the right one columns side by side."""
        place = self.place(node)
        good = not columns_together or place.strides[-1] == 1 or place.shape[-1] == 1
        return place if good and batch_stride(place) is not None else self.copied(place, node)

    def lower_scan(self, node: Node) -> None:
        source, target = self.place(node.inputs[0]), self.new_slot(node.shape, node.dtype)
        axis = node["axis"]
        outer = [d for d in range(len(node.shape)) if d != axis]
        values: list[Size] = [node.shape[d] for d in outer] + [node.shape[axis]]
        for place in (source, target):
            values += [place.strides[d] for d in outer] + [place.strides[axis]]
        kernel = ScanKernel(node.op.name.removeprefix("cumulative_"), node.dtype, len(outer))
        rows = product(tuple(node.shape[d] for d in outer))
        self.program.steps.append(Step(kernel, (source, target), (1,), tuple(values), rows, node.shape[axis],
                                       node.op.name, node.origin))
        self.places[node.serial] = [target]

    def lower_attention(self, node: Node) -> None:
        inputs = [self.place(child) for child in node.inputs]
        targets = [self.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
        calls = (lower_attention(node, inputs, targets) if node.op.name == "attention" else
                 lower_attention_backward(node, inputs, targets, self.new_slot))
        for call in calls:
            self.program.steps.append(Step(*call, node.op.name, node.origin))
        self.places[node.serial] = targets

    def lower_scatter(self, node: Node) -> None:
        """A copy of the base that the values are put into; where half floats add up, a wide one, rounded at the end."""
        base = self.number(node.inputs[0])
        base = self.place(node.inputs[0]) if base is None else base
        index, value = (self.place(child) for child in node.inputs[1:])
        target = self.new_slot(node.shape, node.dtype)
        self.places[node.serial] = [target]
        if node.dtype.is_complex:  # both parts go to the same place
            assert isinstance(base, Place)
            base, value, target = as_pairs(base), as_pairs(value), as_pairs(target)
            index = Place(index.slot, index.offset, (*index.shape, 2), (*index.strides, 0), index.dtype)
        wide = target
        if node["mode"] == "add" and node.dtype.compute is not node.dtype:
            wide = self.new_slot(target.shape, node.dtype.compute)
        self.copy(base, wide, node)
        found = lower_scatter((index, value, wide), node["axis"], node["mode"])
        self.program.steps.append(Step(found.kernel, (index, value, wide), (2,), found.values, found.items, found.work,
                                       "scatter_add" if node["mode"] == "add" else "scatter", node.origin))
        if wide is not target:
            self.copy(wide, target, node)

    @staticmethod
    def number(node: Node) -> float | int | bool | None:
        """The number that fills a value, where it is one."""
        while node.op.name in ("expand", "reshape", "permute", "slice"):
            node = node.inputs[0]
        return node["value"] if node.op.name == "constant" and not node.dtype.is_complex else None

    def lower_host(self, node: Node, fallback: bool) -> None:
        inputs = tuple(self.place(child) for child in node.inputs)
        targets = tuple(self.new_slot(spec.shape, spec.dtype) for spec in node.outputs)
        self.program.steps.append(HostStep(node, inputs, targets, node.op.name, node.origin, fallback))
        self.places[node.serial] = list(targets)
