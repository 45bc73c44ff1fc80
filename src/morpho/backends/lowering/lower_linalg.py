"""From a factorisation or solve of small matrices, and the places of its operands, to a kernel and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from morpho.backends.kernels.linalg.lapack.kernel import LapackKernel, routines_of
from morpho.backends.kernels.linalg.matrix import MOST_ROWS, MOST_UNROLLED, RANKS, MatrixKernel
from morpho.backends.lowering.lowering import Lowering
from morpho.base.dims import Size, bounds, product
from morpho.base.dtypes import float32, float64
from morpho.base.python.blas import routine_address
from morpho.ir.node import Node
from morpho.program.program import Step
from morpho.program.view import View

Sizes = tuple[Size, ...]


class MatrixCall(NamedTuple):
    """A kernel and what to call it with."""

    kernel: MatrixKernel
    values: tuple[Size, ...]
    items: Size
    work: Size  # of one item


class LapackCall(NamedTuple):
    """The same of LAPACK's routines."""

    kernel: LapackKernel
    values: tuple[Size, ...]
    items: Size
    operations: Size  # of all items
    scratch_bytes: int


def is_small(node: Node) -> bool:
    """Whether there is native code for an operation: real matrices of at most 32 rows and columns. The number of
    matrices, and of columns of a right side, says nothing: it shall not change their bits."""
    if node.op.name not in RANKS or node.inputs[0].dtype not in (float32, float64):
        return False
    sides = node.inputs[0].shape[-2:]
    return all(isinstance(side, int) and 1 <= side <= MOST_ROWS for side in sides)


def is_lapack(node: Node) -> bool:
    """Whether LAPACK computes an operation, called by its address: matrices that are not empty."""
    routines = routines_of(node.op.name, node.inputs[0].dtype)
    filled = all(bounds(size)[0] > 0 for child in node.inputs for size in child.shape[-2:])
    return bool(routines) and filled and all(routine_address(routine) for routine in routines)


def lapack_call(node: Node, places: Sequence[View]) -> LapackCall:
    """`places` as of `matrix_call`; behind the matrix of `solve_refined` stands the place where it is factorised."""
    name, batch, options = node.op.name, places[0].shape[:-2], options_of(node)
    rows, columns = places[0].shape[-2:]
    right = {"solve": 1, "solve_triangular": 1, "qr": 1, "svd": 1, "solve_refined": 3}
    count = places[right[name]].shape[-1] if name in right else rows
    count = 0 if name == "svdvals" else count
    full = not {"complete", "full"}.isdisjoint(options)
    known = isinstance(rows, int) and isinstance(columns, int) and isinstance(count, int)
    kernel = LapackKernel(name, places[0].dtype, len(batch), "upper" in options, full, "unit" in options,
                          node.attributes.get("function", ""), not known, node.attributes.get("most", 0))
    sizes, areas = kernel.sizes(int(rows), int(columns), int(count)) if known else ([0] * 3, [0] * 20)
    values = kernel.record.values(routine=[0] * len(kernel.routines), rows=rows, columns=columns, count=count,
                                  size=sizes, area=areas[:len(kernel.areas)], extents=batch,
                                  **{f"operand{n}": place.strides for n, place in enumerate(places)})
    items = product(batch)
    return LapackCall(kernel, values, items, items * kernel.operations(rows, columns, count), areas[-1])


def options_of(node: Node) -> tuple[str, ...]:
    """Which form of its operation a node is, in the words of the kernel."""
    attributes = node.attributes
    found = {"upper": attributes.get("upper"), "unit": attributes.get("unit"),
             "complete": attributes.get("mode") == "complete", "full": attributes.get("full_matrices")}
    return tuple(name for name, is_set in found.items() if is_set)


def matrix_call(node: Node, places: Sequence[View]) -> MatrixCall:
    """`places` are those of the inputs, then those of the results."""
    name, ranks = node.op.name, RANKS[node.op.name]
    rows, columns = (int(size) for size in places[0].shape[-2:])
    solves = name.startswith("solve")
    count: Size = places[1].shape[-1] if solves else 0
    if solves:
        columns = count if isinstance(count, int) and count <= MOST_UNROLLED else 0
    batch = places[0].shape[:-2]
    outer = [tuple(place.strides[:len(batch)]) for place in places]
    batch, outer = _merged(batch, outer)
    items = product(batch)
    kernel = MatrixKernel(name, places[0].dtype, rows, columns, len(batch), options_of(node),
                          not (isinstance(items, int) and items < 4))
    strides = {f"operand{n}": [*outer[n], *place.strides[len(place.shape) - rank:]]
               for n, (place, rank) in enumerate(zip(places, ranks, strict=True))}
    values = kernel.record.values(extents=list(batch), count=count, **strides)
    longest = max(*(int(size) for size in places[0].shape[-2:]))
    return MatrixCall(kernel, values, items, longest**2 * (longest + count))


def _merged(batch: Sizes, strides: list[Sizes]) -> tuple[Sizes, list[Sizes]]:
    """The axes of a batch as one where they lie as one in all operands: a matrix is then found without a division."""
    along = range(len(batch) - 1)
    if not batch or not all(own[axis] == own[axis + 1] * batch[axis + 1] for own in strides for axis in along):
        return batch, strides
    return (product(batch),), [(own[-1],) for own in strides]


def lower_matrix(low: Lowering, node: Node) -> None:
    inputs = [low.view(child) for child in node.inputs]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    call = matrix_call(node, [*inputs, *targets])
    writes = tuple(range(len(inputs), len(inputs) + len(targets)))
    low.add(Step(call.kernel, (*inputs, *targets), writes, call.values, call.items, call.work, node.op.name,
                 node.origin))
    low.views[node.serial] = targets


def lower_lapack(low: Lowering, node: Node) -> None:
    inputs = [low.view(child) for child in node.inputs]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    if node.op.name == "solve_refined":
        inputs[:1] = rounded_matrix(low, node, inputs[0])
    call = lapack_call(node, [*inputs, *targets])
    writes = tuple(range(len(inputs), len(inputs) + len(targets)))
    writes = (1, *writes) if node.op.name == "solve_refined" else writes
    whose = "its" if len(call.kernel.routines) == 1 else "their"
    said = f"LAPACK's {', '.join(call.kernel.routines)}, called by {whose} address"
    low.add(Step(call.kernel, (*inputs, *targets), writes, call.values, call.items, 1, node.op.name, node.origin,
                 scratch=call.scratch_bytes, threads="library", operations=call.operations, choice=said))
    low.views[node.serial] = targets


def rounded_matrix(low: Lowering, node: Node, matrix: View) -> list[View]:
    """A matrix by rows, and its copy in float32, of numbers of the precision of the factors."""
    matrix = matrix if matrix.is_contiguous else low.copied(matrix, node)
    narrow, source = low.new_slot(matrix.shape, float32), matrix
    if node["dtype"] is not float32:
        source = low.new_slot(matrix.shape, node["dtype"])
        low.copy(matrix, source, node)
    low.copy(source, narrow, node)
    return [matrix, narrow]
