"""Loads whose place on one axis is a value of the kernel, checked against the size of the axis."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Value
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.kernels.loops.chunk_moves import ChunkMoves
from morpho.backends.kernels.loops.loop_spec import Instruction
from morpho.base.dtypes import DType, int64


class GatherCode(ChunkMoves):
    """Rows and chunks that are looked up."""

    def checked(self, index: Value, extent: Value) -> Value:
        """The index if it lies inside the axis; else 0, and the call ends with a fault."""
        e = self.e
        inside = e.icmp("ult", index, extent)
        old = e.load(self.fault, "i32", 1)
        e.store(e.select(inside, old, FAULT_INDEX), self.fault)
        return e.select(inside, index, 0)

    def gather_extent(self, access: int) -> tuple[Value, Value]:
        """Size and stride of the indexed axis: two numbers after the dimensions' values."""
        at = self.kernel.record.at("gathers")
        order = [n for n, a in enumerate(self.kernel.accesses) if a.kind == "gather"].index(access)
        return self.value(at + 2 * order), self.value(at + 2 * order + 1)

    def widened(self, index: Value, dtype: DType) -> Value:
        return scalars.cast(self.e, index, dtype, int64)

    def gather_row(self, instruction: Instruction) -> Value:
        e, access = self.e, instruction.access
        extent, stride = self.gather_extent(access)
        which = instruction.inputs[0]
        index = self.checked(self.widened(self.row_operand(which), self.kernel.instructions[which].dtype), extent)
        if self.kernel.accesses[access].pattern == "none":
            return self.from_index(index, instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        loaded = e.load(e.offset(self.pointers[access], element, index * stride), element, 1)
        return scalars.from_memory(e, loaded, instruction.dtype)

    def inside(self, index: Value, extent: Value, count: Value | None) -> Value:
        """The lanes of a chunk's indices that lie inside the axis; a fault where one of the first `count` does not."""
        e = self.e
        inside = e.icmp("ult", index, e.splat(extent))
        counted = inside if count is None else inside | (e.first_lanes(count) ^ e.splat(e.constant(True, "i1", 1)))
        old = e.load(self.fault, "i32", 1)
        e.store(e.select(e.all_lanes(counted), old, FAULT_INDEX), self.fault)
        return inside if count is None else inside & e.first_lanes(count)

    def gather_chunk(self, number: int, values: dict[int, Value], column: Value, count: Value | None) -> Value:
        e, instruction = self.e, self.kernel.instructions[number]
        access, which = instruction.access, instruction.inputs[0]
        pattern = self.kernel.accesses[access].pattern
        if which in self.kernel.uniform and pattern in ("unit", "zero", "none"):
            return self.gather_line(instruction, values[which], column, count)
        extent, stride = self.gather_extent(access)
        index = self.widened(values[which], self.kernel.instructions[which].dtype)
        inside = self.inside(index, extent, count)
        index = e.select(inside, index, 0)
        if pattern == "none":
            return self.from_index(index, instruction.dtype)
        element = scalars.memory_type(instruction.dtype)
        if self.isa.masks and self.lanes > 1 and pattern != "general" and BITS[element] >= 32:
            places = index * e.splat(stride) + self.column_offsets(access, column)
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

    def column_offsets(self, access: int, column: Value) -> Value:
        """The distances of a chunk's columns from their row's start, in elements."""
        e = self.e
        first = e.splat(self.inner_offset(access, column))
        pattern = self.kernel.accesses[access].pattern
        if pattern == "zero":
            return first
        lanes = e.lane_numbers()
        return first + (lanes if pattern == "unit" else lanes * e.splat(self.strides[access][-1]))

    def gather_line(self, instruction: Instruction, index: Value, column: Value, count: Value | None) -> Value:
        """One index for all columns, as where rows of a table are looked up: a plain load from the row it names."""
        e, access = self.e, instruction.access
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
            buffer = self.temporary(f"gather_line{access}", element, self.isa.masks)
            self.take_in([(address, buffer, element)], count)
            address = buffer
        return scalars.from_memory(e, e.load(address, element), instruction.dtype)
