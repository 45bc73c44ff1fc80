"""From a sort, or searches in a sorted line, and the places of the operands to a kernel and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.kernels.loops.sequential.search import SearchKernel
from morpho.backends.kernels.loops.sorting.merge import MergeSortKernel
from morpho.backends.kernels.loops.sorting.radix import RadixSortKernel
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, bounds, product, upper
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View


@dataclass(frozen=True, slots=True)
class SortCall:
    """A kernel and what to call it with."""

    kernel: MergeSortKernel | RadixSortKernel | SearchKernel
    values: tuple[Size, ...]
    items: Size
    work: Size  # of one item


def sort_call(node: Node, source: View, target: View) -> SortCall:
    """Values of 32 and 64 bits are merged in vector registers; indices, and narrow values, go by radix. Both have the
    bits of a stable sort."""
    axis, dtype = node["axis"], source.dtype
    outer = [d for d in range(len(node.shape)) if d != axis]
    kernel: MergeSortKernel | RadixSortKernel
    if node.op.name == "sort" and dtype.itemsize >= 4:
        unit = (source.strides[axis] == 1, target.strides[axis] == 1)
        kernel = MergeSortKernel(dtype, node["descending"], len(outer), unit)
    else:
        kernel = RadixSortKernel(dtype, node.op.name == "argsort", node["descending"], len(outer),
                                 upper(node.shape[axis]) >= 1 << 31)
    strides = [[place.strides[d] for d in (*outer, axis)] for place in (source, target)]
    values = kernel.record.values(extents=[node.shape[d] for d in outer], length=node.shape[axis], source=strides[0],
                                  target=strides[1])
    return SortCall(kernel, values, product(tuple(node.shape[d] for d in outer)), node.shape[axis])


def search_call(node: Node, line: View, values: View, target: View, vector_bits: int = 0) -> SortCall:
    """A line of values is an item of work; of one long line each value is one, and vectors of them are looked for at
    once where they lie side by side."""
    lanes = vector_bits // 16  # four vectors of positions: loads of one wait while others arrive
    plain = values.is_contiguous and target.is_contiguous and values.part is None and not values.borders
    if (lanes and plain and len(line.shape) == 1 and line.dtype.itemsize >= 4 and not line.borders
            and bounds(product(node.shape))[0] >= lanes):
        wide = SearchKernel(line.dtype, node["side"] == "right", 0, lanes)
        return SortCall(wide, wide.record.values(length=line.shape[-1], line=line.strides[-1]), product(node.shape), 1)
    shape, lines = node.shape, node.attributes.get("lines", 0)  # axes in front of both
    single = len(shape) <= lines + 1  # threads divide the values themselves
    outer = list(range(len(shape))) if single else list(range(len(shape) - 1))
    kernel = SearchKernel(line.dtype, node["side"] == "right", len(outer))
    along = [[*[place.strides[d] for d in outer], 0 if single else place.strides[-1]] for place in (values, target)]
    of_line = [*[line.strides[d] if d < lines else 0 for d in outer], line.strides[-1]]
    count: Size = 1 if single else shape[-1]
    numbers = kernel.record.values(extents=[shape[d] for d in outer], count=count, length=line.shape[-1], line=of_line,
                                   value=along[0], target=along[1])
    return SortCall(kernel, numbers, product(tuple(shape[d] for d in outer)), count)


def lower_sort(low: Lowering, node: Node) -> None:
    source, target = low.view(node.inputs[0]), low.new_slot(node.shape, node.dtype)
    call = sort_call(node, source, target)
    low.add(Step(call.kernel, (source, target), (1,), call.values, call.items, call.work, node.op.name,
                 node.origin))
    low.views[node.serial] = [target]


def lower_search(low: Lowering, node: Node) -> None:
    line, values = (low.view(child) for child in node.inputs)
    target = low.new_slot(node.shape, node.dtype)
    call = search_call(node, line, values, target, low.vector_bits)
    low.add(Step(call.kernel, (line, values, target), (2,), call.values, call.items, call.work, node.op.name,
                 node.origin))
    low.views[node.serial] = [target]
