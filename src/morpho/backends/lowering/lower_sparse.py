"""From operations on compressed sparse rows to their steps, and elementwise ones into the epilogue of a product."""

from __future__ import annotations

from dataclasses import replace

from morpho.backends.kernels.gemm.gemm import EPILOGUE
from morpho.backends.kernels.gemm.matmul import loop_scratch
from morpho.backends.kernels.loops.loop_spec import LoopCall
from morpho.backends.kernels.sparse.kernels import (
    PIECE,
    RANKS,
    SPARE,
    SPMM,
    WIDTH,
    IncompleteKernel,
    RowReduceKernel,
    SddmmKernel,
    SpgemmKernel,
    SpmmKernel,
    TransposedSpmmKernel,
    TriangularKernel,
)
from morpho.backends.lowering.groups.lower_group import lower_body
from morpho.backends.lowering.lowering import Lowering, flat, operations, tuned_words
from morpho.base.dims import Size, upper
from morpho.cost.tuned_choices import Problem
from morpho.ir.node import Node
from morpho.ir.printing import joined
from morpho.ir.views import is_view
from morpho.program.program import Step
from morpho.program.view import View, whole

FOLLOWED = "spmm"


def merge_pieces(rows: Size, count: Size, piece: int = PIECE) -> tuple[Size, int]:
    """Pieces of the merge path, and the steps of one; where sizes are not known each step is a piece."""
    if isinstance(rows, int) and isinstance(count, int):
        return -(-(rows + count) // piece), piece
    return rows + count, 1


def _parts(columns: Size) -> Size:
    return -(-columns // WIDTH) if isinstance(columns, int) else columns


# -- products ------------------------------------------------------------------------------------------------------
def spmm_step(low: Lowering, node: Node, target: View) -> Step:
    """The step of a product into a contiguous matrix."""
    dense = low.view(node.inputs[0])
    single = node.shape[1] == 1
    if not single and dense.strides[1] != 1:
        dense = low.copied(dense, node)
    indices, indptr, data = (flat(low, child) for child in node.inputs[1:])
    rows, count = node.shape[0], data.shape[0]
    key = low.problem_key(node, "spmm", node.dtype.name, (rows, count, node.shape[1]))
    choice = low.tuned(node, Problem(key, "sparse", node, tuple(map(upper, (rows, count, node.shape[1]))),
                                     threads=low.target.threads)).choice
    pieces, piece = merge_pieces(rows, count, choice.tile_rows or PIECE)  # a row is one piece's in any case
    kernel = SpmmKernel(node.dtype, indices.dtype, indptr.dtype, node.attributes.get("semiring", "plus_times"),
                        single, dense.strides[0] != 1)
    values = SPMM.values(rows=rows, size=dense.shape[0], count=count, piece=piece, columns=node.shape[1],
                         stride=dense.strides[0])
    step = Step(kernel, (dense, indices, indptr, data, target), (4,), values, pieces, node.shape[1] * piece,
                "spmv" if single else "spmm", node.origin, operations=2 * count * node.shape[1],
                threads=low.threads_for(node, choice.threads), choice=tuned_words(choice))
    return low.device.sparse_product(low, node, step)


def lower_spmm(low: Lowering, node: Node) -> None:
    target = low.new_slot(node.shape, node.dtype)
    low.add(spmm_step(low, node, target))
    low.views[node.serial] = [target]


def waits_for_group(low: Lowering, node: Node) -> bool:
    """Whether the only reader of a sparse product is a group of elementwise operations, which may follow it."""
    while node.op.name in (FOLLOWED, "reshape"):
        users = low.graph.users[node.serial]
        if len(users) != 1 or node in low.graph.outputs:
            return False
        node = users[0]
    return node.op.name == "group" and not node["axes"]


def followed_product(low: Lowering, group: Node) -> tuple[int, Node] | None:
    """Which input of a group is a sparse product that waits for it, in its own shape or as a vector."""
    for number, child in enumerate(group.inputs):
        root = child
        while root.op.name == "reshape":
            root = root.inputs[0]
        if root.op.name == FOLLOWED and root.serial in low.waiting and child.shape == group["space"] \
                and child.shape in (root.shape, root.shape[:1]) and _reads_plainly(group, number):
            return number, root
    return None


def lower_followed(low: Lowering, group: Node, targets: list[View]) -> bool:
    """A group as the epilogue of the sparse product it reads: False where it is not one."""
    found = followed_product(low, group)
    if found is None:
        return False
    number, node = found
    product = low.new_slot(node.shape, node.dtype)
    vector = len(group["space"]) == 1
    places = [whole(product.slot, group["space"], node.dtype) if i == number else low.view(child)
              for i, child in enumerate(group.inputs)]
    after = lower_body(group, places, targets, 1)
    wanted = (1, node.shape[0]) if vector else node.shape
    if (after.rows, after.columns) != wanted or not after.kernel.is_plain:
        return False
    low.waiting.discard(node.serial)
    low.lowered.add(node.serial)
    low.views[node.serial] = [product]
    low.add(_followed(spmm_step(low, node, product), after, not vector, joined(operations(group))))
    return True


def lower_spmm_transposed(low: Lowering, node: Node) -> None:
    base = low.number_or_place(node.inputs[0])
    indices, indptr, data = (flat(low, child) for child in node.inputs[1:4])
    dense = flat(low, node.inputs[4], unit_rows=True)
    target = low.new_slot(node.shape, node.dtype)
    wide = target if node.dtype.compute is node.dtype else low.new_slot(node.shape, node.dtype.compute)
    low.copy(base, wide, node)
    kernel = TransposedSpmmKernel(node.dtype, wide.dtype, indices.dtype, indptr.dtype)
    columns, count = node.shape[1], data.shape[0]
    values = kernel.record.values(rows=dense.shape[0], size=node.shape[0], count=count, columns=columns,
                                  stride=dense.strides[0])
    low.add(Step(kernel, (indices, indptr, data, dense, wide), (4,), values, _parts(columns), count * WIDTH,
                 node.op.name, node.origin, operations=2 * count * columns))
    if wide is not target:
        low.copy(wide, target, node)
    low.views[node.serial] = [target]


def lower_sddmm(low: Lowering, node: Node) -> None:
    right, left = (flat(low, node.inputs[n], unit_rows=True) for n in (0, 3))
    indices, indptr = flat(low, node.inputs[1]), flat(low, node.inputs[2])
    target = low.new_slot(node.shape, node.dtype)
    pieces, piece = merge_pieces(left.shape[0], node.shape[0])
    kernel = SddmmKernel(node.dtype, indices.dtype, indptr.dtype)
    values = kernel.record.values(rows=left.shape[0], size=right.shape[0], count=node.shape[0], piece=piece,
                                  columns=left.shape[1], right=right.strides[0], left=left.strides[0])
    low.add(Step(kernel, (right, indices, indptr, left, target), (4,), values, pieces, piece * left.shape[1],
                 node.op.name, node.origin, operations=2 * node.shape[0] * left.shape[1]))
    low.views[node.serial] = [target]


def lower_row_reduce(low: Lowering, node: Node) -> None:
    values, indptr = (flat(low, child) for child in node.inputs)
    target = low.new_slot(node.shape, node.dtype)
    pieces, piece = merge_pieces(node.shape[0], values.shape[0])
    kernel = RowReduceKernel(node["how"], node.dtype, indptr.dtype)
    numbers = kernel.record.values(rows=node.shape[0], count=values.shape[0], piece=piece)
    low.add(Step(kernel, (values, indptr, target), (2,), numbers, pieces, piece, node.op.name, node.origin))
    low.views[node.serial] = [target]


def lower_spgemm(low: Lowering, node: Node) -> None:
    places = [flat(low, child) for child in node.inputs]
    targets = [low.new_slot(spec.shape, spec.dtype) for spec in node.outputs]
    starts, left, indptr, right = places[:4]
    counts = node.op.name == "spgemm_count"
    rows, columns, count = indptr.shape[0] - 1, node["columns"], left.shape[0]
    pieces, piece = merge_pieces(rows, count)
    kernel = SpgemmKernel(None if counts else places[4].dtype, (left.dtype, right.dtype),
                          (indptr.dtype, starts.dtype, indptr.dtype if counts else places[6].dtype))
    values = kernel.record.values(rows=rows, inner=starts.shape[0] - 1, columns=columns, left_count=count,
                                  right_count=right.shape[0], count=0 if counts else targets[0].shape[0],
                                  piece=piece)
    words = upper(columns) // 64 + 2
    stamps = upper(columns) * (1 if counts else 2)  # of eight bytes at most, as are those of the list
    scratch = 8 * (stamps + words + words // 64 + 4 + RANKS + upper(columns) + SPARE)
    views = (*places, *targets)
    low.add(Step(kernel, views, tuple(range(len(places), len(views))), values, pieces, 8 * piece, node.op.name,
                 node.origin, scratch=scratch))
    low.views[node.serial] = targets


# -- triangles -----------------------------------------------------------------------------------------------------
def lower_sptrsv(low: Lowering, node: Node) -> None:
    b = low.view(node.inputs[0])
    indices, indptr, data = (flat(low, child) for child in node.inputs[1:])
    target = low.new_slot(node.shape, node.dtype)
    low.copy(b, target, node)
    kernel = TriangularKernel(node.dtype, indices.dtype, indptr.dtype, node["upper"], node["unit"],
                              node["transposed"])
    columns, count = node.shape[1], data.shape[0]
    values = kernel.record.values(rows=node.shape[0], count=count, columns=columns)
    low.add(Step(kernel, (indices, indptr, data, target), (3,), values, _parts(columns), count * WIDTH,
                 node.op.name, node.origin, operations=2 * count * columns))
    low.views[node.serial] = [target]


def lower_incomplete(low: Lowering, node: Node) -> None:
    source, indices, indptr = (flat(low, child) for child in node.inputs)
    target = low.new_slot(node.shape, node.dtype)
    low.copy(source, target, node)
    kernel = IncompleteKernel(node["how"], node.dtype, indices.dtype, indptr.dtype)
    rows = indptr.shape[0] - 1
    values = kernel.record.values(rows=rows, count=node.shape[0])
    low.add(Step(kernel, (indices, indptr, target), (2,), values, 1, 8 * node.shape[0], node.op.name, node.origin,
                 scratch=16 * (upper(rows) + 1)))
    low.views[node.serial] = [target]


def _reads_plainly(group: Node, number: int) -> bool:
    """Whether the body reads this input element by element."""
    return not any(child.op.name == "parameter" and child["index"] == number and (is_view(part)
                   or part.op.kind == "index") for part in group["body"].graph.nodes for child in part.inputs)


def _followed(step: Step, after: LoopCall, by_rows: bool, label: str) -> Step:
    """The step of a product with the loop that follows on every piece."""
    kernel = step.kernel
    assert isinstance(kernel, SpmmKernel)
    stores = [i for i, access in enumerate(after.kernel.accesses) if access.kind == "store"]
    values = (*step.values, *[0] * (EPILOGUE - len(SPMM)), 0, int(by_rows), *after.values)
    return replace(step, kernel=replace(kernel, follows=True), views=(*step.views, *after.views),
                   writes=(*step.writes, *(5 + i for i in stores)), values=values, label=f"{step.label}+{label}",
                   in_place=False, epilogue=after.kernel,
                   scratch=loop_scratch(after.kernel, max(upper(after.columns), 1)))
