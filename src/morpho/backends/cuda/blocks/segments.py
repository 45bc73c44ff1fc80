"""Values combined or put at indices, after a stable sort of the indices: a thread for every index that differs from the
one before it, and every column, takes the values of its segment in their order. So an element is one chain, with the
CPU's bits, and no atomics are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.kernel_abi import FAULT_INDEX, Record
from morpho.backends.code.typed import Operand, Operations, Words, i32, i64, local, u64, writes
from morpho.backends.cuda.blocks.radix import UNSIGNED
from morpho.backends.cuda.blocks.threads import (
    FIRST,
    BlockKernel,
    atomic,
    block,
    elements,
    in_memory,
    in_register,
    kernel_text,
    operand,
    place_in,
    thread,
    typed,
)
from morpho.backends.cuda.codegen.grid import Header
from morpho.backends.cuda.codegen.kernels import Launch, Sizes, known
from morpho.backends.cuda.driver.interface import Geometry
from morpho.backends.cuda.sorting.lower import KEYS, MOST, sorted_lines
from morpho.backends.kernels.loops.sequential.scatter_code import combined
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import product
from morpho.base.dtypes import DType
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

THREADS = 256
AHEAD = tuple(range(8))  # values of a segment whose loads are in flight together
FAULT = int(Header.FAULT) - FIRST
LEAST, FEW_LINES = 512, 1 << 13  # indices of a line that are worth a sort; lines that keep a thread each busy
FEW_PUT = 1 << 10  # the same where values are put, not combined


@dataclass(frozen=True)
class CombineSegments(BlockKernel):
    """target[line, key, column] combined with the values of its segment. Buffers: sorted keys, their order, values,
    target. A line has its own indices, which its columns share."""

    mode: str
    dtype: DType
    target: DType
    index: DType
    line_rank: int
    column_rank: int

    may_fault = True

    @property
    def record(self) -> Record:
        axes = " ".join(f"{part}_extents[{rank}] {part}_value[{rank}] {part}_target[{rank}]"
                        for part, rank in (("line", self.line_rank), ("column", self.column_rank)))
        return Record(f"count columns size value target items {axes}")

    def launch(self, sizes: Sizes) -> Launch:
        return Launch(Geometry(max(1, -(-known(sizes.rows) // THREADS)), THREADS))

    def text(self) -> str:
        N, at, key_kind, kind = FIRST + 4, self.record.at, UNSIGNED[self.index.itemsize], in_register(self.dtype)
        value_kind, target_kind, puts = in_memory(self.dtype), in_memory(self.target), self.mode == "set"
        (load_value, _), (load, store) = elements(self.dtype), elements(self.target)
        value_line, target_line = (place_in(self.line_rank, N + at("line_extents"), N + at(f"line_{name}"))
                                   for name in ("value", "target"))
        value_column, target_column = (place_in(self.column_rank, N + at("column_extents"), N + at(f"column_{name}"))
                                       for name in ("value", "target"))
        combine, copied = combination(self.mode, self.target), elements(self.dtype)[1]
        count, columns, size = N, N + 1, N + 2

        def kernel_main(p: Words, ctx: Words) -> None:
            item = block(ctx) * THREADS + thread(ctx)
            if item < p[N + 5]:
                column, position = item % p[columns], item // p[columns] % p[count]
                line = item // p[columns] // p[count]
                keys, order = operand(p, 0, key_kind) + line * p[count], operand(p, 1, i32) + line * p[count]
                mine, neighbour = keys[position], position + 1 if puts else position - 1
                ends = neighbour < 0 or neighbour >= p[count]
                if not ends:
                    ends = keys[neighbour] != mine
                if ends and u64(mine) >= u64(p[size]):
                    atomic("or", operand(p, FAULT, i32), FAULT_INDEX)
                elif ends:
                    values = operand(p, 2, value_kind) + (value_line(p, line) + value_column(p, column))
                    place = operand(p, 3, target_kind) + (target_line(p, line) + target_column(p, column))
                    place = place + i64(mine) * p[N + 4]
                    if puts:
                        copied(place, load_value(values + i64(order[position]) * p[N + 3]))
                    else:
                        total, going, loaded = load(place), True, local(kind, len(AHEAD))
                        while going:
                            for k in AHEAD:
                                near = min(position + k, p[count] - 1)
                                loaded[k] = load_value(values + i64(order[near]) * p[N + 3])
                            for k in AHEAD:
                                if going and position + k < p[count]:
                                    going = keys[position + k] == mine
                                else:
                                    going = False
                                total = combine(total, loaded[k]) if going else total
                            position += len(AHEAD)
                        store(place, total)

        return kernel_text(kernel_main, N + len(self.record), THREADS)


def combination(mode: str, target: DType) -> Any:
    """Two values that meet, rounded as memory has them."""

    def call(old: Any, new: Any) -> Any: ...

    @writes(call)
    def _call(code: Operations, old: Operand, new: Operand) -> Operand:
        e = code.e
        total = scalars.round_to(e, combined(e, mode, target, old, new), target)
        return typed(code, scalars.from_memory(e, scalars.to_memory(e, total, target), target))

    return call


def has_many_indices(node: Node) -> bool:
    """Whether a sort of the indices is worth it: they are many, and lines too few for a thread each."""
    value, axis = node.inputs[2], node["axis"]
    lines = product(tuple(size for d, size in enumerate(value.shape) if d != axis))
    if not all(isinstance(size, int) for size in (*value.shape, *node.shape)):
        return False
    most = FEW_PUT if node["mode"] == "set" else FEW_LINES
    return LEAST <= int(value.shape[axis]) <= MOST and 0 < int(lines) < most


def sorted_scatter(low: Lowering, node: Node, places: tuple[View, View, View]) -> None:
    """The steps of index, value and a target that has the base in it."""
    index, value, target = places
    axis, others = node["axis"], [d for d in range(len(value.shape)) if d != node["axis"]]
    count, size = int(value.shape[axis]), int(target.shape[axis])
    own = [d for d in others if index.strides[d] != 0 and index.shape[d] != 1]
    shared = [d for d in others if d not in own]
    along = [[*[index.strides[d] for d in own], index.strides[axis]], [0] * (len(own) + 1)]
    unsigned = replace(index, dtype=KEYS[index.dtype.itemsize])
    keys, order = sorted_lines(low, node, unsigned, [value.shape[d] for d in own], along, count, False,
                               max(size - 1, 1).bit_length(), None)
    kernel = CombineSegments(node["mode"], value.dtype, target.dtype, index.dtype, len(own), len(shared))
    numbers = {f"{part}_{name}": [place[d] for d in axes] for part, axes in (("line", own), ("column", shared))
               for name, place in (("extents", value.shape), ("value", value.strides), ("target", target.strides))}
    items = product(value.shape)
    values = kernel.record.values(count=count, columns=product(tuple(value.shape[d] for d in shared)), size=size,
                                  value=value.strides[axis], target=target.strides[axis], items=items, **numbers)
    low.add(Step(kernel, (keys, order, value, target), (3,), values, items, 1,
                 "scatter" if node["mode"] == "set" else f"scatter_{node['mode']}", node.origin,
                 choice="after a sort of the indices"))
