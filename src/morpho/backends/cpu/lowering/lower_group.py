"""From a group node to a `LoopKernel` and its arguments: levels, axes, accesses, collapsed loops."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from morpho.backends.cpu.loops.chunk_width import may_be_pipelined
from morpho.backends.cpu.loops.loop_spec import Access, Instruction, LoopCall, LoopKernel, Store, constant_text
from morpho.base.dims import Shape, Size, bounds, product
from morpho.base.dtypes import DType
from morpho.ir.node import Node, toposort
from morpho.ir.views import look_through, reshaped
from morpho.passes.fusion.candidates import only_checks
from morpho.passes.fusion.group import row_shape
from morpho.program.view import View, look

Mapping = tuple[int | None, ...]
LEAST_TRANSPOSED = 8  # rows side by side that make lanes along them worth while
MOST_SHORT = 64  # elements of a window whose reduction is written out: one per lane of the tree
MOST_SHORT_ROW = 12  # elements of a row for which that pays: each is read by itself, for all rows of a chunk
MOST_TURNED = 40  # columns of rows that are turned in blocks, to have lanes along them
MANY_TURNED = 32  # rows side by side that are worth it for any of them
MOST_TURNED_BYTES = 320  # a row, of all operands, that are walked over once
FEW_COLUMNS = 64  # of rows that are reduced; half as many of others
SHORT_CODE = 512  # operations such a kernel may consist of


@dataclass(frozen=True, slots=True)
class Operand:
    """One access before the loops are collapsed: its memory and its stride along every axis of the space."""

    kind: str
    dtype: DType
    view: View | None
    strides: tuple[Size, ...]
    extent: Size = 0  # of the indexed axis of a gather
    step: Size = 0
    guards: tuple[tuple[Size, Size, tuple[Size, ...]], ...] = ()  # size, offset and strides of each border


class GroupLowering:
    """Walks the body of one group once, writing instructions and collecting operands."""

    def __init__(self, space: Shape, axes: tuple[int, ...], inputs: list[View], columns: int = 0,
                 windows: bool = False) -> None:
        self.space, self.axes, self.inputs, self.windows = space, axes, inputs, windows
        self.columns = columns  # trailing axes that must run along the columns; 0: as it suits
        self.operands: list[Operand] = []
        self.instructions: list[Instruction] = []
        self.known: dict[tuple[int, Mapping], int] = {}  # (node, mapping) -> instruction
        self.loads: dict[tuple[object, ...], int] = {}
        self.dimensions: list[Size] = []
        self.identity: Mapping = tuple(range(len(space)))
        self.by_row: Mapping = tuple(None if axis in axes else axis for axis in self.identity)

    # -- instructions --------------------------------------------------------------------------------------------------
    def add(self, name: str, inputs: tuple[int, ...], dtype: DType, full: bool, extra: object = None,
            flops: int = 1) -> int:
        self.instructions.append(Instruction(name, inputs, dtype, full, extra, flops))  # type: ignore[arg-type]
        return len(self.instructions) - 1

    def constant(self, value: float | int | bool, dtype: DType) -> int:
        number = float(value) if dtype.is_float else int(value)
        return self.add("constant", (), dtype, False, constant_text(number))

    def lower(self, outputs: tuple[Node, ...], places: list[View]) -> LoopCall:
        """Instructions for every output and its store; then the loops."""
        self.mappings, self.looks = self.find_mappings(outputs), structural_hash(outputs, self.inputs, self.space)
        stores = []
        for node, place in sorted(zip(outputs, places, strict=True), key=lambda pair: self.looks[pair[0].serial]):
            mapping = self.mappings[node.serial]
            number = self.value(node, mapping)
            strides = self.along(mapping, place)
            self.operands.append(Operand("store", node.dtype, place, strides))
            stores.append(Store(len(self.operands) - 1, number, self.is_full(mapping)))
        return self.finish(tuple(stores))

    def find_mappings(self, outputs: tuple[Node, ...]) -> dict[int, Mapping]:
        """For every computed node of the body, the axis of the space each of its dimensions runs along."""
        found: dict[int, Mapping] = {}
        for node in toposort(outputs):
            if node.op.kind == "reduce":
                found[node.serial] = self.by_row
            elif node.op.name == "reshape" and node.inputs[0].serial in found:
                moved = reshaped(found[node.inputs[0].serial], node.inputs[0].shape, node.shape)
                if moved is not None:
                    found[node.serial] = moved
            elif node.op.name == "expand" and node.inputs[0].serial in found:
                found[node.serial] = self.identity
            elif node.op.kind == "elementwise" or node.op.name == "gather":
                rows = [found[c.serial] for c in node.inputs if found.get(c.serial, self.identity) != self.identity]
                full = any(found.get(c.serial) == self.identity for c in node.inputs) or not rows
                alone = self.by_row if node.shape == row_shape(self.space, self.axes) else self.identity
                found[node.serial] = self.identity if full and node.shape == self.space else (
                    rows[0] if rows else alone)
        for node in outputs:  # a group that only moves: its output is a view of an input
            found.setdefault(node.serial, self.identity)
        return found

    def is_full(self, mapping: Mapping) -> bool:
        return not self.axes or mapping == self.identity

    def value(self, node: Node, mapping: Mapping) -> int:
        """The instruction that computes a node seen under a mapping; iterative over the body's depth."""
        stack: list[tuple[Node, Mapping]] = [(node, mapping)]
        while stack:
            current, under = stack[-1]
            if (current.serial, under) in self.known:
                stack.pop()
                continue
            wanted = self.wanted(current, under)
            waiting = [item for item in wanted if (item[0].serial, item[1]) not in self.known]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            numbers = tuple(self.known[item[0].serial, item[1]] for item in wanted)
            self.known[current.serial, under] = self.instruction(current, under, numbers)
            stack.pop()
        return self.known[node.serial, mapping]

    def wanted(self, node: Node, mapping: Mapping) -> list[tuple[Node, Mapping]]:
        """The inputs an instruction needs, each with the mapping it is seen under."""
        if node.op.name in ("expand", "reshape") and node.inputs[0].serial in self.mappings:
            return [(node.inputs[0], self.mappings[node.inputs[0].serial])]
        if node.op.kind == "reduce":
            return [(node.inputs[0], self.identity)]
        if node.op.name == "gather":
            return [(node.inputs[1], self.mappings.get(node.inputs[1].serial, mapping))]
        if node.op.kind == "elementwise":
            inputs = node.inputs
            if "commutative" in node.op.properties:
                inputs = tuple(sorted(inputs, key=lambda child: self.looks[child.serial]))
            return [(child, self.mappings.get(child.serial, mapping)) for child in inputs]
        return []

    def instruction(self, node: Node, mapping: Mapping, inputs: tuple[int, ...]) -> int:
        if node.op.name in ("expand", "reshape") and node.inputs[0].serial in self.mappings:
            return inputs[0]
        if node.op.kind == "reduce":
            return self.add(f"reduce_{node.op.name}", inputs, node.dtype, False)
        if node.op.name == "gather":
            return self.gather(node, mapping, inputs)
        if node.op.kind == "elementwise":
            name = "exp_nonpositive" if node.op.name == "exp" and self.is_below_top(inputs[0]) else node.op.name
            return self.add(name, inputs, node.dtype, self.is_full(mapping), flops=node.op.flops)
        return self.leaf(node, mapping)

    def is_below_top(self, number: int) -> bool:
        """Whether a value is x minus the maximum of its row: never above zero, or NaN."""
        below = self.instructions[number]
        if below.name != "subtract" or not below.dtype.is_float:
            return False
        x, top = below.inputs
        return self.instructions[top].name == "reduce_max" and self.instructions[top].inputs == (x,)

    def leaf(self, node: Node, mapping: Mapping) -> int:
        """A constant, a size, an index number or a read, seen through views."""
        chain = []
        root = node
        while root.op.name in ("expand", "reshape", "permute", "slice", "window"):
            chain.append(root)
            root = root.inputs[0]
        if root.op.name == "constant":
            return self.constant(root["value"], root.dtype)
        if root.op.name == "dimension":
            self.dimensions.append(root["size"])
            return self.add("dimension", (), root.dtype, False, len(self.dimensions) - 1)
        if root.op.name == "iota":
            strides: tuple[Size, ...] = tuple(int(d == root["axis"]) for d in range(len(root.shape)))
            place = View(-1, 0, root.shape, strides, root.dtype)
        else:
            place = self.inputs[root["index"]]
        place = _seen_through(chain, place)
        kind = "index" if root.op.name == "iota" else "load"
        return self.converted(self.read(kind, place, mapping), place.dtype, node.dtype, self.is_full(mapping))

    def converted(self, number: int, held: DType, wanted: DType, full: bool) -> int:
        """A value read as the dtype it means: the sums of a product of half floats lie in float32."""
        return number if held is wanted else self.add("cast", (number,), wanted, full)

    def read(self, kind: str, place: View, mapping: Mapping) -> int:
        strides = self.along(mapping, place)
        full = self.is_full(mapping)
        key = (place.slot if kind == "load" else -1, strides, place.offset, place.borders, full, place.dtype)
        if key in self.loads:
            return self.loads[key]
        guards = tuple((border.size, border.offset, self.along(mapping, View(-1, 0, place.shape, border.strides,
                                                                              place.dtype)))
                       for border in place.borders)
        self.operands.append(Operand(kind, place.dtype, place, strides, guards=guards))
        number = self.add(kind, (), place.dtype, full, len(self.operands) - 1)
        if kind == "index" and place.offset != 0:  # a sliced range starts elsewhere
            if isinstance(place.offset, int):
                start = self.constant(place.offset, place.dtype)
            else:
                self.dimensions.append(place.offset)
                start = self.add("dimension", (), place.dtype, False, len(self.dimensions) - 1)
            number = self.add("add", (number, start), place.dtype, full)
        self.loads[key] = number
        return number

    def gather(self, node: Node, mapping: Mapping, inputs: tuple[int, ...]) -> int:
        base = node.inputs[0]
        if only_checks(node):
            nothing = (0,) * len(self.space)
            self.operands.append(Operand("gather", node.dtype, None, nothing, base.shape[node["axis"]]))
            return self.add("gather", inputs, node.dtype, self.is_full(mapping), len(self.operands) - 1)
        chain = []
        while base.op.name != "parameter":
            chain.append(base)
            base = base.inputs[0]
        place = _seen_through(chain, self.inputs[base["index"]])
        axis = node["axis"]
        rest = tuple(0 if d == axis else s for d, s in enumerate(place.strides))
        strides = self.along(mapping, View(place.slot, place.offset, node.shape, rest, place.dtype))
        self.operands.append(Operand("gather", place.dtype, place, strides, place.shape[axis], place.strides[axis]))
        return self.add("gather", inputs, node.dtype, self.is_full(mapping), len(self.operands) - 1)

    def along(self, mapping: Mapping, place: View) -> tuple[Size, ...]:
        """Strides of a place along every axis of the space; axes it does not have step by 0."""
        result: list[Size] = [0] * len(self.space)
        for axis, size, stride in zip(mapping, place.shape, place.strides, strict=True):
            if axis is not None and size != 1:
                result[axis] = stride
        return tuple(result)

    # -- loops ---------------------------------------------------------------------------------------------------------
    def finish(self, stores: tuple[Store, ...]) -> LoopCall:
        """Collapse axes that every operand walks as one, and fix each operand's pattern along the columns."""
        outer = [axis for axis in range(len(self.space)) if axis not in self.axes]
        inner = list(self.axes)
        if self.columns and not self.axes:
            outer_loops, inner_loops = self.collapse(outer[:-self.columns]), self.collapse(outer[-self.columns:])
        elif not self.axes and outer:  # a map: the last axes run along the columns
            loops = self.collapse(outer)
            outer_loops, inner_loops = loops[:-1], loops[-1:]
        else:
            outer_loops, inner_loops = self.collapse(outer), self.collapse(inner)
        moving = len(self.operands) + sum(len(operand.guards) for operand in self.operands)
        outer_loops = outer_loops or [(1, [0] * moving)]
        inner_loops = inner_loops or [(1, [0] * moving)]
        turned = self.turned_columns(outer_loops, inner_loops)
        short = () if turned else self.short_extents(stores, outer_loops, inner_loops)
        transposed = bool(short or turned) or self.is_transposed(outer_loops, inner_loops)
        extents = [loop[0] for loop in inner_loops]
        accesses = tuple(Access(o.kind, o.dtype, self.pattern([loop[1][n] for loop in inner_loops], extents)
                                if o.view is not None else "none",
                                self.across(o, outer_loops[-1][1][n], bool(short)) if transposed else "",
                                len(o.guards), constant_text(o.view.fill) if o.guards and o.view else "")
                         for n, o in enumerate(self.operands))
        kernel = LoopKernel(len(outer_loops), len(inner_loops), accesses, tuple(self.instructions), stores, transposed,
                            short=short, turned=turned).with_halves_as_bits
        values = self.numbers(kernel, outer_loops, inner_loops)
        places = tuple(o.view if o.kind != "index" else None for o in self.operands)
        rows, columns = (product(tuple(loop[0] for loop in loops)) for loops in (outer_loops, inner_loops))
        few = FEW_COLUMNS if self.axes else FEW_COLUMNS // 2
        if rows != 1 and not transposed and bounds(columns)[1] <= few and may_be_pipelined(kernel):
            kernel = replace(kernel, few_columns=True)
        return LoopCall(kernel, places, values, rows, columns)

    def numbers(self, kernel: LoopKernel, outer: list[tuple[Size, list[Size]]],
                inner: list[tuple[Size, list[Size]]]) -> tuple[Size, ...]:
        """The kernel's numbers, in the order of its record."""
        loops, count = outer + inner, len(self.operands)
        gathers = [operand for operand in self.operands if operand.kind == "gather"]
        guards = [guard for operand in self.operands for guard in operand.guards]
        return kernel.record.values(
            outer=[loop[0] for loop in outer], inner=[loop[0] for loop in inner],
            strides=[loop[1][n] for n in range(count) for loop in loops], dimensions=self.dimensions,
            gathers=[n for operand in gathers for n in (operand.extent, operand.step)],
            guards=[n for number, (size, start, _) in enumerate(guards)
                    for n in (size, start, *(loop[1][count + number] for loop in loops))])

    def collapse(self, axes: list[int]) -> list[tuple[Size, list[Size]]]:
        """Loops as (extent, stride of each operand), outermost first; neighbours that walk as one are joined."""
        loops: list[tuple[Size, list[Size]]] = []
        for axis in axes:
            extent = self.space[axis]
            if extent == 1:
                continue
            strides = [operand.strides[axis] for operand in self.operands]
            strides += [guard[2][axis] for operand in self.operands for guard in operand.guards]
            if loops and all(before == step * extent for before, step in zip(loops[-1][1], strides, strict=True)):
                loops[-1] = (loops[-1][0] * extent, strides)
            else:
                loops.append((extent, strides))
        return loops

    def short_extents(self, stores: tuple[Store, ...], outer: list[tuple[Size, list[Size]]],
                      inner: list[tuple[Size, list[Size]]]) -> tuple[int, ...]:
        """The extents of small windows and very short rows that are reduced in one walk; () for everything else."""
        if bounds(outer[-1][0])[1] < 2:  # lanes run along the rows
            return ()
        extents = tuple(loop[0] for loop in inner if isinstance(loop[0], int))
        if not self.axes or len(extents) < len(inner) or any(store.full for store in stores):
            return ()
        if any(operand.kind not in ("load", "store") for operand in self.operands):
            return ()
        steps = [step for operand in self.operands for guard in operand.guards for step in guard[2]]
        if any(bounds(step)[0] < 0 for step in steps):  # borders are met in ascending order
            return ()
        count = product(extents)
        if not self.windows and (not isinstance(count, int) or count > MOST_SHORT_ROW
                                 or bounds(outer[-1][0])[1] < LEAST_TRANSPOSED):
            return ()
        flops = sum(i.flops + 1 for i in self.instructions if i.full)
        fits = isinstance(count, int) and 0 < count <= MOST_SHORT and count * flops <= SHORT_CODE
        return extents if fits and not self.walks_again() else ()

    def walks_again(self) -> bool:
        """Whether a value of the columns needs a reduction's: then one walk is not enough."""
        after: set[int] = set()
        for number, instruction in enumerate(self.instructions):
            if instruction.reduces or any(i in after for i in instruction.inputs):
                after.add(number)
        return any(self.instructions[number].full for number in after)

    def across(self, operand: Operand, stride: Size, short: bool) -> str:
        """An operand's step along rows side by side; every second element has a load of its own in short kernels."""
        return "second" if short and stride == 2 and operand.kind == "load" else self.pattern([stride])

    def turned_columns(self, outer: list[tuple[Size, list[Size]]], inner: list[tuple[Size, list[Size]]]) -> int:
        """Room for the columns of rows that are so short that it pays to turn blocks of them, for lanes along the rows;
        0 for others."""
        (columns, steps), (rows, strides) = inner[-1], outer[-1]
        if not self.axes or self.columns or len(inner) > 1:  # parts of products find their columns as they are
            return 0
        if not isinstance(columns, int) or not 1 < columns <= MOST_TURNED:
            return 0
        if self.looks_up() or any(operand.guards for operand in self.operands):
            return 0
        moving = [n for n, operand in enumerate(self.operands) if operand.kind in ("load", "store")]
        along = [n for n in moving if steps[n] == 1 and strides[n] not in (0, 1)]
        if not along or any(steps[n] not in (0, 1) for n in moving):
            return 0
        return -(-columns // 8) * 8 if self.is_worth_turning(columns, bounds(rows)[1], along, steps, strides) else 0

    def is_worth_turning(self, columns: int, rows: int, along: list[int], steps: list[Size],
                         strides: list[Size]) -> bool:
        """By times of a Neoverse N1 and of a Xeon (notes/)."""
        sizes = [self.operands[n].dtype.itemsize for n in along]
        anew = any(i.name == "load" and i.full and steps[i.access] == 0 and strides[i.access] not in (0, 1)
                   for i in self.instructions)  # a number of every row that is picked up again for each column
        if columns > MOST_TURNED // 2 and (anew or rows < MANY_TURNED):
            return False
        if self.walks_again():
            return rows >= LEAST_TRANSPOSED
        least = max(min(8, 16 // size) for size in sizes)  # a square; a single walk must pay for the turning
        return rows >= MANY_TURNED and least <= columns and columns * sum(sizes) <= MOST_TURNED_BYTES

    def looks_up(self) -> bool:
        """Whether something is looked up; an index of a row that is only checked is none."""
        return any(operand.kind == "gather" and operand.view is not None for operand in self.operands) or any(
            i.name == "gather" and i.full for i in self.instructions)

    def is_transposed(self, outer: list[tuple[Size, list[Size]]], inner: list[tuple[Size, list[Size]]]) -> bool:
        """Whether a reduction's operands lie side by side along the rows, not along the columns."""
        if not self.axes or self.looks_up():
            return False
        if bounds(outer[-1][0])[1] < LEAST_TRANSPOSED:
            return False
        loads = [n for n, operand in enumerate(self.operands) if operand.kind in ("load", "store")]
        along_rows = sum(outer[-1][1][n] == 1 and inner[-1][1][n] != 0 for n in loads)
        along_columns = sum(inner[-1][1][n] == 1 for n in loads)
        return along_rows > along_columns

    @staticmethod
    def pattern(strides: list[Size], extents: Sequence[Size] = ()) -> str:
        """How an operand walks along the columns; it may walk several axes as one where others cannot."""
        if all(s == 0 for s in strides):
            return "zero"
        joined = (step * size for step, size in zip(strides[1:], extents[1:], strict=True))
        if any(before != after for before, after in zip(strides, joined, strict=False)):
            return "general"
        strides = strides[-1:]
        return "unit" if strides[0] == 1 else "strided"


def _seen_through(views: list[Node], place: View) -> View:
    """A place behind views, the last of which is the first to look through."""
    for view in reversed(views):
        seen = look(view, place)
        if seen is None:
            raise RuntimeError(f"a view inside a group needs a copy: {view!r}")
        place = seen
    return place


def structural_hash(outputs: tuple[Node, ...], places: Sequence[View], space: Shape) -> dict[int, int]:
    """A number for each node of a body that says how it is computed and what for, whatever it is computed from and
    whatever its size. Operands and results are put in its order, so that equal layers of a model, and updates of
    weights of different shapes, have equal kernels."""
    order = toposort(outputs)
    looks: dict[int, int] = {}
    for node in order:
        inputs = [looks[child.serial] for child in node.inputs]
        if "commutative" in node.op.properties:
            inputs.sort()
        steps = places[node["index"]].strides if node.op.name == "parameter" else (1,) * len(node.shape)
        extents = _extents(node.shape, steps, space)
        known = f"{node.op.name} {node.dtype} {node.attributes.get('value')} {extents} {inputs}"
        looks[node.serial] = zlib.crc32(known.encode())
    # Of two operands that look alike, one may be used elsewhere too.
    uses: dict[int, list[tuple[int, int]]] = {node.serial: [] for node in order}
    for node in outputs:
        uses[node.serial].append((0, -1))
    for node in reversed(order):
        looks[node.serial] = zlib.crc32(f"{looks[node.serial]} {sorted(uses[node.serial])}".encode())
        for position, child in enumerate(node.inputs):
            place = 0 if "commutative" in node.op.properties else position
            uses[child.serial].append((looks[node.serial], place))
    return looks


def _extents(shape: Shape, strides: tuple[Size, ...], space: Shape) -> str:
    """Where a value repeats, by neighbouring axes: `1` for a number, `n` for all of a space, `1n` for a row of it."""
    whole = product(shape) == product(space)
    letters = "".join("1" if step == 0 or (not whole and size == 1) else "n"
                      for size, step in zip(shape, strides, strict=True) if size != 1 or not whole) or "1"
    return "".join(letter for i, letter in enumerate(letters) if i == 0 or letters[i - 1] != letter)


def lower_body(node: Node, inputs: list[View], outputs: list[View], columns: int = 0) -> LoopCall:
    """The kernel of a node with a body (a group, or what follows a product), reading `inputs` and writing `outputs`;
    the last `columns` axes run along its columns."""
    windows = any(_sees_windows(child) for child in node.inputs)
    lowering = GroupLowering(node["space"], node["axes"], inputs, columns, windows)
    return lowering.lower(node["body"].outputs, outputs)


def _sees_windows(node: Node) -> bool:
    return any(view.op.name == "window" for view in look_through(node)[1])


def lower_copy(source: View | float | int | bool, target: View, columns: int = 0) -> LoopCall:
    """A kernel that copies one place to another of the same shape, or fills one with a number."""
    lowering = GroupLowering(target.shape, (), [], columns)
    if isinstance(source, View):
        number = lowering.converted(lowering.read("load", source, lowering.identity), source.dtype, target.dtype, True)
    else:
        number = lowering.constant(source, target.dtype)
    lowering.operands.append(Operand("store", target.dtype, target, lowering.along(lowering.identity, target)))
    return lowering.finish((Store(len(lowering.operands) - 1, number, True),))


