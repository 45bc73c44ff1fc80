"""Factorisations and solves of small matrices, a block a matrix, which lies in shared memory.

An element is computed by the CPU's operations in the CPU's order (`kernels/linalg/triangular_code.py`): elimination
with the first of the largest pivots, Cholesky by rows of the transposed factor, and substitution that takes each
unknown off all rows that are still to be solved. So matrices of up to 32 rows have the CPU's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from morpho.backends.code.emit import Value
from morpho.backends.code.kernel_abi import Record
from morpho.backends.code.typed import Operand, Operations, Words, i32, i64, writes
from morpho.backends.code.vector_math import FUNCTIONS
from morpho.backends.cuda.blocks.segments import FAULT
from morpho.backends.cuda.blocks.threads import (
    FIRST,
    BlockKernel,
    atomic,
    barrier,
    block,
    in_memory,
    kernel_text,
    lane,
    moved,
    operand,
    place_in,
    shared,
    shuffle,
    thread,
    typed,
    warp,
)
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.kernels.linalg.matrix import FAULTS, RANKS
from morpho.backends.lowering.lower_linalg import is_small, options_of
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, product
from morpho.base.dtypes import DType
from morpho.ir.node import Node
from morpho.program.program import Step

THREADS = 128
FEW_ROWS = 6  # matrices of so many are a thread's each, in registers
NAMES = frozenset({"cholesky", "det", "slogdet", "inv", "solve", "solve_triangular", "lu"})


def fma(a: Any, b: Any, c: Any) -> Any: ...
def root(x: Any) -> Any: ...
def size_of(x: Any) -> Any: ...
def logarithm(x: Any) -> Any: ...


def _register(meaning: Any, write: Callable[..., Value]) -> None:
    @writes(meaning)
    def _write(code: Operations, *values: Operand) -> Operand:
        return typed(code, write(code.e, *values))


_register(fma, lambda e, a, b, c: e.fma(a, b, c))
_register(root, lambda e, x: e.square_root(x))
_register(size_of, lambda e, x: e.absolute(x))
_register(logarithm, lambda e, x: FUNCTIONS["log"](e, x))


@dataclass(frozen=True)
class BlockMatrix(BlockKernel):
    """The operation `name` on square matrices. Buffers: the operands, inputs first."""

    name: str
    dtype: DType
    rows: int
    outer_rank: int
    options: tuple[str, ...]

    flops = 2

    @property
    def may_fault(self) -> bool:
        return self.name in FAULTS

    @property
    def op_names(self) -> frozenset[str]:
        return frozenset({"log"}) if self.name == "slogdet" else frozenset()

    @property
    def record(self) -> Record:
        operands = " ".join(f"batch{n}[{self.outer_rank}] operand{n}[{rank}]" for n, rank in enumerate(
            RANKS[self.name]))
        return Record(f"count extents[{self.outer_rank}] {operands}")

    @property
    def pitch(self) -> int:
        return self.rows | 1  # neighbouring rows begin in different banks

    def launch(self, sizes: Sizes) -> Launch:
        nbytes = 16 + 8 * -(-self.rows // 2) + self.rows * self.pitch * self.dtype.itemsize
        return Launch(Geometry(known(sizes.rows), THREADS, nbytes))

    def text(self) -> str:
        n, pitch, kind, name, ranks = self.rows, self.pitch, in_memory(self.dtype), self.name, RANKS[self.name]
        N, at, fault = FIRST + len(ranks), self.record.at, FAULTS.get(self.name, 0)
        upper, unit = "upper" in self.options, "unit" in self.options
        starts = [place_in(self.outer_rank, N + at("extents"), N + at(f"batch{k}")) for k in range(len(ranks))]
        first_step = [N + at(f"operand{k}") for k in range(len(ranks))]
        factorises, checks = name in ("det", "slogdet", "inv", "solve", "lu"), name in ("inv", "solve")
        right, result = (1, 2) if name.startswith("solve") else (0, 1)
        solves = name.startswith("solve") or name == "inv"
        passes = [(False, True), (True, False)] if name != "solve_triangular" else [(upper, unit)]

        def kernel_main(p: Words, ctx: Words) -> None:
            t, line, word = thread(ctx), block(ctx), shared(ctx, i32, 0)
            a, order = shared(ctx, kind, 16 + 8 * -(-n // 2)), shared(ctx, i32, 16)
            source = operand(p, 0, kind) + starts[0](p, line)
            for item in range(t, n * n, THREADS):
                i, j = item // n, item % n
                row, column = (j, i) if name == "cholesky" else (i, j)
                a[i * pitch + j] = source[row * p[first_step[0]] + column * p[first_step[0] + 1]]
            for i in range(t, n, THREADS):
                order[i] = i32(i)
            sign = kind(1.0)
            barrier(ctx)
            if name == "cholesky":
                for k in range(n):
                    pivot = a[k * pitch + k]
                    if t == 0 and not pivot > kind(0.0):
                        atomic("or", operand(p, FAULT, i32), fault)
                    top = root(pivot)
                    barrier(ctx)
                    for j in range(k + t, n, THREADS):
                        a[k * pitch + j] = top if j == k else a[k * pitch + j] / top
                    barrier(ctx)
                    rest = n - 1 - k
                    for item in range(t, rest * rest, THREADS):
                        i, j = k + 1 + item // rest, k + 1 + item % rest
                        if j >= i:
                            a[i * pitch + j] = fma(-a[k * pitch + i], a[k * pitch + j], a[i * pitch + j])
                    barrier(ctx)
            elif factorises:
                for k in range(n):
                    if warp(ctx) == 0:
                        best, place = kind(-1.0), i32(n)
                        for i in range(k + lane(ctx), n, 32):
                            size = size_of(a[i * pitch + k])
                            if i == k and size != size:
                                size = kind(float("inf"))  # NaN is not exchanged
                            if size > best or (place == n and size != size):
                                best = size if size == size else kind(-1.0)
                                place = i32(i)
                        for distance in (16, 8, 4, 2, 1):
                            other = moved(shuffle, ctx, best, lane(ctx) ^ distance)
                            theirs = shuffle(ctx, place, i32(lane(ctx) ^ distance))
                            if other > best or (other == best and theirs < place):
                                best = other
                                place = theirs
                        if lane(ctx) == 0:
                            word[0] = place
                            old = order[k]
                            order[k] = order[place]
                            order[place] = old
                    barrier(ctx)
                    exchanged = i64(word[0])
                    sign = -sign if exchanged != k else sign
                    for j in range(t, n, THREADS):
                        value = a[k * pitch + j]
                        if exchanged != k:
                            a[k * pitch + j] = a[exchanged * pitch + j]
                            a[exchanged * pitch + j] = value
                    barrier(ctx)
                    pivot = a[k * pitch + k]
                    if checks and t == 0 and pivot == kind(0.0):
                        atomic("or", operand(p, FAULT, i32), fault)
                    for i in range(k + 1 + t, n, THREADS):
                        if checks or pivot != kind(0.0):
                            a[i * pitch + k] = a[i * pitch + k] / pivot
                    barrier(ctx)
                    rest = n - 1 - k
                    for item in range(t, rest * rest, THREADS):
                        i, j = k + 1 + item // rest, k + 1 + item % rest
                        a[i * pitch + j] = fma(-a[i * pitch + k], a[k * pitch + j], a[i * pitch + j])
                    barrier(ctx)
            target = operand(p, result, kind) + starts[result](p, line)
            if solves:
                columns = i64(n) if name == "inv" else p[N]
                down, across = p[first_step[result]], p[first_step[result] + 1]
                given = operand(p, right, kind) + starts[right](p, line)
                for item in range(t, n * columns, THREADS):
                    i, c = item // columns, item % columns
                    row = i64(order[i]) if factorises else i
                    if name == "inv":
                        target[i * down + c * across] = kind(1.0) if row == c else kind(0.0)
                    else:
                        target[i * down + c * across] = given[row * p[first_step[right]]
                                                              + c * p[first_step[right] + 1]]
                if name == "solve_triangular" and not unit:
                    for i in range(t, n, THREADS):
                        if a[i * pitch + i] == kind(0.0):
                            atomic("or", operand(p, FAULT, i32), fault)
                barrier(ctx)
                for backwards, is_unit in passes:
                    for step in range(n):
                        j = n - 1 - step if backwards else step
                        if not is_unit:
                            for c in range(t, columns, THREADS):
                                target[j * down + c * across] = target[j * down + c * across] / a[j * pitch + j]
                            barrier(ctx)
                        first, count = j + 1, n - 1 - j
                        if backwards:
                            first, count = i64(0), j
                        for item in range(t, count * columns, THREADS):
                            i, c = first + item // columns, item % columns
                            place = target + (i * down + c * across)
                            place[0] = fma(-a[i * pitch + j], target[j * down + c * across], place[0])
                        barrier(ctx)
            elif name == "cholesky":
                for item in range(t, n * n, THREADS):
                    i, j = item // n, item % n
                    row, column = (i, j) if upper else (j, i)
                    value = kind(0.0) if i > j else a[i * pitch + j]
                    target[row * p[first_step[1]] + column * p[first_step[1] + 1]] = value
            elif name == "lu":
                numbers = operand(p, 1, i64) + starts[1](p, line)
                lower, top_part = operand(p, 2, kind) + starts[2](p, line), operand(p, 3, kind) + starts[3](p, line)
                for item in range(t, n * n, THREADS):
                    i, j = item // n, item % n
                    value, diagonal = a[i * pitch + j], kind(1.0) if i == j else kind(0.0)
                    lower[i * p[first_step[2]] + j * p[first_step[2] + 1]] = value if i > j else diagonal
                    top_part[i * p[first_step[3]] + j * p[first_step[3] + 1]] = kind(0.0) if i > j else value
                for i in range(t, n, THREADS):
                    numbers[i * p[first_step[1]]] = i64(order[i])
            elif t == 0:
                total, logs = sign, kind(0.0)
                for k in range(n):
                    pivot = a[k * pitch + k]
                    if name == "det":
                        total = total * pivot
                    else:
                        own = kind(1.0) if pivot > kind(0.0) else kind(-1.0) if pivot < kind(0.0) else pivot
                        total = total * own
                        logs = logs + logarithm(size_of(pivot))
                target[0] = total
                if name == "slogdet":
                    (operand(p, 2, kind) + starts[2](p, line))[0] = logs

        return kernel_text(kernel_main, N + len(self.record), THREADS)


def is_block_matrix(node: Node) -> bool:
    return node.op.name in NAMES and is_small(node)


def lower_block_matrix(low: Lowering, node: Node) -> bool:
    """One step; matrices of a few rows stay a thread's each."""
    rows, batch = int(node.inputs[0].shape[-1]), node.inputs[0].shape[:-2]
    if rows <= FEW_ROWS or node.inputs[0].shape[-2] != rows:
        return False
    places = [low.view(child) for child in node.inputs]
    writes = tuple(range(len(places), len(places) + len(node.outputs)))
    places += [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    kernel = BlockMatrix(node.op.name, node.inputs[0].dtype, rows, len(batch), options_of(node))
    ranks = RANKS[node.op.name]
    steps: dict[str, Any] = {}
    for n, (place, rank) in enumerate(zip(places, ranks, strict=True)):
        cut = len(place.shape) - rank
        steps[f"batch{n}"], steps[f"operand{n}"] = list(place.strides[:cut]), list(place.strides[cut:])
    count: Size = places[1].shape[-1] if node.op.name.startswith("solve") else rows
    values = kernel.record.values(count=count, extents=list(batch), **steps)
    low.add(Step(kernel, tuple(places), writes, values, product(batch), rows * rows, node.op.name, node.origin,
                 operations=product(batch) * rows * rows * (rows + count), choice="a block a matrix"))
    low.views[node.serial] = places[writes[0]:]
    return True

