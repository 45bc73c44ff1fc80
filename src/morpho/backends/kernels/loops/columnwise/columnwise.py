"""Columnwise loop kernels: lanes run along the rows, for reductions over an axis that is not the contiguous one.

Rows with unit stride between them are walked together, up to `rows_together` of them: for every column, all their
elements in one stretch of memory. Each row keeps its 64 partial values in scratch memory, so the tree is that of every
reduction: column k adds into partial k mod 64 of its block, partials fold by halves, blocks join pairwise. Row values
wait in scratch between the walks.

Rows of few columns have their lanes that way too: blocks of them are transposed in scratch, before the first walk and
after the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.code.register_transpose import transposed
from morpho.backends.kernels.loops.loop_code import LoopCode
from morpho.backends.kernels.loops.loop_spec import LEVELS, TREE_BLOCK, TREE_LANES, Instruction, LoopKernel, Pass
from morpho.backends.kernels.loops.pairs import PARTS, every_second
from morpho.backends.kernels.loops.reduction_tree import combine, identity, lane_type
from morpho.backends.kernels.loops.values import (
    copy_elements,
    gather_extent,
    kept_element,
    kept_place,
    lanes_inside,
    load_kept,
    store_kept,
    widened,
)
from morpho.base.dtypes import bool_
from morpho.base.machine import Isa

GROUPED = 4  # columns of one partial taken together


class WideTree:
    """A reduction of a stretch of rows: 64 lines of partials and the joined blocks, a line each, in scratch."""

    def __init__(self, code: ColumnwiseCode, number: int) -> None:
        instruction = code.kernel.instructions[number]
        self.code, self.number, self.input = code, number, instruction.inputs[0]
        self.name, self.dtype = instruction.name.removeprefix("reduce_"), instruction.dtype
        self.type = lane_type(self.dtype)
        columns = code.kernel.block_transpose
        self.partials = code.array(columns or TREE_LANES, self.type if columns else "i64")
        self.stack = "" if columns else code.array(LEVELS)
        self.result = code.arrays[number]

    def line(self, number: Value) -> str:
        return self.code.e.offset(self.partials, self.type, number * self.code.pitch)

    def level(self, number: Value) -> str:
        return self.code.e.offset(self.stack, self.type, number * self.code.pitch)

    def place(self, line: str) -> str:
        """The current chunk of a line."""
        return self.code.e.offset(line, self.type, self.code.at)

    def start(self) -> Value:
        return self.code.e.constant(identity(self.name, self.dtype), self.type)

    def join(self, a: Value, b: Value) -> Value:
        return combine(self.code.e, self.name, self.dtype, a, b)

    def before(self, line: str, fresh: bool) -> Value:
        """Value of the current chunk of a partial sum."""
        return self.start() if fresh else self.code.e.load(self.place(line), self.type)

    def joined(self, total: Value, value: Value) -> Value:
        value = self.code.e.convert("zext", value, "i8") if value.element == "i1" else value
        return self.join(total, value)

    def clear(self) -> None:
        e = self.code.e
        with e.loop(0, TREE_LANES) as loop:
            line = self.line(loop.index)
            self.code.each_scratch_chunk(lambda: e.store(self.start(), self.place(line)))

    def fold(self, used: Value) -> None:
        """Partials by halves; those past `used` hold nothing and would change nothing."""
        e = self.code.e
        levels = TREE_LANES.bit_length() - 1
        with e.loop(0, levels, carried=[used]) as level:
            half = e.instruction("lshr", e.constant(TREE_LANES // 2, "i64", 1), level.index)
            with e.loop(half, level.values[0]) as loop:
                self.join_lines(self.line(loop.index - half), self.line(loop.index))
            level.next(e.intrinsic("smin", level.values[0], half))

    def join_lines(self, low: str, high: str) -> None:
        e = self.code.e

        def body() -> None:
            place = self.place(low)
            e.store(self.join(e.load(place, self.type), e.load(self.place(high), self.type)), place)

        self.code.each_scratch_chunk(body)

    def push(self, block: Value) -> None:
        """Join a finished block with those before it, as a binary counter carries."""
        e, code = self.code.e, self.code
        carries = e.intrinsic("cttz", block ^ -1, e.constant(True, "i1", 1), suffix="i64")
        first, target = self.line(e.constant(0, "i64", 1)), self.level(carries)

        def body() -> None:
            with e.loop(0, carries, carried=[e.load(self.place(first), self.type)]) as loop:
                earlier = e.load(self.place(self.level(loop.index)), self.type)
                loop.next(self.join(earlier, loop.values[0]))
            e.store(loop.values[0], self.place(target))

        code.each_scratch_chunk(body)

    def finish_first(self) -> None:
        """Leave the row values of the only block in scratch."""
        first = self.line(self.code.e.constant(0, "i64", 1))
        self.code.each_scratch_chunk(
            lambda: self.leave(self.join(self.code.e.load(self.place(first), self.type), self.start())))

    def leave(self, total: Value) -> None:
        """A total of the current chunk, rounded to its dtype, in scratch."""
        e = self.code.e
        if self.name in ("sum", "prod") and self.dtype is not bool_:
            total = scalars.round_to(e, total, self.dtype)
        if self.dtype is bool_:
            total = e.convert("zext", e.icmp("ne", total, 0), "i8")
        e.store(total, e.offset(self.result, kept_element(self.code, self.number), self.code.at))

    def finish(self, blocks: Value) -> None:
        """Join what is left, latest first, and leave the row values in scratch."""
        e, code = self.code.e, self.code
        bits = 64 - e.intrinsic("ctlz", blocks, e.constant(False, "i1", 1), suffix="i64")

        def body() -> None:
            with e.loop(0, bits, carried=[self.start()]) as loop:
                present = e.icmp("ne", e.instruction("lshr", blocks, loop.index) & 1, 0)
                joined = self.join(e.load(self.place(self.level(loop.index)), self.type), loop.values[0])
                text = f"select i1 {present.name}, {joined.type} {joined.name}, {joined.type} {loop.values[0].name}"
                loop.next(e.assign(text, joined.element, joined.lanes))
            self.leave(loop.values[0])

        code.each_scratch_chunk(body)


class ColumnwiseCode(LoopCode):
    """As `LoopCode`, with a stretch of adjacent rows side by side and columns one at a time."""

    def __init__(self, kernel: LoopKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        self.most = kernel.rows_together  # rows of one stretch
        self.used = 0  # bytes of fixed scratch given out
        self.arrays: dict[int, str] = {}
        self.blocks: dict[int, str] = {}  # access -> its transposed block of rows

    def _lay_out_scratch(self) -> None:
        """Fixed arrays first, then `TREE_LANES` elements per column of every kept value; few columns are fixed, too."""
        e, kernel = self.e, self.kernel
        base = e.offset("%scratch", "i8", kernel.scratch_bytes)
        padded = (self.end + (TREE_LANES - 1)) & -TREE_LANES
        for position, number in enumerate(kernel.kept):
            if kernel.block_transpose:
                self.kept[number] = self.array(kernel.block_transpose, kept_element(self, number))
            else:
                self.kept[number] = e.offset(base, "i8", padded * (8 * TREE_LANES * position))
        for number in kernel.transposed_accesses:
            self.blocks[number] = self.array(kernel.block_transpose, scalars.memory_type(kernel.accesses[number].dtype))
        rows = [n for n, i in enumerate(kernel.instructions) if not i.full and i.name != "constant"]
        self.arrays = {number: self.array(1) for number in rows}
        self.trees = {n: WideTree(self, n) for n, i in enumerate(kernel.instructions) if i.reduces}

    def array(self, rows: int, element: str = "i64") -> str:
        """Scratch for `rows` times `wide` elements."""
        place = self.e.offset("%scratch", "i8", self.used)
        self.used += BITS[element] // 8 * self.most * rows
        return place

    # -- rows ----------------------------------------------------------------------------------------------------------
    def walk_rows(self, first: Value, last: Value) -> None:
        """Stretches of rows side by side; one ends where the last outer axis does."""
        e = self.e
        with e.loop(first, last) as rows:
            coordinates = self.split(rows.index, self.outer)
            left = e.intrinsic("smin", self.outer[-1] - coordinates[-1], last - rows.index)
            self.stretch = e.intrinsic("smin", left, e.constant(self.most, "i64", 1))
            self.pitch = (self.stretch + (self.lanes - 1)) & -self.lanes
            self.row(coordinates)
            rows.step = self.stretch

    def each_chunk(self, body: Callable[[], None]) -> None:
        """Write `body` for every chunk of the stretch: `self.at` is its first row, `self.count` its rows. Short bodies
        are written twice, for whole chunks (`self.partial` None) and for a last short one."""
        e = self.e
        if self.compact or self.lanes == 1:
            with e.loop(0, self.stretch, self.lanes) as loop:
                count = e.intrinsic("smin", self.stretch - loop.index, e.constant(self.lanes, "i64", 1))
                self.set_chunk(loop.index, count, e.icmp("slt", count, self.lanes))
                body()
            return
        whole = self.stretch & -self.lanes
        with e.loop(0, whole, self.lanes) as loop:
            self.set_chunk(loop.index, e.constant(self.lanes, "i64", 1), None)
            body()
        with e.when(e.icmp("slt", whole, self.stretch)):
            self.set_chunk(whole, self.stretch - whole, e.constant(True, "i1", 1))
            body()

    def each_scratch_chunk(self, body: Callable[[], None]) -> None:
        """Write `body` for every chunk of lines in scratch, which are padded: no chunk is short."""
        with self.e.loop(0, self.stretch, self.lanes) as loop:
            self.set_chunk(loop.index, self.e.constant(self.lanes, "i64", 1), None)
            body()

    def set_chunk(self, at: Value, count: Value, partial: Value | None) -> None:
        self.at, self.count, self.partial = at, count, partial
        self.rows = {}

    def row_values(self, stage: int) -> None:
        """Compute the row values of a stage for the whole stretch and leave them in scratch."""
        numbers = [n for n, i in enumerate(self.kernel.instructions) if not i.full and self.kernel.stages[n] == stage
                   and not i.reduces and i.name != "constant"]
        if not numbers:
            return
        e = self.e

        def body() -> None:
            for number in numbers:
                value = self.row_value(self.kernel.instructions[number])
                self.rows[number] = value
                stored = e.convert("zext", value, "i8") if value.element == "i1" else value
                e.store(stored, e.offset(self.arrays[number], kept_element(self, number), self.at))

        self.each_chunk(body)

    def row_value(self, instruction: Instruction) -> Value:
        e = self.e
        if instruction.name == "load":
            access = instruction.access
            return self.load_across(access, self.pointers[access])
        if instruction.name == "index":
            return self.index_across(instruction, self.positions[instruction.access])
        if instruction.name == "dimension":
            return e.splat(super().row_value(instruction))
        if instruction.name == "gather":  # that only checks
            which = instruction.inputs[0]
            index = widened(self, self.row_operand(which), self.kernel.instructions[which].dtype)
            count = self.count if isinstance(self.count, Value) else e.constant(self.count, "i64", 1)
            inside = lanes_inside(self, index, gather_extent(self, instruction.access)[0], count)
            return self.from_index(e.select(inside, index, 0), instruction.dtype)
        arguments = [self.row_operand(i) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def row_operand(self, number: int) -> Value:
        """A row value at the current chunk: a constant, just computed, or waiting in scratch."""
        instruction = self.kernel.instructions[number]
        if instruction.name == "constant":
            return self.constant(instruction, self.lanes)
        if number not in self.rows:
            e, element = self.e, kept_element(self, number)
            value = e.load(e.offset(self.arrays[number], element, self.at), element)
            self.rows[number] = e.icmp("ne", value, 0) if instruction.dtype is bool_ else value
        return self.rows[number]

    # -- transposed blocks of rows -------------------------------------------------------------------------------------
    def place_row(self, coordinates: list[Value], offsets: list[Value] | None = None) -> None:
        super().place_row(coordinates, offsets)
        for number, block in self.blocks.items():
            if self.kernel.accesses[number].kind == "load":
                self.turn(number, (self.pointers[number], self.across(number)), (block, TREE_LANES), self.stretch,
                          self.end)

    def put_back(self) -> None:
        for number, block in self.blocks.items():
            if self.kernel.accesses[number].kind == "store":
                self.turn(number, (block, TREE_LANES), (self.pointers[number], self.across(number)), self.end,
                          self.stretch)

    def turn(self, number: int, source: tuple[str, Value | int], target: tuple[str, Value | int], lines: Value,
             length: Value) -> None:
        """Some lines of a length become the columns of others; both are an address and a distance between lines.

        They go by squares with a register for each line, the last ones over parts of those before; or one by one where
        there is no room for a square.
        """
        e = self.e
        element = f"i{BITS[scalars.memory_type(self.kernel.accesses[number].dtype)]}"

        def by_squares(sides: list[int]) -> None:
            """Of the first of these sides that there is room for."""
            size, *smaller = sides
            if not smaller:
                self.turn_squares(element, size, source, target, (lines, length))
                return
            for fits in e.both(e.icmp("sge", e.intrinsic("smin", lines, length), size)):
                by_squares([size] if fits else smaller)

        by_squares(self.sides(BITS[element]))

    def sides(self, bits: int) -> list[int]:
        """Of the squares that blocks are transposed by, the largest first: rows of bytes are rarely longer than 8, and
        whole vectors are worth code of their own where there are more columns than that."""
        if self.lanes == 1:
            return [1]
        small, large = min(128 // bits, 8), min(max(self.isa.vector_bits, 128) // bits, 8)
        return [large, small, 1] if self.kernel.block_transpose > 8 and large > small else [small, 1]

    def turn_squares(self, element: str, size: int, source: tuple[str, Value | int], target: tuple[str, Value | int],
                     extents: tuple[Value, Value]) -> None:
        """As `turn`, by squares of one size."""
        e, (lines, length) = self.e, extents
        with e.loop(0, lines, size) as down, e.loop(0, length, size) as along:
            line, place = (e.intrinsic("smin", at, most - size) if size > 1 else at
                           for at, most in ((down.index, lines), (along.index, length)))
            square = [e.load(e.offset(source[0], element, (line + i) * source[1] + place), element, size)
                      for i in range(size)]
            for i, column in enumerate(transposed(e, square)):
                e.store(column, e.offset(target[0], element, (place + i) * target[1] + line))

    def store_rows(self) -> None:
        self.put_back()
        stores = [store for store in self.kernel.stores if not store.full]

        def body() -> None:
            for store in stores:
                self.store_across(store.access, self.row_operand(store.instruction), self.pointers[store.access])

        if stores:
            self.each_chunk(body)

    # -- memory --------------------------------------------------------------------------------------------------------
    def across(self, access: int) -> Value:
        """The stride of an access along the lanes."""
        return self.strides[access][self.kernel.outer_rank - 1]

    def chunk_pointer(self, number: int, pointer: str) -> str:
        """Where the current chunk of rows begins, from where the stretch does."""
        access = self.kernel.accesses[number]
        if access.across == "zero":
            return pointer
        offset = self.at if access.across == "unit" else self.at * self.across(number)
        return self.e.offset(pointer, scalars.memory_type(access.dtype), offset)

    def load_across(self, number: int, pointer: str) -> Value:
        """The elements of a chunk of rows at one column."""
        e, access = self.e, self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        if number in self.blocks:
            return scalars.from_memory(e, e.load(e.offset(pointer, element, self.at), element), access.dtype)
        pointer = self.chunk_pointer(number, pointer)
        if access.across == "zero":
            return e.splat(scalars.from_memory(e, e.load(pointer, element, 1), access.dtype))
        if self.lanes == 1 or (access.across == "unit" and self.partial is None):
            return scalars.from_memory(e, e.load(pointer, element), access.dtype)
        if access.across in PARTS:
            return self.load_part_across(number, pointer)
        buffer = self.temporary(f"load{number}", element)
        if access.across == "strided":
            copy_elements(self, pointer, self.across(number), buffer, 1, element, self.count)
            return scalars.from_memory(e, e.load(buffer, element), access.dtype)
        assert self.partial is not None, "rows of a whole stretch need no buffer"
        before, then, join = e.block, e.fresh("short"), e.fresh("join")
        e.branch_if(self.partial, then, join)
        e.label(then)
        copy_elements(self, pointer, 1, buffer, 1, element, self.count)
        after = e.block
        e.branch(join)
        e.label(join)
        chosen = "%" + e.fresh("p")
        e.line(f"{chosen} = phi ptr [ {pointer}, %{before} ], [ {buffer}, %{after} ]")
        return scalars.from_memory(e, e.load(chosen, element), access.dtype)

    def load_part_across(self, number: int, pointer: str) -> Value:
        """The real or the imaginary parts of complex numbers that lie side by side across the rows."""
        e, access = self.e, self.kernel.accesses[number]
        element, first = scalars.memory_type(access.dtype), PARTS.index(access.across)
        if self.partial is None:
            return every_second(e, e.offset(pointer, element, -first), element, first, self.lanes)
        buffer = self.temporary(f"load{number}", element)
        for short in e.both(self.partial):
            if short:
                copy_elements(self, pointer, 2, buffer, 1, element, self.count)
            else:
                e.store(every_second(e, e.offset(pointer, element, -first), element, first, self.lanes), buffer)
        return e.load(buffer, element)

    def store_across(self, number: int, value: Value, pointer: str) -> None:
        e, access = self.e, self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        stored = scalars.to_memory(e, value, access.dtype)
        if number in self.blocks:
            e.store(stored, e.offset(pointer, element, self.at))
            return
        pointer = self.chunk_pointer(number, pointer)
        if self.lanes == 1 or (access.across == "unit" and self.partial is None):
            e.store(stored, pointer)
            return
        buffer = self.temporary(f"store{number}", element)
        if access.across == "strided":
            e.store(stored, buffer)
            copy_elements(self, buffer, 1, pointer, self.across(number), element, self.count)
            return
        assert self.partial is not None, "rows of a whole stretch need no buffer"
        short, whole, after = e.fresh("short"), e.fresh("whole"), e.fresh("after")
        e.branch_if(self.partial, short, whole)
        e.label(whole)
        e.store(stored, pointer)
        e.branch(after)
        e.label(short)
        e.store(stored, buffer)
        copy_elements(self, buffer, 1, pointer, 1, element, self.count)
        e.branch(after)
        e.label(after)

    def index_across(self, instruction: Instruction, start: Value) -> Value:
        """Positions of a chunk of rows."""
        e = self.e
        stride = self.across(instruction.access)
        first = e.splat(start + self.at * stride)
        return self.from_index(first + e.lane_numbers() * e.splat(stride), instruction.dtype)

    # -- columns -------------------------------------------------------------------------------------------------------

    # -- columns -------------------------------------------------------------------------------------------------------
    def column_pass(self, step: Pass) -> None:
        e = self.e
        trees = [self.trees[number] for number in step.reductions]
        if not trees:
            with e.loop(self.begin, self.end) as loop:
                self.column(step, [loop.index], [], fresh=False)
            return
        if self.kernel.block_transpose:  # each partial has one element at most
            with e.loop(self.begin, self.end) as loop:
                self.column(step, [loop.index], trees, fresh=True)
            for tree in trees:
                tree.fold(self.end)
                tree.finish_first()
            return
        with e.loop(self.begin, self.end, TREE_BLOCK) as blocks:
            last = e.intrinsic("smin", blocks.index + TREE_BLOCK, self.end)
            whole = self.grouped_columns(step, trees, blocks.index, last)
            grouped = e.icmp("sgt", whole, blocks.index)
            # The first element of a partial need not find it there: it is joined with the identity.
            fresh_end = e.select(grouped, blocks.index, e.intrinsic("smin", blocks.index + TREE_LANES, last))
            with e.loop(blocks.index, fresh_end) as loop:
                self.column(step, [loop.index], trees, fresh=True)
            with e.loop(e.intrinsic("smax", fresh_end, whole), last) as loop:
                self.column(step, [loop.index], trees, fresh=False)
            used = e.intrinsic("smin", last - blocks.index, e.constant(TREE_LANES, "i64", 1))
            for tree in trees:
                tree.fold(used)
                tree.push(blocks.index.shift_right(TREE_BLOCK.bit_length() - 1))
        count = (self.end + (TREE_BLOCK - 1)).shift_right(TREE_BLOCK.bit_length() - 1)
        for tree in trees:
            tree.finish(count)

    def grouped_columns(self, step: Pass, trees: list[WideTree], first: Value, last: Value) -> Value:
        """Columns k, k + 64, k + 128, ... meet in the same partial: taking a few of them together, in order, reads and
        writes the partials less often. Gives the first column that is left."""
        e = self.e
        if self.compact or step.keep or step.stores:
            return first
        whole = first + ((last - first) & -(GROUPED * TREE_LANES))
        with e.when(e.icmp("sgt", whole, first)):
            for tree in trees:
                tree.clear()
        with e.loop(first, whole, GROUPED * TREE_LANES) as groups, e.loop(0, TREE_LANES) as lane:
            columns = [groups.index + lane.index + position * TREE_LANES for position in range(GROUPED)]
            self.column(step, columns, trees, fresh=False)
        return whole

    def column(self, step: Pass, columns: list[Value], trees: list[WideTree], fresh: bool) -> None:
        """Every value of the pass at a column, for the whole stretch of rows; or at several that share a partial."""
        e = self.e
        lines: list[dict[int, str]] = []
        for column in columns:
            lines.append({})
            for number, access in enumerate(self.kernel.accesses):
                element = scalars.memory_type(access.dtype)
                if number in self.blocks:
                    lines[-1][number] = e.offset(self.blocks[number], element, column * TREE_LANES)
                elif access.kind in ("load", "store"):
                    lines[-1][number] = e.offset(self.pointers[number], element, self.inner_offset(number, column))
        partials = [tree.line(columns[0] & (TREE_LANES - 1)) for tree in trees]
        row = columns[0] * TREE_LANES

        def body() -> None:
            totals = [tree.before(partial, fresh) for tree, partial in zip(trees, partials, strict=True)]
            for column, line in zip(columns, lines, strict=True):
                values: dict[int, Value] = {}
                for number in step.needed:
                    values[number] = self.column_value(step, number, values, column, line, row)
                for number in step.keep:
                    store_kept(self, values[number], kept_place(self, number, row + self.at))
                for store in step.stores:
                    self.store_across(store.access, self.operand(store.instruction, values), line[store.access])
                totals = [tree.joined(total, self.operand(tree.input, values))
                          for tree, total in zip(trees, totals, strict=True)]
            for tree, partial, total in zip(trees, partials, totals, strict=True):
                e.store(total, tree.place(partial))

        if self.is_in_scratch(step):
            self.each_scratch_chunk(body)
        else:
            self.each_chunk(body)

    def is_in_scratch(self, step: Pass) -> bool:
        """Whether a pass reads and writes transposed blocks, and numbers of all rows, alone."""
        loads = [self.kernel.instructions[n] for n in step.needed if n not in step.kept]
        used = {store.access for store in step.stores} | {i.access for i in loads if i.name == "load"}
        fixed = {n for n, access in enumerate(self.kernel.accesses) if access.across == "zero"}
        return bool(self.kernel.block_transpose) and used <= self.blocks.keys() | fixed

    def operand(self, number: int, values: dict[int, Value]) -> Value:
        return values[number] if number in values else self.row_operand(number)

    def column_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, lines: dict[int, str],
                     row: Value) -> Value:
        instruction = self.kernel.instructions[number]
        if number in step.kept:
            return load_kept(self, number, row + self.at)
        if instruction.name == "index":
            access = instruction.access
            return self.index_across(instruction, self.positions[access] + self.inner_offset(access, column))
        if instruction.name == "load":
            access = instruction.access
            return self.load_across(access, lines[access])
        arguments = [self.operand(i, values) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(self.e, instruction.name, arguments, source, instruction.dtype)
