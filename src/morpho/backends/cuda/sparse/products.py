"""Sparse times dense on a grid, with the elementwise operations that follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.generic import function_text, joined
from morpho.backends.cuda.codegen.kernels import ISA
from morpho.backends.cuda.sparse.walk import GridRows, RowTeams, Team
from morpho.backends.kernels.sparse.kernels import FOLLOWED_SPMM, SpmmKernel
from morpho.backends.kernels.sparse.spmm_code import SpmmCode
from morpho.ops.sparse.pattern import CHAINS
from morpho.program.kernel import Kernel
from morpho.program.program import Step

SPLIT_COLUMNS = 8  # up to which chains have threads of their own
WARP = 32


def team_for(columns: object) -> Team:
    """The team of a product with so many columns.

    >>> team_for(1), team_for(5), team_for(20), team_for(300)
    (Team(width=1, each=1, split=True), Team(width=8, each=1, split=True), Team(width=32, each=1, split=False), \
Team(width=32, each=4, split=False))
    """
    if not isinstance(columns, int):
        return Team(WARP, 1, False)
    if columns <= SPLIT_COLUMNS:
        return Team(1 << max(columns - 1, 0).bit_length(), 1, True)
    if columns <= WARP:
        return Team(1 << (columns - 1).bit_length(), 1, False)
    return Team(WARP, 2 if columns <= 2 * WARP else 4, False)


def teams_for(columns: int) -> list[Team]:
    """All that may be tried: they add in the same order.

    >>> [team.said for team in teams_for(3)]
    ['4 columns, chains apart']
    """
    if columns <= 2:
        return [team_for(columns)]
    wide = [Team(width, each, False) for width in (8, 16, WARP) for each in (1, 2, 4) if width * each < 2 * columns]
    split = [Team(width, 1, True) for width in (4, 8) if width < 2 * columns]
    return [*split, *wide] if columns > 4 else split[:1]


@dataclass(frozen=True)
class TeamSpmm(SpmmKernel):
    """A product whose team is chosen."""

    team: Team = field(default_factory=Team)


@dataclass(frozen=True)
class SpmmTeams(RowTeams):
    """`SpmmKernel` on a grid."""

    after: Kernel | None = None
    by_rows: bool = True  # whether what follows has the rows of the product, or is one line

    def text(self) -> str:
        return _Code(self).module("")


class _Code(GridRows, SpmmCode):
    """Writes one; the arithmetic is the CPU's."""

    def __init__(self, device: SpmmTeams) -> None:
        assert isinstance(device.body, SpmmKernel)
        SpmmCode.__init__(self, device.body, ISA)
        self.on_grid(device)
        self.follows = device

    def plus(self, a: Value, b: Value) -> Value:
        return SpmmCode.plus(self, a, b)

    def module(self, name: str) -> str:
        e, kernel = self.e, self.kernel
        self.dense, self.indices, self.indptr, self.data, self.result = (e.load_pointer("%buffers", n)
                                                                         for n in range(5))
        self.v = v = kernel.record.load(e)
        self.place(v["rows"], None if kernel.single else v["columns"])
        count = e.select(e.icmp("sgt", v["size"], 0), v["count"], self.zero)
        self.last, self.memory = self.limit(v["size"], kernel.index), scalars.memory_type(kernel.dtype)
        start, end = self.span(self.indptr, kernel.pointer, self.mine, count)
        end = e.select(self.here, end, start)
        e.line(f"%worst = alloca {self.last.type}, align 8")
        e.store(e.constant(0, self.last.element, 1), "%worst")
        if self.device.team.split:
            self.by_chains(start, end)
        else:
            self.by_columns(start, end)
        self.fail_above(e.load("%worst", self.last.element, 1), self.last)
        text = self.written()
        after = self.follows.after
        return text if after is None else joined([function_text(after, "after"), text])

    # -- elements ------------------------------------------------------------------------------------------------------
    def element(self, at: Value) -> tuple[Value, Value]:
        """A stored number, and where the row of the dense operand begins that it meets. An index that is wrong is
        noted, and made to fit."""
        e, kernel = self.e, self.kernel
        index, worst = self.index(self.indices, kernel.index, at, self.last, e.load("%worst", self.last.element, 1))
        e.store(worst, "%worst")
        return self.number(self.data, kernel.dtype, at), index * self.v["stride"] if kernel.strided else index

    def by_chains(self, start: Value, end: Value) -> None:
        """A thread for each chain of a column."""
        e, kernel = self.e, self.kernel
        inside = self.here if kernel.single else self.here & e.icmp("slt", self.column, self.v["columns"])
        column = self.zero if kernel.single else self.smaller(self.column, self.v["columns"] - 1)
        first = e.offset(self.dense, self.memory, column)

        def loads(at: Value) -> list[Value]:
            value, row = self.element(at)
            return [value, self.number(first, kernel.dtype, row)]

        total = self.part(start, end, self.empty(1), loads, lambda total, read: self.with_term(total, *read))
        with e.when(inside & e.icmp("eq", self.chain, 0)):
            self.finish(total, column)

    def by_columns(self, start: Value, end: Value) -> None:
        """All chains of the thread's columns in registers."""
        e, kernel, team = self.e, self.kernel, self.device.team
        columns = [self.column + number * team.width for number in range(team.each)]
        fitting = [self.smaller(column, self.v["columns"] - 1) for column in columns]

        def term(at: Value, sums: list[Value]) -> list[Value]:
            value, row = self.element(at)
            line = e.offset(self.dense, self.memory, row)
            return [self.with_term(total, value, self.number(line, kernel.dtype, column))
                    for total, column in zip(sums, fitting, strict=True)]

        most = start + ((end - start) & -CHAINS)
        with e.loop(start, most, CHAINS, carried=[self.empty(1)] * (CHAINS * team.each)) as loop:
            found: list[Value] = []
            for chain in range(CHAINS):
                found += term(loop.index + chain, loop.values[chain * team.each:(chain + 1) * team.each])
            loop.next(*found)
        sums = loop.values
        for chain in range(CHAINS - 1):
            at, own = most + chain, slice(chain * team.each, (chain + 1) * team.each)
            sums[own] = self.maybe(e.icmp("slt", at, end), sums[own], partial(term, at))
        for number, column in enumerate(columns):
            c = [sums[chain * team.each + number] for chain in range(CHAINS)]
            with e.when(self.here & e.icmp("slt", column, self.v["columns"])):
                self.finish(self.plus(self.plus(c[0], c[2]), self.plus(c[1], c[3])), column)

    def finish(self, total: Value, column: Value) -> None:
        """Store an element, then what follows it, by the same thread."""
        e, kernel = self.e, self.kernel
        place = self.mine if kernel.single else self.mine * self.v["columns"] + column
        self.put(total, self.result, kernel.dtype, place)
        if self.follows.after is None:
            return
        places, numbers = e.offset("%buffers", "ptr", 5), e.offset("%values", "i64", len(FOLLOWED_SPMM))
        row, along = (self.mine, column) if self.follows.by_rows else (self.zero, self.mine)
        given = ", ".join(f"i64 {x.name}" for x in (row, row + 1, along, along + 1))
        found = e.assign(f"call i32 @after(ptr {places}, ptr {numbers}, {given}, ptr null)", "i32", 1)
        e.store(e.load("%fault", "i32", 1) | found, "%fault")


def spmm_teams(step: Step) -> SpmmTeams | None:
    """The grid of a product; None where what follows it needs memory of its own."""
    kernel = step.kernel
    assert isinstance(kernel, SpmmKernel)
    if step.scratch or (kernel.follows and step.epilogue is None):
        return None
    names = kernel.record.names
    team = kernel.team if isinstance(kernel, TeamSpmm) else team_for(step.values[names.index("columns")])
    found = SpmmTeams(kernel, team, len(step.views), len(step.values))
    if kernel.follows:
        found = replace(found, after=step.epilogue, by_rows=bool(step.values[names.index("by_rows")]))
    return found
