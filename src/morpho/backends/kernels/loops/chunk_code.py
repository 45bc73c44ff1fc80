"""The values of a row and of a chunk of its columns: every instruction of a loop kernel, one lane or all of them."""

from __future__ import annotations

from morpho.backends.code import elementwise, scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.loops.gather import GatherCode
from morpho.backends.kernels.loops.loop_base import LONG_BODY
from morpho.backends.kernels.loops.loop_spec import Instruction, Pass


class ChunkCode(GatherCode):
    """Computes what a pass over the columns needs, a chunk at a time."""

    # -- values of a row -----------------------------------------------------------------------------------------------
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
            return self.gather_row(instruction)
        arguments = [self.row_operand(i) for i in instruction.inputs]
        source = self.kernel.instructions[instruction.inputs[-1]].dtype
        return elementwise.emit(e, instruction.name, arguments, source, instruction.dtype)

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
            if instruction.name == "load" and self.kernel.accesses[instruction.access].pattern == "zero":
                self.splats[number] = self.e.splat(self.row_value(instruction))

    def prepare_splat(self, number: int) -> None:
        """Row values used by full ones are spread over the lanes before the loop."""
        if not self.kernel.instructions[number].full and number not in self.splats:
            instruction = self.kernel.instructions[number]
            self.splats[number] = self.constant(instruction, self.lanes) if instruction.name == "constant" else \
                self.e.splat(self.row_operand(number))

    def is_long(self, step: Pass) -> bool:
        """Long bodies are written once per pass; short ones also unrolled, with their accumulators in registers."""
        return self.compact and sum(self.kernel.instructions[n].flops for n in step.needed
                                    if n not in step.kept) >= LONG_BODY

    # -- one chunk -----------------------------------------------------------------------------------------------------
    def chunk(self, step: Pass, column: Value, count: Value | None, maybe_whole: bool = False) -> dict[int, Value]:
        """Compute every value of the pass at `column`.. and store what is to be stored.

        `count` None means a whole chunk; otherwise the number of elements left, which with `maybe_whole` may be all.
        """
        partial = self.e.icmp("slt", count, self.lanes) if count is not None and maybe_whole else None
        values = self.chunk_values(step, column, count, self.input_places(step, column, count, partial))
        for number in step.keep:
            self.store_kept(values[number], self.kept_place(number, column))
        stored = {store.access: values[store.instruction] for store in step.stores}
        for store in step.stores:
            access = self.kernel.accesses[store.access]
            if access.other >= 0 and self.lanes > 1:
                if access.pattern == "even":
                    self.store_parts(store.access, (stored[store.access], stored[access.other]), column, count)
                continue
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
