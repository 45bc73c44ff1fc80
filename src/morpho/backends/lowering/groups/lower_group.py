"""From a group to a `LoopKernel` and its arguments: collapsed loops, access patterns, the axis that lanes run along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from morpho.backends.kernels.loops.chunk_width import may_be_pipelined
from morpho.backends.kernels.loops.loop_spec import Access, LoopCall, LoopKernel, Store, constant_text
from morpho.backends.kernels.loops.pairs import PARTS, with_pairs
from morpho.backends.lowering.groups.group_body import GroupBody, Operand, structural_hash
from morpho.base.dims import Size, bounds, product
from morpho.ir.node import Node
from morpho.ir.views import look_through
from morpho.ops.elementwise import COSTLY
from morpho.program.view import View

LEAST_TRANSPOSED = 8  # adjacent rows from which lanes run along them
MOST_SHORT = 64  # elements of a window whose reduction is unrolled: one per lane of the tree
MOST_SHORT_ROW = 12  # elements of a contiguous row for which that pays: each is a strided load for all rows
MOST_TURNED = 40  # columns of rows that are transposed in blocks, to have lanes along them
MANY_TURNED = 32  # adjacent rows for which that pays with any number of columns
MOST_TURNED_BYTES = 320  # bytes of a row, of all operands, of a kernel with a single walk
FEW_COLUMNS = 64  # of rows that are reduced, up to which a software pipeline does not pay; half as many of others
SHORT_ROW = 512  # columns of a row whose last chunk matters
SHORT_CODE = 512  # operations of an unrolled window


class GroupLowering(GroupBody):
    """A body with its loops."""

    def lower(self, outputs: tuple[Node, ...], places: list[View]) -> LoopCall:
        """Instructions for every output and its store; then the loops."""
        self.mappings, self.hashes = self.find_mappings(outputs), structural_hash(outputs, self.inputs, self.space)
        stores = []
        for node, place in sorted(zip(outputs, places, strict=True), key=lambda pair: self.hashes[pair[0].serial]):
            mapping = self.mappings[node.serial]
            number = self.value(node, mapping)
            strides = self.along(mapping, place)
            self.operands.append(Operand("store", node.dtype, place, strides))
            stores.append(Store(len(self.operands) - 1, number, self.is_full(mapping)))
        return self.finish(tuple(stores))

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
        block_transpose = self.block_transpose_columns(outer_loops, inner_loops)
        short = () if block_transpose else self.short_extents(stores, outer_loops, inner_loops)
        transposed = bool(short or block_transpose) or self.is_transposed(outer_loops, inner_loops)
        extents = [loop[0] for loop in inner_loops]
        accesses = tuple(Access(o.kind, o.dtype, self.pattern([loop[1][n] for loop in inner_loops], extents)
                                if o.view is not None else "none",
                                self.across(o, outer_loops[-1][1][n], bool(short)) if transposed else "",
                                len(o.guards), constant_text(o.view.fill) if o.guards and o.view else "")
                         for n, o in enumerate(self.operands))
        if not transposed:
            accesses = tuple(replace(access, pattern="reversed") if self.is_reversed(n, inner_loops) else access
                             for n, access in enumerate(accesses))
        kernel = LoopKernel(len(outer_loops), len(inner_loops), accesses, tuple(self.instructions), stores, transposed,
                            short=short, block_transpose=block_transpose).with_halves_as_bits
        values = self.numbers(kernel, outer_loops, inner_loops)
        places = tuple(o.view if o.kind != "index" else None for o in self.operands)
        kernel = with_pairs(kernel, places, inner_loops[-1][1])
        rows, columns = (product(tuple(loop[0] for loop in loops)) for loops in (outer_loops, inner_loops))
        few = FEW_COLUMNS if self.axes else FEW_COLUMNS // 2
        if rows != 1 and not transposed and bounds(columns)[1] <= few and may_be_pipelined(kernel):
            kernel = replace(kernel, few_columns=True)
        elif rows != 1 and not transposed and self.has_short_rows(kernel, columns):
            kernel = replace(kernel, short_rows=True)
        return LoopCall(kernel, places, values, rows, columns)

    def is_reversed(self, number: int, inner: list[tuple[Size, list[Size]]]) -> bool:
        """Whether elements of an operand lie side by side along the columns, the last one first: whole vectors then."""
        operand = self.operands[number]
        return (operand.kind == "load" and len(inner) == 1 and inner[0][1][number] == -1 and not operand.guards
                and operand.view is not None and operand.view.part is None)

    def has_short_rows(self, kernel: LoopKernel, columns: Size) -> bool:
        """Whether a row leaves much of its last wide chunk empty, compared with its length: of a map, or of a reduction
        with divisions or roots, for which the units of all lanes are as long busy."""
        slow = any(i.name in ("divide", "sqrt") and i.full for i in kernel.instructions)
        return (isinstance(columns, int) and (not self.axes or slow) and 1 < columns < SHORT_ROW and columns % 64 != 0
                and not any(i.flops >= COSTLY for i in kernel.instructions))

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
        if any(self.operands[i.access].guards for i in self.instructions if i.name == "load" and not i.full):
            return ()  # only the walk over windows looks for borders
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
        if stride == 2 and operand.kind == "load" and (short or operand.view is None or operand.view.part is None):
            return "second" if short else "strided"
        if stride == 2 and operand.kind == "load" and operand.view is not None:
            return PARTS[operand.view.part or 0]
        return self.pattern([stride])

    def block_transpose_columns(self, outer: list[tuple[Size, list[Size]]],
                                inner: list[tuple[Size, list[Size]]]) -> int:
        """Columns of rows so short that transposing blocks of them pays, so that lanes run along the rows; else 0."""
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
        along_rows = sum(self.is_beside(n, outer[-1][1][n]) and inner[-1][1][n] != 0 for n in loads)
        along_columns = sum(self.is_beside(n, inner[-1][1][n]) for n in loads)
        return along_rows > along_columns

    def is_beside(self, number: int, step: Size) -> bool:
        """Whether elements of an operand that many apart lie side by side, or are parts of complex numbers that do."""
        place = self.operands[number].view
        return step == 1 or (step == 2 and place is not None and place.part is not None)

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


