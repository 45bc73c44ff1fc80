"""From a `LoopKernel` to LLVM text.

The columns of a row go by in chunks of `lanes` elements (`values.py`). Reductions follow docs/numerics.md: element
i adds into lane i mod 64, the lanes of a block of 4096 fold by halves, and blocks join pairwise.
"""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops import reductions
from morpho.backends.kernels.loops.chunk_width import is_long_chain
from morpho.backends.kernels.loops.loop_spec import TREE_LANES, Choice, Pass
from morpho.backends.kernels.loops.software_pipeline import pipelined_loop
from morpho.backends.kernels.loops.values import LoopState, is_long, write_chunk

TOGETHER = 8  # masks of rows in a number


class LoopCode(LoopState):
    """The whole function: rows, and passes over their columns."""

    # -- the function --------------------------------------------------------------------------------------------------
    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.bases = [e.load_pointer("%buffers", n) if a.kind != "index" else ""
                      for n, a in enumerate(kernel.accesses)]
        self.outer = [self.number(d) for d in range(kernel.outer_rank)]
        self.inner = [self.number(kernel.outer_rank + d) for d in range(kernel.inner_rank)]
        self.strides = [[self.number(kernel.access_at(n) + d) for d in range(kernel.outer_rank + kernel.inner_rank)]
                        for n in range(len(kernel.accesses))]
        self.begin, self.end = e.argument("%col0", "i64", 1), e.argument("%col1", "i64", 1)
        if kernel.may_fault:
            self.fault = self.allocate("i32", 1)
            e.store(e.constant(0, "i32", 1), self.fault)
        self._lay_out_scratch()
        self.walk_rows(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1))
        e.line(f"ret i32 {e.load(self.fault, 'i32', 1).name if kernel.may_fault else 0}")
        attributes = '"prefer-vector-width"="512"' if self.wide else ""
        if self.halved:  # both: the first alone leaves the vectors of the text as they are
            attributes = '"prefer-vector-width"="256" "min-legal-vector-width"="0"'
        if self.isa.architecture == "aarch64" and is_long_chain(kernel):
            # The order of the first scheduling, before registers are chosen, suits such chains by 1 to 4 % better.
            features = ",".join(filter(None, (self.isa.llvm_features, "-use-postra-scheduler")))
            attributes = f'"target-features"="{features}"'
        text = e.text()
        body = "\n".join([*self.allocas, *self.number_lines(text), text])
        return defined(f"i32 @{name}({SIGNATURE}) nounwind {attributes}", body) + e.outside()

    def _lay_out_scratch(self) -> None:
        """Each kept value has a row of scratch, padded so that whole chunks may be read and written."""
        e = self.e
        if not self.kernel.kept:
            return
        padded = (self.end + (TREE_LANES - 1)) & -TREE_LANES
        for position, number in enumerate(self.kernel.kept):
            self.kept[number] = e.offset("%scratch", "i8", padded * (8 * position))

    def walk_rows(self, first: Value, last: Value) -> None:
        """Rows along the last axis follow each other; only the first of them is looked for."""
        e = self.e
        if len(self.outer) == 1:
            with e.loop(first, last) as rows:
                self.row([rows.index])
            return
        steps = [strides[self.kernel.outer_rank - 1] for strides in self.strides]
        with e.loop(first, last) as lines:
            *upper, start = self.split(lines.index, self.outer)
            end = e.intrinsic("smin", start + (last - lines.index), self.outer[-1])
            lines.step = end - start
            with e.loop(start, end, carried=self.offsets([*upper, start])) as rows:
                kept = self.rows_that_stay(rows.index, end, list(rows.values), steps)
                if kept is not None:  # these are only counted
                    rows.step = kept + 1
                    rows.values = [offset + kept * step for offset, step in zip(rows.values, steps, strict=True)]
                    with e.when(e.icmp("slt", rows.index + kept, end)):
                        self.row([*upper, rows.index + kept], rows.values)
                else:
                    self.row([*upper, rows.index], rows.values)
                rows.next(*[offset + step for offset, step in zip(rows.values, steps, strict=True)])

    def rows_that_stay(self, row: Value, end: Value, offsets: list[Value], steps: list[Value]) -> Value | None:
        """How many rows from here on are what they shall be, by a mask in memory that is false for them; None where
        this kernel does more than to choose between rows."""
        e, choices = self.e, self.kernel.choices
        mask = self.kernel.instructions[choices[0].mask] if len(choices) == 1 else None
        if mask is None or mask.name != "load" or choices[0].no is None:
            return None
        self.place_row([], offsets)
        old, target = choices[0].no, choices[0].target
        stays = e.icmp("eq", steps[old], steps[target]) & (self.differs(old, target) ^ 1)
        line, along = self.pointers[mask.access], steps[mask.access]
        count = e.select(stays, end - row, 0)
        # Masks side by side are read as one number.
        together = e.select(e.icmp("eq", along, 1), count - (TOGETHER - 1), 0)
        start = e.first_without(e.constant(0, "i64", 1), together, lambda number: e.icmp(
            "eq", e.load(e.offset(line, "i8", number), "i64", 1, align=1), 0), TOGETHER)
        return e.first_without(start, count, lambda number: e.icmp(
            "eq", e.load(e.offset(line, "i8", number * along), "i8", 1), 0))

    # -- one row -------------------------------------------------------------------------------------------------------
    def row(self, coordinates: list[Value], offsets: list[Value] | None = None) -> None:
        """The row at these coordinates of the outer axes; `offsets` of its operands, where they are known."""
        self.place_row(coordinates, offsets)
        self.row_values(0)
        if self.kernel.choices:
            with self.e.when(self.changes()):
                self.choose_line()
                self.walk_columns()
        else:
            self.walk_columns()

    def walk_columns(self) -> None:
        for step in self.kernel.passes:
            self.column_pass(step)
            self.row_values(step.stage + 1)
        self.store_rows()

    def changes(self) -> Value:
        """Whether some row of a result is to become what it is not: see `LoopKernel.choices`."""
        e = self.e
        changed = e.constant(False, "i1", 1)
        for choice in self.kernel.choices:
            yes, no = (self.differs(source, choice.target) for source in (choice.yes, choice.no))
            changed = changed | e.select(self.holds(choice), yes, no)
        return changed

    def holds(self, choice: Choice) -> Value:
        """The mask of a choice in this row."""
        mask = self.kernel.instructions[choice.mask]
        return self.row_value(mask) if mask.full else self.row_operand(choice.mask)

    def choose_line(self) -> None:
        """One choice between two lines: both become the chosen one, and the other is not read."""
        e, (choice, *others) = self.e, self.kernel.choices
        if others or choice.yes is None or choice.no is None:
            return
        chosen = "%" + e.fresh("line")
        e.line(f"{chosen} = select i1 {self.holds(choice).name}, ptr {self.pointers[choice.yes]}, "
               f"ptr {self.pointers[choice.no]}")
        self.pointers[choice.yes] = self.pointers[choice.no] = chosen

    def differs(self, source: int | None, target: int) -> Value:
        """Whether a row of one access lies elsewhere than that of another."""
        if source is None:
            return self.e.constant(True, "i1", 1)
        return self.e.assign(f"icmp ne ptr {self.pointers[source]}, {self.pointers[target]}", "i1", 1)

    def offsets(self, coordinates: list[Value]) -> list[Value]:
        """How far from its beginning every operand's row begins, in elements."""
        return [self.dot(coordinates, strides[:self.kernel.outer_rank]) for strides in self.strides]

    def place_row(self, coordinates: list[Value], offsets: list[Value] | None = None) -> None:
        """Where every operand's row begins."""
        e = self.e
        self.rows = {}
        found = zip(self.kernel.accesses, offsets or self.offsets(coordinates), strict=True)
        for number, (access, offset) in enumerate(found):
            if access.kind == "index":
                self.positions[number] = offset
            else:
                self.pointers[number] = e.offset(self.bases[number], scalars.memory_type(access.dtype), offset)

    def store_rows(self) -> None:
        for store in self.kernel.stores:
            if not store.full:
                self.store_row(store.access, store.instruction)

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

    def map_pass(self, step: Pass) -> None:
        """Columns that only compute and store."""
        e, lanes = self.e, self.lanes
        if lanes == 1:
            with e.loop(self.begin, self.end) as loop:
                write_chunk(self, step, loop.index, None)
            return
        if self.pipelined and pipelined_loop(self, step, self.begin, self.end):
            return
        if is_long(self, step) and not self.kernel.short_rows:
            self.either_loop(step, self.begin, self.end)
            return
        whole = self.begin + ((self.end - self.begin) & -lanes)
        with e.loop(self.begin, whole, lanes) as loop:
            write_chunk(self, step, loop.index, None)
        with e.when(e.icmp("slt", whole, self.end)):
            write_chunk(self, step, whole, self.end - whole)

    def either_loop(self, step: Pass, begin: Value, end: Value) -> None:
        """All chunks by one body: the last one may be short."""
        e = self.e
        with e.loop(begin, end, self.lanes) as loop:
            left = end - loop.index
            count = e.intrinsic("smin", left, e.constant(self.lanes, "i64", 1))
            write_chunk(self, step, loop.index, count, maybe_whole=True)
