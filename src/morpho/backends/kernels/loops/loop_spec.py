"""A loop kernel as data: rows of columns, the accesses, the instructions on them, and the passes over a row.

The iteration space is `outer` axes (rows, independent of each other and divided among threads) times `inner` axes
(columns, along which reductions run). A value is either *full*, one per column, or *row*, one per row. No extent and
no stride is part of a kernel: they are arguments, so one compiled kernel serves every length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.code.kernel_abi import Record
from morpho.base.dims import Size
from morpho.base.dtypes import DType, bool_, int16, uint8
from morpho.base.python.lazy import cached_property
from morpho.program.kernel import Kernel
from morpho.program.view import View

TREE_LANES = 64  # partial sums of a reduction tree (docs/numerics.md)
TREE_BLOCK = 4096  # columns of a block of that tree
LEVELS = 32  # of the binary counter that joins blocks
ROUNDING = 4  # operations that make a half float of a float32, at least
WORTH_KEEPING = 4  # operations per element, one division, from which a value is kept for the next walk over a row


@dataclass(frozen=True, slots=True)
class Access:
    """How one operand moves with the loops. `pattern` is its step along the columns:

    zero: one value per row; unit: side by side; reversed: side by side, the last one
    first (loads only); strided: one stride; general: several inner axes, a stride each; even
    and odd: real and imaginary parts of complex numbers side by side; none: a gather of index numbers, which reads no
    memory and only checks.
    `kind` is load, store, gather (the base of an indexed load) or index (no memory: the position itself is the value).
    """

    kind: str
    dtype: DType
    pattern: str
    across: str = ""  # the step along the last outer axis, in transposed kernels
    guards: int = 0  # borders of what is there, in short kernels; outside them the constant `fill` is read
    fill: str = ""
    other: int = -1  # of a stored part of complex numbers, in a walk that stores both: the access of the other one


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step: an elementwise op by name, `load`, `index`, `gather`, `constant`, `dimension`, or `reduce_<name>`.

    `inputs` are numbers of earlier instructions; `extra` is an access number or a constant as text, in which -0.0 and
    0.0 differ and NaN equals itself: kernels are keys.
    """

    name: str
    inputs: tuple[int, ...]
    dtype: DType
    full: bool
    extra: int | str | None = None
    flops: int = 1

    @property
    def reduces(self) -> bool:
        return self.name.startswith("reduce_")

    @property
    def access(self) -> int:
        """The access of a `load`, `index` or `gather`; of a `dimension` its number."""
        assert isinstance(self.extra, int), self
        return self.extra


@dataclass(frozen=True, slots=True)
class Store:
    """A value written through an access: one element per column when `full`, else one per row."""

    access: int
    instruction: int
    full: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """Rows of `target` are those of `yes` where the row value `mask` holds, of `no` elsewhere. All but the mask are
    accesses; None is something else than a line of memory."""

    mask: int
    target: int
    yes: int | None
    no: int | None


@dataclass(frozen=True)
class LoopKernel(Kernel):
    """Everything the generator needs, hashable: it is the key of the kernel cache."""

    outer_rank: int
    inner_rank: int
    accesses: tuple[Access, ...]
    instructions: tuple[Instruction, ...]
    stores: tuple[Store, ...]
    transposed: bool = False  # lanes run along the last outer axis, where memory lies side by side
    part: str = ""  # of a long reduction in two steps: "blocks" leaves a value per block, "join" puts those together
    short: tuple[int, ...] = ()  # extents of the inner axes of a small window, which is then written out
    block_transpose: int = 0  # columns of the scratch in which blocks of rows are transposed: lanes run along rows
    few_columns: bool = False  # a loop in stages would lose more by its last turn in every row than it gains
    keeps_loads: bool = False  # what is read is kept for the next walk over a row: memory is farther than on a CPU
    short_rows: bool = False  # a map of many rows that do not fill wide chunks: narrow ones waste less at the end

    # -- numbers -------------------------------------------------------------------------------------------------------
    @cached_property
    def record(self) -> Record:
        """Extents of the outer and inner axes; the strides of each access along both; what `dimension` instructions
        give; size and stride of the axis of each gather; of each guard a size, an offset, and strides along all axes.
        Parts of a long reduction have no guards, but the number of blocks of a row."""
        rank = self.outer_rank + self.inner_rank
        gathers = sum(access.kind == "gather" for access in self.accesses)
        guards = sum(access.guards for access in self.accesses)
        return Record(f"outer[{self.outer_rank}] inner[{self.inner_rank}] strides[{len(self.accesses) * rank}] "
                      f"dimensions[{sum(i.name == 'dimension' for i in self.instructions)}] gathers[{2 * gathers}] "
                      + ("blocks" if self.part else f"guards[{guards * (2 + rank)}]"))

    def access_at(self, number: int) -> int:
        """Where the strides of an access begin: its outer ones, then its inner ones."""
        return self.record.at("strides") + number * (self.outer_rank + self.inner_rank)

    def guards_at(self, number: int) -> int:
        """Where the numbers of an access's guards begin."""
        before = sum(access.guards for access in self.accesses[:number])
        return self.record.at("guards") + before * (2 + self.outer_rank + self.inner_rank)

    # -- what is only moved --------------------------------------------------------------------------------------------
    @property
    def with_halves_as_bits(self) -> LoopKernel:
        """Half floats that are read, chosen between and written, but not computed with, as integers: they do not become
        float32, to be rounded again."""
        halves = {n for n, i in enumerate(self.instructions) if i.dtype.compute is not i.dtype}
        users = [i for i in self.instructions if not halves.isdisjoint(i.inputs)]
        moves = all(self.instructions[n].name in ("load", "where") for n in halves) and all(
            i.name == "where" for i in users)
        if not halves or not moves or any(access.guards for access in self.accesses):
            return self
        accesses = tuple(replace(a, dtype=int16) if a.dtype.compute is not a.dtype else a for a in self.accesses)
        instructions = tuple(replace(i, dtype=int16) if n in halves else i for n, i in enumerate(self.instructions))
        return replace(self, accesses=accesses, instructions=instructions)

    # -- rows that stay ------------------------------------------------------------------------------------------------
    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Where all this kernel does is to choose for each row between lines of memory: a choice per store, or none at
        all. A row that shall be what already stands in its place, as in updates of a state, need not be written."""
        found = [self._choice(store) for store in self.stores]
        if self.may_fault or self.transposed or self.part or any(i.reduces for i in self.instructions):
            return ()
        return tuple(choice for choice in found if choice) if all(found) else ()

    def _choice(self, store: Store) -> Choice | None:
        chosen = self.instructions[store.instruction]
        if chosen.name != "where" or not store.full:
            return None
        mask, *values = (self.instructions[i] for i in chosen.inputs)
        patterns = [self.accesses[i.access].pattern if i.name == "load" else "" for i in (mask, *values)]
        sources = [value.access if pattern == "unit" else None
                   for value, pattern in zip(values, patterns[1:], strict=True)]
        by_rows = not mask.full or patterns[0] == "zero"
        if not by_rows or self.accesses[store.access].pattern != "unit" or sources == [None, None]:
            return None
        return Choice(chosen.inputs[0], store.access, sources[0], sources[1])

    # -- passes -------------------------------------------------------------------------------------------------------
    @cached_property
    def stages(self) -> tuple[int, ...]:
        """The pass after which each instruction's value is known: a reduction ends a pass."""
        result: list[int] = []
        for instruction in self.instructions:
            stage = max((result[i] for i in instruction.inputs), default=0)
            result.append(stage + 1 if instruction.reduces else stage)
        return tuple(result)

    @cached_property
    def passes(self) -> tuple[Pass, ...]:
        """The walks over the columns of a row, in order."""
        roots: dict[int, list[int]] = {}
        for number, instruction in enumerate(self.instructions):
            if instruction.reduces:
                roots.setdefault(self.stages[number] - 1, []).append(number)
        stores: dict[int, list[Store]] = {}
        for store in self.stores:
            if store.full:
                stores.setdefault(self.stages[store.instruction], []).append(store)
        order = sorted(set(roots) | set(stores))
        kept: set[int] = set()
        result = []
        for position, stage in enumerate(order):
            needed = self._needed(roots.get(stage, []), stores.get(stage, []), kept)
            later: set[int] = set()
            read: set[int] = set()  # by what later passes compute anew, reduce or store
            for other in order[position + 1:]:
                reductions, stored = roots.get(other, []), stores.get(other, [])
                later |= self._needed(reductions, stored, kept)
                read |= {i for r in reductions for i in self.instructions[r].inputs} | {s.instruction for s in stored}
            read |= {i for n in later - needed for i in self.instructions[n].inputs}
            keep = {n for n in needed & later & read - kept if self.worth_keeping(n, kept)}
            result.append(Pass(stage, tuple(roots.get(stage, [])), tuple(stores.get(stage, [])),
                               tuple(sorted(needed)), tuple(sorted(keep)), frozenset(kept)))
            kept |= keep
        return tuple(result)

    def worth_keeping(self, number: int, kept: set[int]) -> bool:
        """Whether a value waits for the next walk over its row rather than being computed again."""
        return (self._flops_again(number, kept) >= WORTH_KEEPING
                or (self.keeps_loads and self.instructions[number].name == "load"))

    def _needed(self, reductions: list[int], stores: list[Store], kept: set[int]) -> set[int]:
        """Full instructions to compute for these roots, stopping at values kept by an earlier pass."""
        found: set[int] = set()
        stack = [i for r in reductions for i in self.instructions[r].inputs] + [store.instruction for store in stores]
        while stack:
            number = stack.pop()
            if number in found or not self.instructions[number].full:
                continue
            found.add(number)
            if number not in kept:
                stack.extend(self.instructions[number].inputs)
        return found

    def _flops_again(self, number: int, kept: set[int]) -> int:
        """Operations to compute a full value once more; half floats are rounded by some."""
        found: set[int] = set()
        stack = [number]
        while stack:
            n = stack.pop()
            if n not in found and n not in kept and self.instructions[n].full:
                found.add(n)
                stack.extend(self.instructions[n].inputs)
        again = [self.instructions[n] for n in found if self.instructions[n].inputs]
        return sum(i.flops + (i.dtype.compute is not i.dtype) * ROUNDING for i in again)

    def needed_for(self, reduction: int, kept: frozenset[int]) -> set[int]:
        """Full instructions that one reduction needs of its pass."""
        return self._needed([reduction], [], set(kept))

    @cached_property
    def uniform(self) -> frozenset[int]:
        """Instructions with one value for all columns of a row, full ones among them."""
        found: set[int] = set()
        for number, instruction in enumerate(self.instructions):
            still = instruction.name in ("constant", "dimension") or (
                self.accesses[instruction.access].pattern in ("zero", "none")
                if instruction.name in ("load", "index", "gather") else not instruction.reduces)
            if not instruction.full or (still and all(i in found for i in instruction.inputs)):
                found.add(number)
        return frozenset(found)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Values too dear to compute twice: they wait in a row of scratch memory between two passes."""
        return tuple(number for step in self.passes for number in step.keep)

    @property
    def may_fault(self) -> bool:
        return any(a.kind == "gather" for a in self.accesses)

    @property
    def gathered(self) -> tuple[int, ...]:
        return tuple(number for number, access in enumerate(self.accesses) if access.kind == "gather")

    @cached_property
    def op_names(self) -> frozenset[str]:
        return frozenset(instruction.name for instruction in self.instructions)

    @property
    def can_split(self) -> bool:
        """Whether one walk over the columns does it all, so that blocks of a row can be computed apart."""
        return len(self.passes) == 1 and bool(self.passes[0].reductions) and not self.transposed

    @property
    def gathers(self) -> bool:
        """Whether it reads elements by indices; one that only checks them reads none."""
        return any(access.kind == "gather" and access.pattern != "none" for access in self.accesses)

    @property
    def reads_before_writing(self) -> bool:
        """Whether a result may lie over an operand: every full store is in the last walk over a row, and no row is
        computed twice, as some of a short kernel are."""
        return not self.short and all(not step.stores for step in self.passes[:-1])

    @property
    def is_plain(self) -> bool:
        """Whether rows and columns are walked as they are counted, so that any of both can be computed apart."""
        return not (self.transposed or self.part or self.short or self.block_transpose) and not any(
            step.reductions for step in self.passes)

    @property
    def transposed_accesses(self) -> tuple[int, ...]:
        """Accesses whose elements lie side by side along the columns, where lanes run along the rows."""
        return tuple(n for n, access in enumerate(self.accesses) if self.block_transpose
                     and access.kind in ("load", "store") and access.pattern == "unit" and access.across == "strided")

    @property
    def scratch_bytes_per_column(self) -> int:
        return 0 if self.block_transpose else 8 * len(self.kept) * (TREE_LANES if self.transposed else 1)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that do not grow with the columns."""
        return self._transposed_scratch if self.transposed else 0

    @property
    def _transposed_scratch(self) -> int:
        """Row values, and partials and joined blocks; or, for transposed blocks, all there is: partials, kept values
        and transposed blocks of so few columns."""
        rows = 8 * self.rows_together * sum(not i.full for i in self.instructions)
        reductions = [i for i in self.instructions if i.reduces and not self.short]
        if not self.block_transpose:
            return rows + 8 * self.rows_together * len(reductions) * (TREE_LANES + LEVELS)
        sizes = [*(i.dtype.compute.itemsize for i in reductions),
                 *(self.instructions[number].dtype.compute.itemsize for number in self.kept),
                 *(self.accesses[number].dtype.itemsize for number in self.transposed_accesses)]
        return rows + self.block_transpose * TREE_LANES * sum(sizes)

    @property
    def rows_together(self) -> int:
        """Rows that a transposed kernel walks together: as many as let the partial values of all reductions stay in the
        second-level cache."""
        if self.kept or self.block_transpose:
            return TREE_LANES  # kept and transposed values take a row of scratch per column: few rows at a time
        return max(TREE_LANES, 2048 // max(1, sum(i.reduces for i in self.instructions)))

    @cached_property
    def flops(self) -> int:
        """Operations per column, for deciding on threads."""
        return sum(self.instructions[n].flops for step in self.passes for n in step.needed) + 1


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the columns: its reductions, stores, the full values it computes, keeps, or finds kept."""

    stage: int
    reductions: tuple[int, ...]
    stores: tuple[Store, ...]
    needed: tuple[int, ...]
    keep: tuple[int, ...]
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class LoopCall:
    """A kernel and what to call it with: views in access order, numbers in the order the kernel reads them."""

    kernel: LoopKernel
    views: tuple[View | None, ...]
    values: tuple[Size, ...]
    rows: Size
    columns: Size


def lane_dtype(dtype: DType) -> DType:
    """The dtype in which accumulators are kept in memory between two kernels."""
    return uint8 if dtype is bool_ else dtype.compute


def constant_text(value: float | int | bool) -> str:
    """A constant as a key: floats by their exact value."""
    return value.hex() if isinstance(value, float) else str(int(value))


def constant_value(text: str, dtype: DType) -> float | int:
    """The number behind `constant_text`."""
    return float.fromhex(text) if dtype.is_float else int(text)
