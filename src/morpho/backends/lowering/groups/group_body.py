"""The body of a group as instructions and operands: every node once, seen through views, with strides in the space."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from morpho.backends.kernels.loops.loop_spec import Instruction, constant_text
from morpho.base.dims import Shape, Size, product
from morpho.base.dtypes import DType
from morpho.ir.node import Node, toposort
from morpho.ir.views import reshaped
from morpho.passes.fusion.candidates import only_checks
from morpho.passes.fusion.group import row_shape
from morpho.program.view import View, look

Mapping = tuple[int | None, ...]


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


class GroupBody:
    """Walks the body of one group once, writing instructions and collecting operands."""

    mappings: dict[int, Mapping]  # computed node -> the axis of the space that each of its dimensions runs along
    hashes: dict[int, int]  # node -> `structural_hash`

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
                inputs = tuple(sorted(inputs, key=lambda child: self.hashes[child.serial]))
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
            # Element i of an index range is i: kernels that multiply an index by its step get the index itself.
            self.operands.append(Operand("gather", node.dtype, None, nothing, base.shape[node["axis"]], 1))
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
