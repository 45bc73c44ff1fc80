"""Which kernel runs a step on a grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from morpho.backends.cuda.codegen.generic import GenericKernel
from morpho.backends.cuda.codegen.kernels import DeviceKernel
from morpho.backends.cuda.codegen.long_rows import long_rows
from morpho.backends.cuda.codegen.loop_grid import lanes_of, side_by_side
from morpho.backends.cuda.codegen.maps import MapKernel, turns_of
from morpho.backends.cuda.codegen.rows import KEPT_BYTES, MOST_JOINED, RowsKernel
from morpho.backends.cuda.gradients.columns import columns_kernel, without_keeping
from morpho.backends.cuda.gradients.scatter import ScatterRows, on_grid
from morpho.backends.cuda.gradients.scatter_lines import ScatterLines
from morpho.backends.cuda.sparse.products import spmm_teams
from morpho.backends.cuda.sparse.reductions import reduce_teams, sddmm_teams
from morpho.backends.cuda.tiles.kernel import TileGrid
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.backends.kernels.loops.sequential.scatter import ScatterKernel
from morpho.backends.kernels.sparse.kernels import RowReduceKernel, SddmmKernel, SpmmKernel
from morpho.backends.kernels.tiles.spec import TileKernel
from morpho.base.dims import product, upper
from morpho.program.program import Step

MANY_ROWS = 1 << 14  # rows side by side from which on a thread each is enough


FEW_ROWS = 256  # that leave multiprocessors idle: their threads may have more registers


def plain(kernel: LoopKernel) -> LoopKernel:
    """A loop kernel without what is for vectors: lanes along rows, unrolled windows, transposed blocks.

    Windows over borders are only unrolled: these stay as they are.
    """
    if any(access.guards for access in kernel.accesses) or not kernel.transposed:
        return kernel
    accesses = tuple(replace(access, across="") for access in kernel.accesses)
    return replace(kernel, accesses=accesses, transposed=False, short=(), block_transpose=0)


def loop_kernel(step: Step, kernel: LoopKernel) -> DeviceKernel | None:
    """The grid of a loop kernel; None where it has none of its own."""
    if any(access.guards for access in kernel.accesses) or kernel.short:
        return None
    places, numbers = len(step.views), len(step.values)
    if kernel.part:
        return long_kernel(step, kernel, places, numbers)
    if kernel.is_plain:
        return MapKernel(kernel, places, numbers, turns_of(kernel, step.rows, step.columns))
    return rows_kernel(step, kernel, places, numbers)


def long_kernel(step: Step, kernel: LoopKernel, places: int, numbers: int) -> DeviceKernel | None:
    """A step of a reduction over few very long rows."""
    record = kernel.record.by_name(step.values)
    inner = [record[f"inner{axis}"] for axis in range(kernel.inner_rank)]
    columns = product(tuple(inner))
    if not isinstance(columns, int):
        return None
    lanes = lanes_of(kernel)
    rank = kernel.outer_rank + kernel.inner_rank
    while lanes > 1 and not _aligned(step, kernel, lanes, columns, record, rank):
        lanes //= 2
    return long_rows(kernel, lanes, columns, places, numbers)


def rows_kernel(step: Step, kernel: LoopKernel, places: int, numbers: int) -> DeviceKernel | None:
    """Rows along memory are a team's or a block's each; others a thread's."""
    if not isinstance(step.columns, int) or (not isinstance(step.rows, int) and step.kernel is not kernel):
        return None
    if step.kernel is not kernel:  # neighbouring threads read neighbouring rows
        assert isinstance(step.rows, int)
        by_columns = columns_kernel(kernel, step.rows, step.columns, places, numbers)
        if by_columns is not None or step.rows >= MANY_ROWS:
            return by_columns
    few = upper(step.rows) <= FEW_ROWS
    lanes = min(lanes_of(kernel), 2) if few else lanes_of(kernel)  # a row for a whole warp: there is nothing else to do
    record = kernel.record.by_name(step.values)
    rank = kernel.outer_rank + kernel.inner_rank
    while lanes > 1 and not _aligned(step, kernel, lanes, step.columns, record, rank):
        lanes //= 2
    found = RowsKernel(replace(kernel, keeps_loads=True), lanes, step.columns, places, numbers, few)
    if found.shared_bytes > KEPT_BYTES:
        found = replace(found, loop=kernel)
    if found.shared_bytes > KEPT_BYTES:
        found = without_keeping(found)
    if not found.loop.kept and found.lanes < lanes_of(kernel) and not few:
        found = widened(step, found, record, rank)
    if found.blocks > MOST_JOINED or found.shared_bytes > KEPT_BYTES:
        return None
    return found


def widened(step: Step, found: RowsKernel, record: dict[str, Any], rank: int) -> RowsKernel:
    """Rows that begin on whole accesses and do not end on them, by wide accesses, the last of which is cut off."""
    lanes = lanes_of(found.loop)
    return replace(found, lanes=lanes) if _aligned(step, found.loop, lanes, 0, record, rank) else found


def _aligned(step: Step, kernel: LoopKernel, lanes: int, columns: int, record: dict[str, Any], rank: int) -> bool:
    """Whether every row of every operand begins where a wide access may."""
    if columns % lanes != 0:
        return False
    for number, access in enumerate(kernel.accesses):
        view = step.views[number]
        if side_by_side(access) and view is not None:
            steps = [record[f"strides{number * rank + axis}"] for axis in range(kernel.outer_rank)]
            if not all(isinstance(n, int) and n % lanes == 0 for n in (*steps, view.offset)):
                return False
    return True


def sparse_kernel(step: Step) -> DeviceKernel | None:
    """The grid of a step over compressed sparse rows; None where it has none of its own."""
    if isinstance(step.kernel, SpmmKernel):
        return spmm_teams(step)
    if isinstance(step.kernel, RowReduceKernel):
        return reduce_teams(step)
    return sddmm_teams(step) if isinstance(step.kernel, SddmmKernel) else None


def device_kernel(step: Step) -> DeviceKernel:
    made = getattr(step.kernel, "device_kernel", None)
    if made is not None:  # of this backend's own lowering
        found: DeviceKernel = made(step)
        return found
    if isinstance(step.kernel, TileKernel):
        return TileGrid(step.kernel)
    body = plain(step.kernel) if isinstance(step.kernel, LoopKernel) else step.kernel
    if isinstance(body, LoopKernel):
        found_loop = loop_kernel(step, body)
        if found_loop is not None:
            return found_loop
    if isinstance(body, ScatterKernel) and on_grid(body, body.record.by_name(step.values)["count"]):
        return ScatterRows(body, len(step.views), len(step.values))
    if isinstance(body, ScatterKernel) and not body.divides:
        return ScatterLines(body, len(step.views), len(step.values))
    sparse = sparse_kernel(step)
    if sparse is not None:
        return sparse
    by_columns = isinstance(body, LoopKernel) and body.is_plain and step.splits_columns
    return GenericKernel(body, step.epilogue, step.prologue, len(step.views), len(step.values), by_columns)
