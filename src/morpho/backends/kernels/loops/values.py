"""State of the generator of loop kernels, and the values of a row and of a chunk of its columns.

A full chunk is loaded straight from memory, the rest of a row by a mask where the machine has them; without, that rest,
and operands that are not side by side, pass through a small buffer on the stack, so that the arithmetic exists once for
any length and any stride. Parts of complex numbers lie side by side in memory, and apart in vectors. Indices of gathers
are checked against the size of their axis.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import BITS, Emitter, Value, vector_type
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.kernels.loops.chunk_width import choose_lanes, is_light, may_be_pipelined
from morpho.backends.kernels.loops.loop_spec import Instruction, LoopKernel, Pass, constant_value
from morpho.backends.kernels.loops.pairs import PARTS, every_second, joined, picked
from morpho.base.dtypes import DType, bool_, int32, int64
from morpho.base.machine import Isa

LONG_BODY = 12  # operations per element


class LoopState:
    """State of a loop kernel while its function is written. Writers of other kinds of loops override its
    methods; what they share are functions below."""

    # Known from the beginning of the function on.
    bases: list[str]  # addresses of the operands
    outer: list[Value]  # extents of the rows' axes
    inner: list[Value]  # and of the columns'
    strides: list[list[Value]]  # of each operand, along all axes
    begin: Value  # columns to compute
    end: Value
    fault: str  # the address of the status
    splats: dict[int, Value]  # row values that a pass uses, in every lane
    lanes_left: Value | None = None  # the lanes of a short chunk that is loaded by a mask

    def __init__(self, kernel: LoopKernel, isa: Isa) -> None:
        self.kernel = kernel
        self.isa, self.lanes = isa, choose_lanes(kernel, isa)
        self.compact = sum(i.flops for i in kernel.instructions if i.full) >= LONG_BODY
        self.e = Emitter(self.lanes, isa.native_half, destructive_fma=isa.architecture == "aarch64",
                         opaque_indices=self.compact or any(i.reduces for i in kernel.instructions), tabled=True,
                         lookups=isa.lookups, architecture=isa.architecture)
        # Few instructions are in flight on AArch64.
        self.pipelined = (isa.architecture == "aarch64" and self.lanes > 1 and may_be_pipelined(kernel)
                          and not kernel.few_columns)
        self.allocas: list[str] = []
        self.numbers: dict[str, int] = {}
        self.rows: dict[int, Value] = {}  # row values of the row being written
        self.pointers: dict[int, str] = {}  # access -> address of its row
        self.positions: dict[int, Value] = {}  # index access -> its value at column 0
        self.temporaries: dict[str, str] = {}
        self.kept: dict[int, str] = {}  # kept value -> its row of scratch
        # What only moves numbers is faster in half vectors, by 2 to 40 %; not on the younger processors with matrix
        # units: 0.85x to 1.4x there (benchmarks/probes/half_vectors.py).
        self.halved = isa.vector_bits >= 512 and not isa.matrix_units and is_light(kernel)
        self.wide = isa.vector_bits >= 512 and not self.halved

    def value(self, index: int) -> Value:
        """A number of the kernel's arguments."""
        return self.e.load(self.e.offset("%values", "i64", index), "i64", 1)

    def number(self, index: int) -> Value:
        """A number that is known from the beginning of the function on."""
        name = f"%number{index:04}"  # no name is part of another
        self.numbers[name] = index
        return Value(self.e, name, "i64", 1)

    def number_lines(self, text: str) -> list[str]:
        """The instructions that read the numbers which `text` uses; LLVM need not see the others."""
        lines = []
        for name, index in self.numbers.items():
            if name in text:
                lines += [f"  {name}.at = getelementptr i64, ptr %values, i64 {index}",
                          f"  {name} = load i64, ptr {name}.at, align 8"]
        return lines

    def allocate(self, element: str, count: int) -> str:
        """Stack memory that lives as long as the call."""
        name = "%" + self.e.fresh("a")
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def temporary(self, key: str, element: str, filled: bool = False) -> str:
        """A stack buffer of one chunk, one per use. `filled`: all of it is written before it is read."""
        if key not in self.temporaries:
            name = self.temporaries[key] = self.allocate(element, max(self.lanes, 1))
            # What lies there may be subnormal, which is slow to compute with.
            if self.isa.architecture == "x86_64" and not filled:
                self.allocas.append(f"  store {vector_type(element, self.lanes)} zeroinitializer, ptr {name}, align 64")
        return self.temporaries[key]

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

    def constant(self, instruction: Instruction, lanes: int) -> Value:
        value = constant_value(str(instruction.extra), instruction.dtype)
        return self.e.constant(value, scalars.register_type(instruction.dtype), lanes)

    def from_index(self, position: Value, dtype: DType) -> Value:
        """A position (i64) as a value of a dtype."""
        return scalars.cast(self.e, position, int64, dtype)

    def row_operand(self, number: int) -> Value:
        instruction = self.kernel.instructions[number]
        if instruction.name == "constant":
            return self.constant(instruction, 1)
        return self.rows[number]

    def inner_offset(self, access: int, column: Value) -> Value:
        """The distance of a column from its row's start, in elements."""
        strides = self.strides[access][self.kernel.outer_rank:]
        pattern = self.kernel.accesses[access].pattern
        if pattern == "unit":
            return column
        if pattern == "zero":
            return self.e.constant(0, "i64", 1)
        if pattern in ("strided", "reversed", "even", "odd"):
            return column * strides[-1]
        return self.dot(self.split(column, self.inner), strides)

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
            return scalars.from_memory(e, e.load(self.pointers[instruction.access], element, 1), instruction.dtype)
        if instruction.name == "index":
            return self.from_index(self.positions[instruction.access], instruction.dtype)
        if instruction.name == "dimension":
            at = self.kernel.record.at("dimensions") + instruction.access
            return self.from_index(self.value(at), instruction.dtype)
        if instruction.name == "gather":
            return gather_row(self, instruction)
        arguments = [self.row_operand(i) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def prepare_pass(self, step: Pass) -> None:
        """Row values that the columns use are spread over the lanes before the loop."""
        self.splats: dict[int, Value] = {}
        for number in step.needed:
            for operand in (() if number in step.kept else self.kernel.instructions[number].inputs):
                prepare_splat(self, operand)
        for store in step.stores:
            prepare_splat(self, store.instruction)
        for reduction in step.reductions:
            prepare_splat(self, self.kernel.instructions[reduction].inputs[0])
        for number in step.needed:  # a full load that never moves is one scalar per row
            instruction = self.kernel.instructions[number]
            if instruction.name == "load" and self.kernel.accesses[instruction.access].pattern == "zero":
                self.splats[number] = self.e.splat(self.row_value(instruction))

    def chunk_values(self, step: Pass, column: Value, count: Value | None, places: dict[int, str]) -> dict[int, Value]:
        """Every value of the pass at `column`.., read from `places`."""
        values: dict[int, Value] = dict(self.splats)
        for number in step.needed:
            if number not in values:
                values[number] = self.full_value(step, number, values, column, count, places)
        return values

    def full_value(self, step: Pass, number: int, values: dict[int, Value], column: Value, count: Value | None,
                   places: dict[int, str]) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        if number in step.kept:
            return load_kept(self, number, column)
        if instruction.name == "load":
            return self.load_chunk(instruction, column, count, places)
        if instruction.name == "index":
            return index_chunk(self, instruction, column, count)
        if instruction.name == "gather":
            return self.gather_chunk(number, values, column, count)
        arguments = [values[i] for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

    def load_chunk(self, instruction: Instruction, column: Value, count: Value | None, places: dict[int, str]) -> Value:
        e, number = self.e, instruction.access
        access = self.kernel.accesses[number]
        element = scalars.memory_type(access.dtype)
        if access.pattern == "unit" and count is not None and self.lanes_left is not None:  # no copy on the stack
            bits = e.load_some(places[number], f"i{BITS[element]}", self.lanes_left)
            return scalars.from_memory(e, e.from_bits(bits, element), access.dtype)
        if access.pattern == "unit":
            return scalars.from_memory(e, e.load(places[number], element), access.dtype)
        if access.pattern == "reversed" and count is None and self.lanes > 1:
            last = e.offset(self.pointers[number], element, self.inner_offset(number, column + (self.lanes - 1)))
            backwards = picked(e, e.load(last, element), range(self.lanes - 1, -1, -1))
            return scalars.from_memory(e, backwards, access.dtype)
        if access.pattern in PARTS and self.lanes > 1:
            return load_part(self, number, column, count)
        buffer = self.temporary(f"load{number}", element)
        after = together(self, number, column, count, lambda place: e.store(e.load(place, element), buffer))
        length = self.lanes if count is None else count
        with e.loop(0, length) as loop:
            address = e.offset(self.pointers[number], element, self.inner_offset(number, column + loop.index))
            e.store(e.load(address, element, 1), e.offset(buffer, element, loop.index))
        if after:
            e.branch(after)
            e.label(after)
        return scalars.from_memory(e, e.load(buffer, element), access.dtype)

    def gather_chunk(self, number: int, values: dict[int, Value], column: Value, count: Value | None) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        access, which = instruction.access, instruction.inputs[0]
        pattern = self.kernel.accesses[access].pattern
        if which in self.kernel.uniform and pattern in ("unit", "zero", "none"):
            return gather_line(self, instruction, values[which], column, count)
        extent, stride = gather_extent(self, access)
        index = widened(self, values[which], self.kernel.instructions[which].dtype)
        inside = lanes_inside(self, index, extent, count)
        index = e.select(inside, index, 0)
        if pattern == "none":
            return self.from_index(index, instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        if self.isa.masks and self.lanes > 1 and pattern != "general" and BITS[element] >= 32:
            places = index * e.splat(stride) + column_offsets(self, access, column)
            loaded = e.gather_some(self.pointers[access], f"i{BITS[element]}", places, inside)
            return scalars.from_memory(e, e.from_bits(loaded, element), instruction.dtype)
        indices, buffer = self.temporary(f"indices{number}", "i64"), self.temporary(f"gather{number}", element)
        e.store(index, indices)
        with e.loop(0, self.lanes if count is None else count) as loop:
            at = e.load(e.offset(indices, "i64", loop.index), "i64", 1)
            place = at * stride + self.inner_offset(access, column + loop.index)
            loaded = e.load(e.offset(self.pointers[access], element, place), element, 1)
            e.store(loaded, e.offset(buffer, element, loop.index))
        return scalars.from_memory(e, e.load(buffer, element), instruction.dtype)


def kept_type(dtype: DType) -> str:
    """The type that a value has in scratch."""
    return "i8" if dtype is bool_ else scalars.register_type(dtype)


def load_part(code: LoopState, number: int, column: Value, count: Value | None) -> Value:
    """The parts of a chunk of complex numbers."""
    e, access = code.e, code.kernel.accesses[number]
    element, first = scalars.memory_type(access.dtype), PARTS.index(access.pattern)
    if count is None:
        place = e.offset(code.pointers[number], element, column * 2 - first)
        return every_second(e, place, element, first, code.lanes)
    buffer = code.temporary(f"load{number}", element)
    for whole in e.both(e.icmp("sge", count, code.lanes)):
        place = e.offset(code.pointers[number], element, column * 2 - (first if whole else 0))
        if whole:
            e.store(every_second(e, place, element, first, code.lanes), buffer)
            continue
        with e.loop(0, count) as loop:
            e.store(e.load(e.offset(place, element, loop.index * 2), element, 1),
                    e.offset(buffer, element, loop.index))
    return e.load(buffer, element)


def store_parts(code: LoopState, access: int, values: tuple[Value, Value], column: Value, count: Value | None) -> None:
    """Both parts of a chunk; `access` is that of the real ones."""
    e = code.e
    element = values[0].element
    place = e.offset(code.pointers[access], element, column * 2)
    if count is None:
        e.store(joined(e, *values), place)
        return
    buffers = [code.temporary(f"store{access}", element, True), code.temporary(f"other{access}", element, True)]
    for whole in e.both(e.icmp("sge", count, code.lanes)):
        if whole:
            e.store(joined(e, *values), place)
            continue
        for value, buffer in zip(values, buffers, strict=True):
            e.store(value, buffer)
        with e.loop(0, count) as loop:
            for number, buffer in enumerate(buffers):
                e.store(e.load(e.offset(buffer, element, loop.index), element, 1),
                        e.offset(place, element, loop.index * 2 + number))


def input_places(code: LoopState, step: Pass, column: Value, count: Value | None,
                 partial: Value | None) -> dict[int, str]:
    """Where each side-by-side operand is read from: memory, or a copy on the stack when the chunk is short."""
    e, accesses, numbers = code.e, code.kernel.accesses, side_by_side(code, step)
    types = {n: scalars.memory_type(accesses[n].dtype) for n in numbers}
    direct = {n: e.offset(code.pointers[n], types[n], column) for n in numbers}
    code.lanes_left = e.first_lanes(count) if code.isa.masks and count is not None and partial is None else None
    if count is None or not numbers or code.lanes_left is not None:
        return direct
    copies = {n: code.temporary(f"load{n}", types[n], code.isa.masks) for n in numbers}
    moves = [(direct[n], copies[n], types[n]) for n in numbers]
    if partial is None:
        take_in(code, moves, count)
        return copies
    before = e.block
    then, join = e.fresh("short"), e.fresh("join")
    e.branch_if(partial, then, join)
    e.label(then)
    take_in(code, moves, count)
    after = e.block
    e.branch(join)
    e.label(join)
    chosen = {}
    for n in numbers:
        chosen[n] = "%" + e.fresh("p")
        e.line(f"{chosen[n]} = phi ptr [ {direct[n]}, %{before} ], [ {copies[n]}, %{after} ]")
    return chosen


def side_by_side(code: LoopState, step: Pass) -> list[int]:
    """The accesses of a pass whose elements lie side by side along the columns."""
    loads = [code.kernel.instructions[n] for n in step.needed if n not in step.kept]
    found = {i.access for i in loads if i.name == "load"}
    return sorted(access for access in found if code.kernel.accesses[access].pattern == "unit")


def take_in(code: LoopState, moves: list[tuple[str, str, str]], count: Value) -> None:
    """The first `count` elements of operands to chunks on the stack (source, target, element)."""
    if not code.isa.masks:
        copy_all(code, moves, count)
        return
    mask = code.e.first_lanes(count)
    for source, target, element in moves:
        code.e.store(code.e.load_some(source, f"i{BITS[element]}", mask), target)


def copy_all(code: LoopState, moves: list[tuple[str, str, str]], count: Value) -> None:
    """The first `count` elements of several sources to their targets (source, target, element), in one loop: each
    block of instructions costs LLVM time of its own."""
    e = code.e
    with e.loop(0, count) as loop:
        for source, target, element in moves:
            value = e.load(e.offset(source, element, loop.index), element, 1)
            e.store(value, e.offset(target, element, loop.index))


def copy_elements(code: LoopState, source: str, source_step: Value | int, target: str, target_step: Value | int,
                  element: str, count: Value | int) -> None:
    """A plain element loop; only ends of rows and strided operands come here."""
    e = code.e
    with e.loop(0, count) as loop:
        origin = loop.index if source_step == 1 else loop.index * source_step
        place = loop.index if target_step == 1 else loop.index * target_step
        e.store(e.load(e.offset(source, element, origin), element, 1), e.offset(target, element, place))


def together(code: LoopState, number: int, column: Value, count: Value | None, move: Callable[[str], None]) -> str:
    """Move a whole chunk of an operand with several inner axes at once if it lies on one line of the last one. What
    is written next moves its elements one by one; the label to go on at after that, "" where only that is there."""
    e, access = code.e, code.kernel.accesses[number]
    if access.pattern != "general" or code.lanes == 1 or count is not None:
        return ""
    at_once, apart, after = e.fresh("together"), e.fresh("apart"), e.fresh("after")
    coordinates, strides = code.split(column, code.inner), code.strides[number][code.kernel.outer_rank:]
    fits = e.icmp("sle", coordinates[-1] + code.lanes, code.inner[-1]) & e.icmp("eq", strides[-1], 1)
    e.branch_if(fits, at_once, apart)
    e.label(at_once)
    move(e.offset(code.pointers[number], scalars.memory_type(access.dtype), code.dot(coordinates, strides)))
    e.branch(after)
    e.label(apart)
    return after


def index_chunk(code: LoopState, instruction: Instruction, column: Value, count: Value | None) -> Value:
    """Positions as values: a line where the pattern allows it, else element by element."""
    e, number = code.e, instruction.access
    pattern = code.kernel.accesses[number].pattern
    start = code.positions[number]
    if pattern == "general":
        buffer = code.temporary(f"index{number}", "i64")
        with e.loop(0, code.lanes) as loop:
            position = start + code.inner_offset(number, column + loop.index)
            e.store(position, e.offset(buffer, "i64", loop.index))
        return code.from_index(e.load(buffer, "i64"), instruction.dtype)
    if pattern == "zero":
        return code.from_index(e.splat(start), instruction.dtype)
    stride = e.constant(1, "i64", 1) if pattern == "unit" else code.strides[number][-1]
    first = start + column * stride
    if instruction.dtype is int32:  # whole vectors of four bytes: what is above them is cut off anyway
        first, stride = (e.convert("trunc", value, "i32") for value in (first, stride))
        return e.splat(first) + e.lane_numbers("i32") * e.splat(stride)
    return code.from_index(e.splat(first) + e.lane_numbers() * e.splat(stride), instruction.dtype)


def store_chunk(code: LoopState, access: int, value: Value, dtype: DType, column: Value, count: Value | None,
                partial: Value | None) -> None:
    e = code.e
    element = scalars.memory_type(dtype)
    stored = scalars.to_memory(e, value, dtype)
    pattern = code.kernel.accesses[access].pattern
    address = e.offset(code.pointers[access], element, code.inner_offset(access, column))
    if pattern == "unit" and count is None:
        e.store(stored, address)
        return
    if pattern == "unit" and count is not None and code.isa.masks:
        e.store_some(e.bits(stored), address, e.first_lanes(count))
        return
    buffer = code.temporary(f"store{access}", element, True)
    if pattern == "unit" and partial is not None and count is not None:
        short, whole, after = e.fresh("short"), e.fresh("whole"), e.fresh("after")
        e.branch_if(partial, short, whole)
        e.label(whole)
        e.store(stored, address)
        e.branch(after)
        e.label(short)
        e.store(stored, buffer)
        copy_elements(code, buffer, 1, address, 1, element, count)
        e.branch(after)
        e.label(after)
        return
    e.store(stored, buffer)
    if pattern == "general":  # several inner axes: each element has a place of its own
        after = together(code, access, column, count, lambda place: e.store(stored, place))
        with e.loop(0, code.lanes if count is None else count) as loop:
            place = code.inner_offset(access, column + loop.index)
            one = e.load(e.offset(buffer, element, loop.index), element, 1)
            e.store(one, e.offset(code.pointers[access], element, place))
        if after:
            e.branch(after)
            e.label(after)
        return
    step: Value | int = 1 if pattern == "unit" else code.strides[access][-1]
    copy_elements(code, buffer, 1, address, step, element, code.lanes if count is None else count)


def kept_element(code: LoopState, number: int) -> str:
    return kept_type(code.kernel.instructions[number].dtype)


def store_kept(code: LoopState, value: Value, place: str) -> None:
    code.e.store(code.e.convert("zext", value, "i8") if value.element == "i1" else value, place)


def kept_place(code: LoopState, number: int, column: Value) -> str:
    return code.e.offset(code.kept[number], kept_element(code, number), column)


def load_kept(code: LoopState, number: int, column: Value) -> Value:
    e = code.e
    value = e.load(kept_place(code, number, column), kept_element(code, number))
    return e.icmp("ne", value, 0) if code.kernel.instructions[number].dtype is bool_ else value


def checked_index(code: LoopState, index: Value, extent: Value) -> Value:
    """The index if it lies inside the axis; else 0, and the call ends with a fault."""
    e = code.e
    inside = e.icmp("ult", index, extent)
    old = e.load(code.fault, "i32", 1)
    e.store(e.select(inside, old, FAULT_INDEX), code.fault)
    return e.select(inside, index, 0)


def gather_extent(code: LoopState, access: int) -> tuple[Value, Value]:
    """Size and stride of the indexed axis: two numbers after the dimensions' values."""
    at = code.kernel.record.at("gathers")
    order = [n for n, a in enumerate(code.kernel.accesses) if a.kind == "gather"].index(access)
    return code.value(at + 2 * order), code.value(at + 2 * order + 1)


def widened(code: LoopState, index: Value, dtype: DType) -> Value:
    return scalars.cast(code.e, index, dtype, int64)


def gather_row(code: LoopState, instruction: Instruction) -> Value:
    e, access = code.e, instruction.access
    extent, stride = gather_extent(code, access)
    which = instruction.inputs[0]
    index = checked_index(code, widened(code, code.row_operand(which), code.kernel.instructions[which].dtype), extent)
    if code.kernel.accesses[access].pattern == "none":
        return code.from_index(index, instruction.dtype)
    element = scalars.memory_type(instruction.dtype)
    loaded = e.load(e.offset(code.pointers[access], element, index * stride), element, 1)
    return scalars.from_memory(e, loaded, instruction.dtype)


def lanes_inside(code: LoopState, index: Value, extent: Value, count: Value | None) -> Value:
    """The lanes of a chunk's indices that lie inside the axis; a fault where one of the first `count` does not."""
    e = code.e
    inside = e.icmp("ult", index, e.splat(extent))
    counted = inside if count is None else inside | (e.first_lanes(count) ^ e.splat(e.constant(True, "i1", 1)))
    old = e.load(code.fault, "i32", 1)
    e.store(e.select(e.all_lanes(counted), old, FAULT_INDEX), code.fault)
    return inside if count is None else inside & e.first_lanes(count)


def column_offsets(code: LoopState, access: int, column: Value) -> Value:
    """The distances of a chunk's columns from their row's start, in elements."""
    e = code.e
    first = e.splat(code.inner_offset(access, column))
    pattern = code.kernel.accesses[access].pattern
    if pattern == "zero":
        return first
    lanes = e.lane_numbers()
    return first + (lanes if pattern == "unit" else lanes * e.splat(code.strides[access][-1]))


def gather_line(code: LoopState, instruction: Instruction, index: Value, column: Value, count: Value | None) -> Value:
    """One index for all columns, as where rows of a table are looked up: a plain load from the row it names."""
    e, access = code.e, instruction.access
    extent, stride = gather_extent(code, access)
    if index.lanes > 1:
        index = e.assign(f"extractelement {index.type} {index.name}, i64 0", index.element, 1)
    index = checked_index(code, widened(code, index, code.kernel.instructions[instruction.inputs[0]].dtype), extent)
    pattern = code.kernel.accesses[access].pattern
    if pattern == "none":
        return code.from_index(e.splat(index), instruction.dtype)
    element = scalars.memory_type(instruction.dtype)
    line = e.offset(code.pointers[access], element, index * stride)
    if pattern == "zero":
        return e.splat(scalars.from_memory(e, e.load(line, element, 1), instruction.dtype))
    address = e.offset(line, element, column)
    if count is not None:
        buffer = code.temporary(f"gather_line{access}", element, code.isa.masks)
        take_in(code, [(address, buffer, element)], count)
        address = buffer
    return scalars.from_memory(e, e.load(address, element), instruction.dtype)


def prepare_splat(code: LoopState, number: int) -> None:
    """Row values used by full ones are spread over the lanes before the loop."""
    if not code.kernel.instructions[number].full and number not in code.splats:
        instruction = code.kernel.instructions[number]
        code.splats[number] = code.constant(instruction, code.lanes) if instruction.name == "constant" else \
            code.e.splat(code.row_operand(number))


def is_long(code: LoopState, step: Pass) -> bool:
    """Long bodies are written once per pass; short ones also unrolled, with their accumulators in registers."""
    return code.compact and sum(code.kernel.instructions[n].flops for n in step.needed
                                if n not in step.kept) >= LONG_BODY


def write_chunk(code: LoopState, step: Pass, column: Value, count: Value | None,
                maybe_whole: bool = False) -> dict[int, Value]:
    """Compute every value of the pass at `column`.. and store what is to be stored.

    `count` None means a whole chunk; otherwise the number of elements left, which with `maybe_whole` may be all.
    """
    partial = code.e.icmp("slt", count, code.lanes) if count is not None and maybe_whole else None
    values = code.chunk_values(step, column, count, input_places(code, step, column, count, partial))
    for number in step.keep:
        store_kept(code, values[number], kept_place(code, number, column))
    stored = {store.access: values[store.instruction] for store in step.stores}
    for store in step.stores:
        access = code.kernel.accesses[store.access]
        if access.other >= 0 and code.lanes > 1:
            if access.pattern == "even":
                store_parts(code, store.access, (stored[store.access], stored[access.other]), column, count)
            continue
        dtype = code.kernel.instructions[store.instruction].dtype
        store_chunk(code, store.access, values[store.instruction], dtype, column, count, partial)
    return values
