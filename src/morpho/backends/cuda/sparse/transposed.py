"""A^T B for A in compressed rows on a grid, without atomics: stored elements are put in the order of their columns by a
stable sort, then a thread adds up all that meet an element of the result, rows ascending: the CPU's one chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.cuda.codegen.grid import GridEmitter, Header, entry
from morpho.backends.cuda.codegen.kernels import ISA, Launch, OwnKernel, Sizes
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.sorting.lower import KEYS, MOST, sorted_line
from morpho.backends.cuda.sparse.products import TeamSpmm, team_for, teams_for
from morpho.backends.kernels.sparse.row_walk import SparseCode
from morpho.backends.lowering.lowering import Lowering, flat
from morpho.base.dims import Size
from morpho.base.dtypes import DType, int32
from morpho.cost.tuned_choices import Problem
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

THREADS = 128
UNROLL = 4  # terms of a chain whose loads are in flight together


@dataclass(frozen=True)
class _Own(OwnKernel):
    """A kernel of this backend alone; the first number is how many threads it has work for."""

    role = "scan"
    may_fault = True
    places = 0
    numbers = 0

    def launch(self, sizes: Sizes) -> Launch:
        """A thread for each."""
        return Launch(Geometry(max(1, -(-sizes.values[0] // THREADS)), THREADS))


class _Code(SparseCode):
    """Generator of one kernel."""

    def __init__(self, kernel: _Own) -> None:
        super().__init__(ISA)
        self.e: GridEmitter = GridEmitter()
        e, first = self.e, int(Header.SIZE)
        self.zero, self.one = e.constant(0, "i64", 1), e.constant(1, "i64", 1)
        e.line("%fault = alloca i32, align 4")
        self.begin()
        self.words = first + kernel.places + kernel.numbers
        self.buffers = [e.address(first + n) for n in range(kernel.places)]
        self.v = [e.word(first + kernel.places + n) for n in range(kernel.numbers)]
        self.item = e.ask("block") * THREADS + e.ask("thread")

    def count_below(self, holds: object, size: Value) -> Value:
        """How many of `size` ordered places `holds` is true of: those that come first."""
        e = self.e
        with e.loop(0, 64, carried=[self.zero, size]) as loop:
            low, high = loop.values
            more = e.icmp("slt", low, high)
            middle = (low + high).shift_right(1)
            before = holds(middle) & more  # type: ignore[operator]
            loop.next(e.select(before, middle + 1, low), e.select(before, high, middle))
            loop.step = e.select(more, self.one, 64)
        return loop.values[0]

    def written(self) -> str:
        """The whole text."""
        e = self.e
        e.report(e.load("%fault", "i32", 1))
        return entry("kernel_main", self.words, e.text(), f' nounwind "nvvm.maxntid"="{THREADS}"') + e.outside()


@dataclass(frozen=True)
class OrderedRows(_Own):
    """The row of every stored element, in the order of columns. Buffers: order, indices, indptr, rows; numbers: the
    count of elements, of rows, and the size of the axis that indices look into."""

    index: DType
    pointer: DType
    places = 4
    numbers = 3

    def text(self) -> str:
        """A search for each."""
        code = _Code(self)
        e = code.e
        order, indices, indptr, result = code.buffers
        count, rows, size = code.v
        limit = code.limit(size, self.index)
        with e.when(e.icmp("slt", code.item, count)):
            at = code.whole(order, int32, code.item)
            _, worst = code.index(indices, self.index, at, limit, e.constant(0, limit.element, 1))
            code.fail_if(e.icmp("ugt", worst, limit) | e.icmp("slt", size, 1))
            row = code.count_below(lambda middle: e.icmp("sle", code.whole(indptr, self.pointer, middle), at), rows)
            row = code.larger(row - 1, code.zero)
            starts = e.icmp("sle", code.whole(indptr, self.pointer, row), at)
            inside = starts & e.icmp("slt", at, code.whole(indptr, self.pointer, row + 1))
            code.fail_if(inside ^ 1)
            e.store(e.convert("trunc", row, "i32"), e.offset(result, "i32", code.item))
        return code.written()


@dataclass(frozen=True)
class OrderedChains(_Own):
    """C[c, n] += the products that meet it. Buffers: ordered columns, order, ordered rows, data, B, C; numbers: the
    elements of C, its columns, the count of stored elements, and from one row of B to the next."""

    dtype: DType
    wide: DType
    key: DType
    places = 6
    numbers = 4
    may_fault = False

    def text(self) -> str:
        """A chain for each element of C."""
        code = _Code(self)
        e = code.e
        keys, order, rows, data, dense, result = code.buffers
        elements, columns, count, stride = code.v
        kind = scalars.memory_type(self.key)
        with e.when(e.icmp("slt", code.item, elements)):
            line = e.instruction("udiv", code.item, columns)
            column = code.item - line * columns

            def key(at: Value) -> Value:
                return e.convert("zext", e.load(e.offset(keys, kind, at), kind, 1), "i64")

            start = code.count_below(lambda middle: e.icmp("slt", key(middle), line), count)
            end = code.count_below(lambda middle: e.icmp("sle", key(middle), line), count)
            there = e.offset(dense, scalars.memory_type(self.dtype), column)

            def loads(at: Value) -> list[Value]:
                row, element = code.whole(rows, int32, at), code.whole(order, int32, at)
                return [code.number(data, self.dtype, element), code.number(there, self.dtype, row * stride)]

            def more(total: Value, read: list[Value]) -> Value:
                return e.fma(read[0], read[1], total) if total.is_float else total + read[0] * read[1]

            first = code.number(result, self.wide, code.item)
            with e.loop(start, end - (UNROLL - 1), UNROLL, carried=[first]) as loop:
                read = [loads(loop.index + number) for number in range(UNROLL)]
                total = loop.values[0]
                for values in read:
                    total = more(total, values)
                loop.next(total)
            with e.loop(loop.index, end, carried=[loop.values[0]]) as rest:
                rest.next(more(rest.values[0], loads(rest.index)))
            code.put(rest.values[0], result, self.wide, code.item)
        return code.written()


def with_team(low: Lowering, node: Node, step: Step) -> Step:
    """The step of a sparse product with the team of rows that the tuner has found."""
    sizes = (node.shape[0], node.inputs[3].shape[0], node.shape[1])
    if not all(isinstance(size, int) for size in sizes):
        return step
    default = team_for(node.shape[1])
    ways = {team.said: team for team in (default, *teams_for(int(node.shape[1])))}
    key = low.problem_key(node, "spmm teams", node.dtype.name, sizes)
    numbers = tuple(int(size) for size in sizes)
    chosen = low.tuned(node, Problem(key, "device", node, numbers, tuple(ways))).choice.way
    if chosen not in ways:
        return step
    given = {name: getattr(step.kernel, name) for name in step.kernel.__dataclass_fields__}  # type: ignore
    return replace(step, kernel=TeamSpmm(**given, team=ways[chosen]), choice=f"from the tuner: {chosen}")


def lower_spmm_transposed(low: Lowering, node: Node) -> bool:
    """A sort, a search, and chains; or the CPU's kernel, where a size is not known or there is little to do."""
    indices, indptr, data = (flat(low, child) for child in node.inputs[1:4])
    count, size = data.shape[0], node.shape[0]
    if not all(isinstance(n, int) for n in (count, *node.shape, indptr.shape[0])) or not 0 < int(count) <= MOST:
        return False
    base, dense = low.number_or_place(node.inputs[0]), flat(low, node.inputs[4], unit_rows=True)
    target = low.new_slot(node.shape, node.dtype)
    wide = target if node.dtype.compute is node.dtype else low.new_slot(node.shape, node.dtype.compute)
    low.copy(base, wide, node)
    bits = max(int(size) - 1, 1).bit_length()
    unsigned = replace(indices, dtype=KEYS[indices.dtype.itemsize])
    keys, order = sorted_line(low, node, unsigned, 1, int(count), False, bits)
    chains(low, node, (keys, order, indices, indptr, data, dense, wide), int(count))
    if wide is not target:
        low.copy(wide, target, node)
    low.views[node.serial] = [target]
    return True


def chains(low: Lowering, node: Node, places: tuple[View, ...], count: int) -> None:
    """The two launches behind the sort."""
    keys, order, indices, indptr, data, dense, wide = places
    rows = low.new_slot((count,), int32)
    columns: Size = node.shape[1]
    work = 2 * count * columns
    low.add(Step(OrderedRows(indices.dtype, indptr.dtype), (order, indices, indptr, rows), (3,),
                 (count, indptr.shape[0] - 1, node.shape[0]), 1, count, node.op.name, node.origin,
                 operations=count))
    low.add(Step(OrderedChains(node.dtype, wide.dtype, keys.dtype), (keys, order, rows, data, dense, wide), (5,),
                 (node.shape[0] * columns, columns, count, dense.strides[0]), 1, count, node.op.name, node.origin,
                 operations=work))
