"""Loop kernels whose lanes run along the rows: reductions over an axis that is not the last one in memory.

Every lane is a row of its own, so a reduction over columns needs no folding across lanes of a register; the tree is the
same: column k adds into partial sum k mod 64 of its block, partial sums fold by halves, blocks join pairwise.
"""

from __future__ import annotations

from morpho.base.machine import Isa
from morpho.kernels import elementwise, scalars
from morpho.kernels.emit import Value
from morpho.kernels.loop_code import LoopCode, choose_lanes
from morpho.kernels.loop_spec import LANES, Instruction, LoopKernel, Pass
from morpho.kernels.reductions import BLOCK, Tree, combine


class TransposedCode(LoopCode):
    """As `LoopCode`, with row values as vectors and columns one at a time."""

    def __init__(self, kernel: LoopKernel, isa: Isa) -> None:
        super().__init__(kernel, isa)
        lanes = choose_lanes(kernel, isa)
        self.lanes = self.e.lanes = min(LANES, 2 * lanes) if isa.vector_bits else 1

    # -- rows ----------------------------------------------------------------------------------------------------------
    def walk_rows(self, first: Value, last: Value) -> None:
        """Chunks of rows side by side; a chunk ends where the last outer axis does."""
        e = self.e
        with e.loop(first, last) as rows:
            position = self.split(rows.index, self.outer)[-1]
            left = e.intrinsic("smin", self.outer[-1] - position, last - rows.index)
            self.count = e.intrinsic("smin", left, e.constant(self.lanes, "i64", 1))
            self.partial = e.icmp("slt", self.count, self.lanes)
            self.row(rows.index)
            rows.step = self.count

    def across(self, access: int) -> Value:
        """The stride of an access along the lanes."""
        return self.strides[access][self.kernel.outer_rank - 1]

    def row_value(self, instruction: Instruction) -> Value:
        e = self.e
        if instruction.name == "load":
            return self.load_across(int(instruction.extra), self.pointers[int(instruction.extra)])  # type: ignore
        if instruction.name == "index":
            return self.index_across(instruction, self.positions[int(instruction.extra)])  # type: ignore[arg-type]
        if instruction.name == "dimension":
            return e.splat(super().row_value(instruction))
        arguments = [self.row_operand(i) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def row_operand(self, number: int) -> Value:
        instruction = self.kernel.instructions[number]
        return self.constant(instruction, self.lanes) if instruction.name == "constant" else self.rows[number]

    def store_row(self, access: int, number: int) -> None:
        self.store_across(access, self.row_operand(number), self.pointers[access])

    # -- memory --------------------------------------------------------------------------------------------------------
    def load_across(self, number: int, pointer: str) -> Value:
        """The elements of all lanes' rows at one column."""
        e, access = self.e, self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        if access.across == "zero":
            return e.splat(scalars.from_memory(e, e.load(pointer, element, 1), access.dtype))
        if self.lanes == 1:
            return scalars.from_memory(e, e.load(pointer, element), access.dtype)
        buffer = self.temporary(f"load{number}", element)
        if access.across == "strided":
            self.copy(pointer, self.across(number), buffer, 1, element, self.count)
            return scalars.from_memory(e, e.load(buffer, element), access.dtype)
        before, then, join = e.block, e.fresh("short"), e.fresh("join")
        e.branch_if(self.partial, then, join)
        e.label(then)
        self.copy(pointer, 1, buffer, 1, element, self.count)
        after = e.block
        e.branch(join)
        e.label(join)
        chosen = "%" + e.fresh("p")
        e.line(f"{chosen} = phi ptr [ {pointer}, %{before} ], [ {buffer}, %{after} ]")
        return scalars.from_memory(e, e.load(chosen, element), access.dtype)

    def store_across(self, number: int, value: Value, pointer: str) -> None:
        e, access = self.e, self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        stored = scalars.to_memory(e, value, access.dtype)
        if self.lanes == 1:
            e.store(stored, pointer)
            return
        buffer = self.temporary(f"store{number}", element)
        if access.across == "strided":
            e.store(stored, buffer)
            self.copy(buffer, 1, pointer, self.across(number), element, self.count)
            return
        short, whole, after = e.fresh("short"), e.fresh("whole"), e.fresh("after")
        e.branch_if(self.partial, short, whole)
        e.label(whole)
        e.store(stored, pointer)
        e.branch(after)
        e.label(short)
        e.store(stored, buffer)
        self.copy(buffer, 1, pointer, 1, element, self.count)
        e.branch(after)
        e.label(after)

    def index_across(self, instruction: Instruction, start: Value) -> Value:
        """Positions of all lanes' rows."""
        e = self.e
        stride = e.splat(self.across(int(instruction.extra)))  # type: ignore[arg-type]
        return self.from_index(e.splat(start) + e.lane_numbers() * stride, instruction.dtype)

    # -- columns -------------------------------------------------------------------------------------------------------
    def column_pass(self, step: Pass) -> None:
        e = self.e
        numbers = {i for n in step.needed if n not in step.kept for i in self.kernel.instructions[n].inputs}
        numbers |= {store.instruction for store in step.stores}
        numbers |= {self.kernel.instructions[r].inputs[0] for r in step.reductions}
        self.splats = {n: self.row_operand(n) for n in sorted(numbers) if not self.kernel.instructions[n].full}
        if not step.reductions:
            with e.loop(self.begin, self.end) as loop:
                self.column(step, loop.index)
            return
        trees = [WideTree(self, number) for number in step.reductions]
        with e.loop(self.begin, self.end, BLOCK) as blocks:
            last = e.intrinsic("smin", blocks.index + BLOCK, self.end)
            for tree in trees:
                tree.clear()
            with e.loop(blocks.index, last) as loop:
                values = self.column(step, loop.index)
                for tree in trees:
                    tree.add(values[tree.input], loop.index)
            for tree in trees:
                tree.finish_block(blocks.index.shift_right(BLOCK.bit_length() - 1))
        count = (self.end + (BLOCK - 1)).shift_right(BLOCK.bit_length() - 1)
        for tree in trees:
            self.rows[tree.number] = tree.result(count)

    def column(self, step: Pass, column: Value) -> dict[int, Value]:
        """Every value of the pass at one column, for all lanes' rows."""
        e = self.e
        values: dict[int, Value] = dict(self.splats)
        for number in step.needed:
            if number not in values:
                values[number] = self.column_value(step, number, values, column)
        for number in step.keep:
            self.store_kept(number, values[number], column * self.lanes)
        for store in step.stores:
            element = scalars.memory_type(self.kernel.accesses[store.access].dtype)
            pointer = e.offset(self.pointers[store.access], element, self.inner_offset(store.access, column))
            self.store_across(store.access, values[store.instruction], pointer)
        return values

    def column_value(self, step: Pass, number: int, values: dict[int, Value], column: Value) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        if number in step.kept:
            return self.load_kept(number, column * self.lanes)
        if instruction.name in ("load", "index"):
            access = int(instruction.extra)  # type: ignore[arg-type]
            offset = self.inner_offset(access, column)
            if instruction.name == "index":
                return self.index_across(instruction, self.positions[access] + offset)
            element = scalars.memory_type(self.kernel.accesses[access].dtype)
            return self.load_across(access, e.offset(self.pointers[access], element, offset))
        arguments = [values[i] for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)


class WideTree(Tree):
    """A reduction of many rows at once: 64 partial sums, each a vector of rows."""

    def __init__(self, code: TransposedCode, number: int) -> None:
        super().__init__(code, number)
        self.lanes = code.temporaries.setdefault(
            f"wide{number}", code.allocate(self.element, LANES * code.lanes))
        self.stack = code.temporaries.setdefault(
            f"widestack{number}", code.allocate(self.element, 64 * code.lanes))

    def clear(self) -> None:
        e, width = self.code.e, self.code.lanes
        with e.loop(0, LANES) as loop:
            e.store(self.start(width), e.offset(self.lanes, self.element, loop.index * width))

    def add(self, value: Value, column: Value) -> None:
        e, width = self.code.e, self.code.lanes
        place = e.offset(self.lanes, self.element, (column & (LANES - 1)) * width)
        e.store(self.join(e.load(place, self.element), self.as_lane(value)), place)

    def finish_block(self, block: Value) -> None:
        """Fold the partial sums by halves, in memory, and join the block with those before it."""
        e, width = self.code.e, self.code.lanes
        half = LANES // 2
        while half:
            with e.loop(0, half) as loop:
                low = e.offset(self.lanes, self.element, loop.index * width)
                high = e.offset(self.lanes, self.element, (loop.index + half) * width)
                e.store(self.join(e.load(low, self.element), e.load(high, self.element)), low)
            half //= 2
        self.push(e.load(self.lanes, self.element), block)

    def push(self, value: Value, block: Value) -> None:
        e, width = self.code.e, self.code.lanes
        carries = e.intrinsic("cttz", block ^ -1, e.constant(True, "i1", 1), suffix="i64")
        with e.loop(0, carries, carried=[value]) as loop:
            earlier = e.load(e.offset(self.stack, self.element, loop.index * width), self.element)
            loop.next(self.join(earlier, loop.values[0]))
        e.store(loop.values[0], e.offset(self.stack, self.element, carries * width))

    def result(self, blocks: Value) -> Value:
        e, width = self.code.e, self.code.lanes
        bits = 64 - e.intrinsic("ctlz", blocks, e.constant(False, "i1", 1), suffix="i64")
        with e.loop(0, bits, carried=[self.start(width)]) as loop:
            present = e.icmp("ne", e.instruction("lshr", blocks, loop.index) & 1, 0)
            earlier = e.load(e.offset(self.stack, self.element, loop.index * width), self.element)
            joined = combine(e, self.name, self.dtype, earlier, loop.values[0])
            text = f"select i1 {present.name}, {joined.type} {joined.name}, {joined.type} {loop.values[0].name}"
            loop.next(e.assign(text, joined.element, joined.lanes))
        return self.finished(loop.values[0])
