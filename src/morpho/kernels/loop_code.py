"""From a `LoopKernel` to LLVM text.

The columns of a row go by in chunks of `lanes` elements. A full chunk is loaded straight from memory; the rest of a
row, and operands that are not side by side, pass through a small buffer on the stack, so that the arithmetic exists
once for any length and any stride. Reductions follow docs/numerics.md: element i adds into lane i mod 64, the lanes of
a block of 4096 fold by halves, and blocks join pairwise.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.base.dtypes import DType, bool_
from morpho.base.machine import Isa
from morpho.kernels import elementwise, reductions, scalars
from morpho.kernels.emit import BITS, Emitter, Value, vector_type
from morpho.kernels.loop_spec import LANES, Instruction, LoopKernel, Pass, constant_value
from morpho.kernels.staged_code import staged_loop
from morpho.ops.elementwise import COSTLY

FAULT_INDEX = 1
LONG_BODY = 12  # operations per element
LONG_CHAIN = 8
SIGNATURE = "ptr %buffers, ptr %values, i64 %row0, i64 %row1, i64 %col0, i64 %col1, ptr %scratch"


def function_flops(kernel: LoopKernel) -> int:
    """Operations per element that are inside polynomials."""
    return sum(i.flops for i in kernel.instructions if i.full and i.flops >= COSTLY)


def vectors_of_functions(kernel: LoopKernel, isa: Isa) -> int:
    """Vectors side by side where polynomials are computed: they wait for themselves, but more may not fit the
    registers."""
    names = [i.name for i in kernel.instructions if i.full and i.flops >= COSTLY]
    if isa.architecture == "aarch64":
        return 4 if function_flops(kernel) == COSTLY else 2
    # Constants take no registers of their own on AVX-512.
    alone = len(names) == 1 and names[0] in ("gelu", "gelu_slope") and not any(i.reduces for i in kernel.instructions)
    return 4 if alone and isa.vector_bits == 512 else 2


def choose_lanes(kernel: LoopKernel, isa: Isa) -> int:
    """Elements per chunk: some vectors of the widest dtype, so that independent work overlaps."""
    if isa.vector_bits == 0:
        return 1
    moving = [i for i in kernel.instructions if i.full or i.reduces] or kernel.instructions
    widest = max((i.dtype.itemsize for i in moving), default=4)  # values of rows are one at a time
    heavy = any(i.flops >= COSTLY for i in kernel.instructions)
    if heavy:  # half floats are float32 in registers: long bodies would not fit, and take long to compile
        widest = max(widest, max(i.dtype.compute.itemsize for i in moving))
    vectors = vectors_of_functions(kernel, isa) if heavy else 4
    reduces = any(i.reduces for i in kernel.instructions)
    if not heavy and not reduces and sum(i.flops for i in kernel.instructions if i.full) >= LONG_CHAIN \
            and (isa.architecture == "aarch64" or isa.vector_bits == 512):
        vectors = 8  # a long chain of short operations waits for itself; 32 registers hold more of them side by side
    return min(LANES, isa.vector_bits // 8 // widest * vectors)


class LoopCode:
    """The generator's state while it writes one kernel."""

    def __init__(self, kernel: LoopKernel, isa: Isa) -> None:
        self.kernel = kernel
        self.isa, self.lanes = isa, choose_lanes(kernel, isa)
        self.compact = sum(i.flops for i in kernel.instructions if i.full) >= LONG_BODY
        self.e = Emitter(self.lanes, isa.native_half, destructive_fma=isa.architecture == "aarch64",
                         opaque_indices=self.compact or any(i.reduces for i in kernel.instructions))
        # Few instructions are in flight on AArch64; one short polynomial has more vectors side by side instead, and
        # sine or power would not fit the registers.
        self.staged = (isa.architecture == "aarch64" and self.lanes > 1
                       and COSTLY < function_flops(kernel) <= 4 * COSTLY)
        self.allocas: list[str] = []
        self.rows: dict[int, Value] = {}  # row values of the row being written
        self.pointers: dict[int, str] = {}  # access -> address of its row
        self.positions: dict[int, Value] = {}  # index access -> its value at column 0
        self.temporaries: dict[str, str] = {}
        self.kept: dict[int, str] = {}  # kept value -> its row of scratch
        self.wide = isa.vector_bits >= 512

    # -- the function --------------------------------------------------------------------------------------------------
    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.bases = [e.load_pointer("%buffers", n) if a.kind != "index" else ""
                      for n, a in enumerate(kernel.accesses)]
        self.outer = [self.value(d) for d in range(kernel.outer_rank)]
        self.inner = [self.value(kernel.outer_rank + d) for d in range(kernel.inner_rank)]
        self.strides = [[self.value(kernel.access_at(n) + d) for d in range(kernel.outer_rank + kernel.inner_rank)]
                        for n in range(len(kernel.accesses))]
        self.begin, self.end = e.argument("%col0", "i64", 1), e.argument("%col1", "i64", 1)
        self.fault = self.allocate("i32", 1)
        e.store(e.constant(0, "i32", 1), self.fault)
        self._lay_out_scratch()
        self.walk_rows(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1))
        status = e.load(self.fault, "i32", 1)
        e.line(f"ret i32 {status.name}")
        attributes = '"prefer-vector-width"="512"' if self.wide else ""
        head = f"define i32 @{name}({SIGNATURE}) nounwind {attributes} {{\nentry:\n"
        body = "\n".join(self.allocas) + "\n" + e.text()
        return head + body + "\n}\n" + "\n".join(sorted(e.declarations)) + "\n"

    def value(self, index: int) -> Value:
        """A number of the kernel's arguments."""
        return self.e.load(self.e.offset("%values", "i64", index), "i64", 1)

    def allocate(self, element: str, count: int) -> str:
        """Stack memory that lives as long as the call."""
        name = "%" + self.e.fresh("a")
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def temporary(self, key: str, element: str) -> str:
        """A stack buffer of one chunk, one per use."""
        if key not in self.temporaries:
            name = self.temporaries[key] = self.allocate(element, max(self.lanes, 1))
            # What lies there may be subnormal, which is slow to compute with.
            if self.isa.architecture == "x86_64" and not self.isa.masks and not key.startswith("store"):
                self.allocas.append(f"  store {vector_type(element, self.lanes)} zeroinitializer, ptr {name}, align 64")
        return self.temporaries[key]

    def _lay_out_scratch(self) -> None:
        """Each kept value has a row of scratch, padded so that whole chunks may be read and written."""
        e = self.e
        if not self.kernel.kept:
            return
        padded = (self.end + (LANES - 1)) & -LANES
        for position, number in enumerate(self.kernel.kept):
            self.kept[number] = e.offset("%scratch", "i8", padded * (8 * position))

    def walk_rows(self, first: Value, last: Value) -> None:
        with self.e.loop(first, last) as rows:
            self.row(rows.index)

    # -- one row -------------------------------------------------------------------------------------------------------
    def row(self, index: Value) -> None:
        self.place_row(index)
        self.row_values(0)
        for step in self.kernel.passes:
            self.column_pass(step)
            self.row_values(step.stage + 1)
        self.store_rows()

    def place_row(self, index: Value) -> None:
        """Where every operand's row begins."""
        e, kernel = self.e, self.kernel
        coordinates = self.split(index, self.outer)
        self.rows = {}
        for number, access in enumerate(kernel.accesses):
            offset = self.dot(coordinates, self.strides[number][:kernel.outer_rank])
            if access.kind == "index":
                self.positions[number] = offset
            else:
                self.pointers[number] = e.offset(self.bases[number], scalars.memory_type(access.dtype), offset)

    def store_rows(self) -> None:
        for store in self.kernel.stores:
            if not store.full:
                self.store_row(store.access, store.instruction)

    def split(self, index: Value, extents: list[Value]) -> list[Value]:
        """A flat index as coordinates, last axis fastest."""
        coordinates = []
        for extent in reversed(extents[1:]):
            quotient = self.e.instruction("udiv", index, extent)
            coordinates.append(index - quotient * extent)
            index = quotient
        return [index, *reversed(coordinates)]

    def dot(self, coordinates: list[Value], strides: list[Value]) -> Value:
        total = self.e.constant(0, "i64", 1)
        for coordinate, stride in zip(coordinates, strides, strict=True):
            total = coordinate * stride if total.name == "0" else total + coordinate * stride
        return total

    def row_values(self, stage: int) -> None:
        """Compute the row values known by now, one lane each."""
        for number, instruction in enumerate(self.kernel.instructions):
            if instruction.full or number in self.rows or self.kernel.stages[number] > stage:
                continue
            if instruction.reduces or instruction.name == "constant":
                continue  # a reduction's value is put in by its pass; constants are written where they are used
            self.rows[number] = self.row_value(instruction)

    def row_value(self, instruction: Instruction) -> Value:
        e = self.e
        if instruction.name == "load":
            element = scalars.memory_type(instruction.dtype)
            return scalars.from_memory(e, e.load(self.pointers[instruction.extra], element, 1), instruction.dtype)
        if instruction.name == "index":
            return self.from_index(self.positions[instruction.extra], instruction.dtype)
        if instruction.name == "dimension":
            return self.from_index(self.value(self.kernel.dimensions_at + instruction.extra), instruction.dtype)
        if instruction.name == "gather":
            return self.gather_row(instruction)
        arguments = [self.row_operand(i) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def row_operand(self, number: int) -> Value:
        instruction = self.kernel.instructions[number]
        if instruction.name == "constant":
            return self.constant(instruction, 1)
        return self.rows[number]

    def constant(self, instruction: Instruction, lanes: int) -> Value:
        value = constant_value(str(instruction.extra), instruction.dtype)
        return self.e.constant(value, scalars.register_type(instruction.dtype), lanes)

    def from_index(self, position: Value, dtype: DType) -> Value:
        """A position (i64) as a value of a dtype."""
        from morpho.base.dtypes import int64

        return scalars.cast(self.e, position, int64, dtype)

    def store_row(self, access: int, number: int) -> None:
        e, dtype = self.e, self.kernel.instructions[number].dtype
        e.store(scalars.to_memory(e, self.row_operand(number), dtype), self.pointers[access])

    # -- one pass over the columns -----------------------------------------------------------------------------------
    def column_pass(self, step: Pass) -> None:
        self.prepare_pass(step)
        if step.reductions:
            reductions.reduce_pass(self, step)
        else:
            self.map_pass(step)

    def prepare_pass(self, step: Pass) -> None:
        """Row values that the columns use are spread over the lanes before the loop."""
        self.splats: dict[int, Value] = {}
        for number in step.needed:
            for operand in (() if number in step.kept else self.kernel.instructions[number].inputs):
                self.prepare_splat(operand)
        for store in step.stores:
            self.prepare_splat(store.instruction)
        for reduction in step.reductions:
            self.prepare_splat(self.kernel.instructions[reduction].inputs[0])
        for number in step.needed:  # a full load that never moves is one scalar per row
            instruction = self.kernel.instructions[number]
            if instruction.name == "load" and self.kernel.accesses[instruction.extra].pattern == "zero":
                self.splats[number] = self.e.splat(self.row_value(instruction))

    def prepare_splat(self, number: int) -> None:
        """Row values used by full ones are spread over the lanes before the loop."""
        if not self.kernel.instructions[number].full and number not in self.splats:
            self.splats[number] = self.e.splat(self.row_operand(number))
            if self.kernel.instructions[number].name == "constant":
                instruction = self.kernel.instructions[number]
                self.splats[number] = self.constant(instruction, self.lanes)

    def is_long(self, step: Pass) -> bool:
        """Long bodies are written once per pass; short ones also unrolled, with their accumulators in registers."""
        return self.compact and sum(self.kernel.instructions[n].flops for n in step.needed
                                    if n not in step.kept) >= LONG_BODY

    def map_pass(self, step: Pass) -> None:
        """Columns that only compute and store."""
        e, lanes = self.e, self.lanes
        if lanes == 1:
            with e.loop(self.begin, self.end) as loop:
                self.chunk(step, loop.index, None)
            return
        if self.staged and staged_loop(self, step, self.begin, self.end):
            return
        if self.is_long(step):
            self.either_loop(step, self.begin, self.end)
            return
        whole = self.begin + ((self.end - self.begin) & -lanes)
        with e.loop(self.begin, whole, lanes) as loop:
            self.chunk(step, loop.index, None)
        with e.when(e.icmp("slt", whole, self.end)):
            self.chunk(step, whole, self.end - whole)

    def either_loop(self, step: Pass, begin: Value, end: Value) -> None:
        """All chunks by one body: the last one may be short."""
        e = self.e
        with e.loop(begin, end, self.lanes) as loop:
            left = end - loop.index
            count = e.intrinsic("smin", left, e.constant(self.lanes, "i64", 1))
            self.chunk(step, loop.index, count, maybe_whole=True)

    # -- one chunk -----------------------------------------------------------------------------------------------------
    def chunk(self, step: Pass, column: Value, count: Value | None, maybe_whole: bool = False) -> dict[int, Value]:
        """Compute every value of the pass at `column`.. and store what is to be stored.

        `count` None means a whole chunk; otherwise the number of elements left, which with `maybe_whole` may be all.
        """
        partial = self.e.icmp("slt", count, self.lanes) if count is not None and maybe_whole else None
        values = self.chunk_values(step, column, count, self.input_places(step, column, count, partial))
        for number in step.keep:
            self.store_kept(number, values[number], column)
        for store in step.stores:
            dtype = self.kernel.instructions[store.instruction].dtype
            self.store_chunk(store.access, values[store.instruction], dtype, column, count, partial)
        return values

    def chunk_values(self, step: Pass, column: Value, count: Value | None, places: dict[int, str]) -> dict[int, Value]:
        """Every value of the pass at `column`.., read from `places`."""
        values: dict[int, Value] = dict(self.splats)
        for number in step.needed:
            if number not in values:
                values[number] = self.full_value(step, number, values, column, count, places)
        return values

    def input_places(self, step: Pass, column: Value, count: Value | None, partial: Value | None) -> dict[int, str]:
        """Where each side-by-side operand is read from: memory, or a copy on the stack when the chunk is short."""
        e, accesses, numbers = self.e, self.kernel.accesses, self.side_by_side(step)
        types = {n: scalars.memory_type(accesses[n].dtype) for n in numbers}
        direct = {n: e.offset(self.pointers[n], types[n], column) for n in numbers}
        if count is None or not numbers:
            return direct
        copies = {n: self.temporary(f"load{n}", types[n]) for n in numbers}
        moves = [(direct[n], copies[n], types[n]) for n in numbers]
        if partial is None:
            self.take_in(moves, count)
            return copies
        before = e.block
        then, join = e.fresh("short"), e.fresh("join")
        e.branch_if(partial, then, join)
        e.label(then)
        self.take_in(moves, count)
        after = e.block
        e.branch(join)
        e.label(join)
        chosen = {}
        for n in numbers:
            chosen[n] = "%" + e.fresh("p")
            e.line(f"{chosen[n]} = phi ptr [ {direct[n]}, %{before} ], [ {copies[n]}, %{after} ]")
        return chosen

    def side_by_side(self, step: Pass) -> list[int]:
        """The accesses of a pass whose elements lie side by side along the columns."""
        loads = [self.kernel.instructions[n] for n in step.needed if n not in step.kept]
        return sorted({i.extra for i in loads if i.name == "load" and self.kernel.accesses[i.extra].pattern == "unit"})

    def take_in(self, moves: list[tuple[str, str, str]], count: Value) -> None:
        """The first `count` elements of operands to chunks on the stack (source, target, element)."""
        if not self.isa.masks:
            self.copy_all(moves, count)
            return
        mask = self.e.first_lanes(count)
        for source, target, element in moves:
            self.e.store(self.e.load_some(source, f"i{BITS[element]}", mask), target)

    def copy_all(self, moves: list[tuple[str, str, str]], count: Value) -> None:
        """The first `count` elements of several sources to their targets (source, target, element), in one loop: each
        block of instructions costs LLVM time of its own."""
        e = self.e
        with e.loop(0, count) as loop:
            for source, target, element in moves:
                value = e.load(e.offset(source, element, loop.index), element, 1)
                e.store(value, e.offset(target, element, loop.index))

    def copy(self, source: str, source_step: Value | int, target: str, target_step: Value | int, element: str,
             count: Value | int) -> None:
        """A plain element loop; only ends of rows and strided operands come here."""
        e = self.e
        with e.loop(0, count) as loop:
            origin = loop.index if source_step == 1 else loop.index * source_step
            place = loop.index if target_step == 1 else loop.index * target_step
            e.store(e.load(e.offset(source, element, origin), element, 1), e.offset(target, element, place))

    def full_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, count: Value | None,
                   places: dict[int, str]) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        if number in step.kept:
            return self.load_kept(number, column)
        if instruction.name == "load":
            return self.load_chunk(instruction, column, count, places)
        if instruction.name == "index":
            return self.index_chunk(instruction, column, count)
        if instruction.name == "gather":
            return self.gather_chunk(number, values, column, count)
        arguments = [values[i] for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        e, number = self.e, instruction.extra
        access = self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        if access.pattern == "unit":
            return scalars.from_memory(e, e.load(places[number], element), access.dtype)
        buffer = self.temporary(f"load{number}", element)
        after = self.together(number, column, count, lambda place: e.store(e.load(place, element), buffer))
        length = self.lanes if count is None else count
        with e.loop(0, length) as loop:
            address = e.offset(self.pointers[number], element, self.inner_offset(number, column + loop.index))
            e.store(e.load(address, element, 1), e.offset(buffer, element, loop.index))
        if after:
            e.branch(after)
            e.label(after)
        return scalars.from_memory(e, e.load(buffer, element), access.dtype)

    def together(self, number: int, column: Value, count: Value | None, move: Callable[[str], None]) -> str:
        """Move a whole chunk of an operand with several inner axes at once if it lies on one line of the last one. What
        is written next moves its elements one by one; the label to go on at after that, "" where only that is there."""
        e, access = self.e, self.kernel.accesses[number]
        if access.pattern != "general" or self.lanes == 1 or count is not None:
            return ""
        at_once, apart, after = e.fresh("together"), e.fresh("apart"), e.fresh("after")
        coordinates, strides = self.split(column, self.inner), self.strides[number][self.kernel.outer_rank:]
        fits = e.icmp("sle", coordinates[-1] + self.lanes, self.inner[-1]) & e.icmp("eq", strides[-1], 1)
        e.branch_if(fits, at_once, apart)
        e.label(at_once)
        move(e.offset(self.pointers[number], scalars.memory_type(access.dtype), self.dot(coordinates, strides)))
        e.branch(after)
        e.label(apart)
        return after

    def inner_offset(self, access: int, column: Value) -> Value:
        """The distance of a column from its row's start, in elements."""
        strides = self.strides[access][self.kernel.outer_rank:]
        pattern = self.kernel.accesses[access].pattern
        if pattern == "unit":
            return column
        if pattern == "zero":
            return self.e.constant(0, "i64", 1)
        if pattern == "strided":
            return column * strides[-1]
        return self.dot(self.split(column, self.inner), strides)

    def index_chunk(self, instruction: Instruction, column: Value, count: Value | None) -> Value:
        """Positions as values: a line where the pattern allows it, else element by element."""
        e, number = self.e, instruction.extra
        pattern = self.kernel.accesses[number].pattern
        start = self.positions[number]
        if pattern == "general":
            buffer = self.temporary(f"index{number}", "i64")
            with e.loop(0, self.lanes) as loop:
                position = start + self.inner_offset(number, column + loop.index)
                e.store(position, e.offset(buffer, "i64", loop.index))
            return self.from_index(e.load(buffer, "i64"), instruction.dtype)
        if pattern == "zero":
            return self.from_index(e.splat(start), instruction.dtype)
        stride = e.constant(1, "i64", 1) if pattern == "unit" else self.strides[number][-1]
        first = e.splat(start + column * stride)
        return self.from_index(first + e.lane_numbers() * e.splat(stride), instruction.dtype)

    # -- indexed loads -------------------------------------------------------------------------------------------------
    def checked(self, index: Value, extent: Value) -> Value:
        """The index if it lies inside the axis; else 0, and the call ends with a fault."""
        e = self.e
        inside = e.icmp("ult", index, extent)
        old = e.load(self.fault, "i32", 1)
        e.store(e.select(inside, old, FAULT_INDEX), self.fault)
        return e.select(inside, index, 0)

    def gather_extent(self, access: int) -> tuple[Value, Value]:
        """Size and stride of the indexed axis: two numbers after the dimensions' values."""
        at = self.kernel.extents_at
        order = [n for n, a in enumerate(self.kernel.accesses) if a.kind == "gather"].index(access)
        return self.value(at + 2 * order), self.value(at + 2 * order + 1)

    def widened(self, index: Value, dtype: DType) -> Value:
        from morpho.base.dtypes import int64

        return scalars.cast(self.e, index, dtype, int64)

    def gather_row(self, instruction: Instruction) -> Value:
        e, access = self.e, instruction.extra
        extent, stride = self.gather_extent(access)
        which = instruction.inputs[0]
        index = self.checked(self.widened(self.row_operand(which), self.kernel.instructions[which].dtype), extent)
        if self.kernel.accesses[access].pattern == "none":
            return self.from_index(index, instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        loaded = e.load(e.offset(self.pointers[access], element, index * stride), element, 1)
        return scalars.from_memory(e, loaded, instruction.dtype)

    def gather_chunk(self, number: int, values: dict[int, Value], column: Value, count: Value | None) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        access, which = instruction.extra, instruction.inputs[0]
        pattern = self.kernel.accesses[access].pattern
        if which in self.kernel.uniform and pattern in ("unit", "zero", "none"):
            return self.gather_line(instruction, values[which], column, count)
        extent, stride = self.gather_extent(access)
        indices = self.temporary(f"indices{number}", "i64")
        e.store(self.widened(values[which], self.kernel.instructions[which].dtype), indices)
        if pattern == "none":
            with e.loop(0, self.lanes if count is None else count) as loop:
                place = e.offset(indices, "i64", loop.index)
                e.store(self.checked(e.load(place, "i64", 1), extent), place)
            return self.from_index(e.load(indices, "i64"), instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        buffer = self.temporary(f"gather{number}", element)
        with e.loop(0, self.lanes if count is None else count) as loop:
            index = self.checked(e.load(e.offset(indices, "i64", loop.index), "i64", 1), extent)
            place = index * stride + self.inner_offset(access, column + loop.index)
            loaded = e.load(e.offset(self.pointers[access], element, place), element, 1)
            e.store(loaded, e.offset(buffer, element, loop.index))
        return scalars.from_memory(e, e.load(buffer, element), instruction.dtype)

    def gather_line(self, instruction: Instruction, index: Value, column: Value, count: Value | None) -> Value:
        """One index for all columns, as where rows of a table are looked up: a plain load from the row it names."""
        e, access = self.e, instruction.extra
        extent, stride = self.gather_extent(access)
        if index.lanes > 1:
            index = e.assign(f"extractelement {index.type} {index.name}, i64 0", index.element, 1)
        index = self.checked(self.widened(index, self.kernel.instructions[instruction.inputs[0]].dtype), extent)
        pattern = self.kernel.accesses[access].pattern
        if pattern == "none":
            return self.from_index(e.splat(index), instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        line = e.offset(self.pointers[access], element, index * stride)
        if pattern == "zero":
            return e.splat(scalars.from_memory(e, e.load(line, element, 1), instruction.dtype))
        address = e.offset(line, element, column)
        if count is not None:
            buffer = self.temporary(f"gather{access}", element)
            self.take_in([(address, buffer, element)], count)
            address = buffer
        return scalars.from_memory(e, e.load(address, element), instruction.dtype)

    # -- stores --------------------------------------------------------------------------------------------------------
    def store_chunk(self, access: int, value: Value, dtype: DType, column: Value, count: Value | None,
                    partial: Value | None) -> None:
        e = self.e
        element = scalars.memory_type(dtype)
        stored = scalars.to_memory(e, value, dtype)
        pattern = self.kernel.accesses[access].pattern
        address = e.offset(self.pointers[access], element, self.inner_offset(access, column))
        if pattern == "unit" and count is None:
            e.store(stored, address)
            return
        if pattern == "unit" and count is not None and self.isa.masks:
            e.store_some(e.bits(stored), address, e.first_lanes(count))
            return
        buffer = self.temporary(f"store{access}", element)
        if pattern == "unit" and partial is not None:
            short, whole, after = e.fresh("short"), e.fresh("whole"), e.fresh("after")
            e.branch_if(partial, short, whole)
            e.label(whole)
            e.store(stored, address)
            e.branch(after)
            e.label(short)
            e.store(stored, buffer)
            self.copy(buffer, 1, address, 1, element, count)
            e.branch(after)
            e.label(after)
            return
        e.store(stored, buffer)
        if pattern == "general":  # several inner axes: each element has a place of its own
            after = self.together(access, column, count, lambda place: e.store(stored, place))
            with e.loop(0, self.lanes if count is None else count) as loop:
                place = self.inner_offset(access, column + loop.index)
                one = e.load(e.offset(buffer, element, loop.index), element, 1)
                e.store(one, e.offset(self.pointers[access], element, place))
            if after:
                e.branch(after)
                e.label(after)
            return
        step: Value | int = 1 if pattern == "unit" else self.strides[access][-1]
        self.copy(buffer, 1, address, step, element, self.lanes if count is None else count)

    # -- kept values ---------------------------------------------------------------------------------------------------
    def kept_type(self, number: int) -> str:
        dtype = self.kernel.instructions[number].dtype
        return "i8" if dtype is bool_ else scalars.register_type(dtype)

    def store_kept(self, number: int, value: Value, column: Value) -> None:
        e, element = self.e, self.kept_type(number)
        stored = e.convert("zext", value, "i8") if value.element == "i1" else value
        e.store(stored, e.offset(self.kept[number], element, column))

    def load_kept(self, number: int, column: Value) -> Value:
        e, element = self.e, self.kept_type(number)
        value = e.load(e.offset(self.kept[number], element, column), element)
        return e.icmp("ne", value, 0) if self.kernel.instructions[number].dtype is bool_ else value


