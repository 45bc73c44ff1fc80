"""Columnwise loop kernels: lanes run along the rows, for reductions over an axis that is not the contiguous one.

Rows with unit stride between them are walked together, up to `rows_together` of them: for every column, all their
elements in one stretch of memory. Each row keeps its 64 partial values in scratch memory, so the tree is that of every
reduction: column k adds into partial k mod 64 of its block, partials fold by halves, blocks join pairwise. Row values
wait in scratch between the walks.

Rows of few columns have their lanes that way too: blocks of them are transposed in scratch, before the first walk and
after the last one.
"""

from __future__ import annotations

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.loops.columnwise.columnwise_moves import ColumnwiseMoves
from morpho.backends.kernels.loops.loop_spec import LEVELS, TREE_BLOCK, TREE_LANES, Pass
from morpho.backends.kernels.loops.reduction_tree import combine, identity, lane_type
from morpho.base.dtypes import bool_

GROUPED = 4  # columns of one partial taken together


class WideTree:
    """A reduction of a stretch of rows: 64 lines of partials and the joined blocks, a line each, in scratch."""

    def __init__(self, code: ColumnwiseMoves, number: int) -> None:
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
        e.store(total, e.offset(self.result, self.code.kept_type(self.number), self.code.at))

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


class ColumnwiseCode(ColumnwiseMoves):
    """As `LoopCode`, with many rows side by side and columns one at a time."""

    def _lay_out_scratch(self) -> None:
        super()._lay_out_scratch()
        self.trees = {n: WideTree(self, n) for n, i in enumerate(self.kernel.instructions) if i.reduces}

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
                    self.store_kept(values[number], self.kept_place(number, row + self.at))
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
            return self.load_kept(number, row + self.at)
        if instruction.name == "index":
            access = instruction.access
            return self.index_across(instruction, self.positions[access] + self.inner_offset(access, column))
        if instruction.name == "load":
            access = instruction.access
            return self.load_across(access, lines[access])
        arguments = [self.operand(i, values) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(self.e, instruction.name, arguments, source, instruction.dtype)
