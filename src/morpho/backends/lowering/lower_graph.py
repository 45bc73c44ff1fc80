"""The table of rows by which nodes become steps on a CPU, and what all devices share of it.

A row names an op, what its steps are, and the function that writes them; rows of one op are tried in order. A GPU's
rows stand in front of these (`cuda/lowering.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from morpho.backends.lowering.control.lower_control import (
    lower_register_loop,
    lower_scan_loop,
    lower_switch,
    lower_while,
)
from morpho.backends.lowering.control.lower_lanes import lower_lane_loop
from morpho.backends.lowering.destinations import lower_concatenate, lower_update
from morpho.backends.lowering.groups.lower_scatter import has_pairs_in_order, lower_cluster, lower_scatter
from morpho.backends.lowering.loops import (
    SCANS,
    lower_complex,
    lower_copy_op,
    lower_counted,
    lower_group,
    lower_pad,
    lower_scan,
    only_left,
    only_windows,
    result_place,
)
from morpho.backends.lowering.lower_attention import lower_attention, lower_gradient
from morpho.backends.lowering.lower_buckets import lower_start, lower_wait, prepare_buckets
from morpho.backends.lowering.lower_dft import lower_dft
from morpho.backends.lowering.lower_linalg import is_lapack, is_small, lower_lapack, lower_matrix
from morpho.backends.lowering.lower_pages import lower_page_write, lower_paged
from morpho.backends.lowering.lower_rounded import lower_rounded
from morpho.backends.lowering.lower_sort import lower_search, lower_sort
from morpho.backends.lowering.lower_sparse import (
    FOLLOWED,
    lower_incomplete,
    lower_row_reduce,
    lower_sddmm,
    lower_spgemm,
    lower_spmm,
    lower_spmm_transposed,
    lower_sptrsv,
    waits_for_group,
)
from morpho.backends.lowering.lower_tiles import lower_tiles
from morpho.backends.lowering.lowering import Device, Lowering, Way, by_op
from morpho.backends.lowering.matmul.lower_matmul import lower_conv, lower_gemm, lower_matmul
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import DEFAULT, DispatchThresholds
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.ops.collective import START, WAIT
from morpho.program.kernel import Kernel
from morpho.program.program import Program

WAITS = {"pad": only_windows, FOLLOWED: waits_for_group}


def waits(low: Lowering, node: Node) -> bool:
    """Whether a node needs no steps of its own, as far as is known yet."""
    return WAITS.get(node.op.name, only_left)(low, node)


def marked(mark: str) -> Callable[[Node], bool]:
    """Whether a pass has marked a loop so."""
    return lambda node: bool(node.attributes.get(mark))


def on_host(low: Lowering, node: Node) -> None:
    """NumPy, counted as a fallback where native code was to be expected."""
    native = not any(spec.dtype.is_complex for spec in (*node.outputs, *(child.spec for child in node.inputs)))
    low.lower_host(node, fallback=node.op.kind not in ("host", "collective") and native)


LOOPS = ("scan", "while_loop", "switch")
ROWS = (
    *(Way(op, "one kernel, its values in registers", lower_register_loop, marked("registers"), pairs=True)
      for op in LOOPS),
    *(Way(op, "one kernel, an element a lane", lower_lane_loop, marked("lanes"), pairs=True) for op in LOOPS),
    Way("scan", "steps of a turn between marks", lower_scan_loop, pairs=True),
    Way("while_loop", "steps of a turn between marks", lower_while, pairs=True),
    Way("switch", "steps of every branch between marks", lower_switch, pairs=True),
    Way(START.name, "parts in the memory they travel from", lower_start, pairs=True),
    Way(WAIT.name, "averages read where they lie", lower_wait, pairs=True),
    Way("group", "one loop", lower_group),
    Way("copy", "copy", lower_copy_op, pairs=True),
    Way("pad", "fill and copy", lower_pad),
    Way("concatenate", "parts in place", lower_concatenate, pairs=True),
    Way("update", "a region in place", lower_update, pairs=True),
    Way("complex", "parts in place", lower_complex, pairs=True),
    Way("counted", "a size known from here on", lower_counted),
    Way("scatter", "one loop with what it scatters", lower_cluster, pairs=True),
    Way("scatter", "in order of positions", lower_scatter, has_pairs_in_order, pairs=True),
    *(Way(op, "a chain for each line", lower_scan) for op in SCANS),
    Way("sort", "merges in registers, or radix", lower_sort),
    Way("argsort", "radix", lower_sort),
    Way("searchsorted", "binary search", lower_search),
    Way("matmul", "by the table of products", lower_matmul),
    Way("matmul_int8", "by the table of products", lower_matmul),
    Way("matmul_quantised", "by the table of products", lower_matmul),
    Way("gemm", "by the table of products, with what follows", lower_gemm),
    Way("conv", "by the table of convolutions", lower_conv),
    Way("quantise_rows", "rows in 8 bits", lower_rounded),
    Way("matmul_rounded", "panels of weights", lower_rounded),
    Way("attention", "blockwise", lower_attention),
    Way("attention_backward", "blockwise", lower_gradient),
    Way("paged_attention", "blockwise, over pages", lower_paged),
    Way("write_pages", "lines in place", lower_page_write),
    Way("spmm", "pieces of the merge path", lower_spmm),
    Way("spmm_transposed", "columns apart", lower_spmm_transposed),
    Way("sddmm", "pieces of the merge path", lower_sddmm),
    Way("row_reduce", "pieces of the merge path", lower_row_reduce),
    Way("spgemm_count", "a row at a time", lower_spgemm),
    Way("spgemm", "a row at a time", lower_spgemm),
    Way("sptrsv", "columns apart", lower_sptrsv),
    Way("incomplete_factors", "a row at a time", lower_incomplete),
    Way("dft", "passes over rows or columns", lower_dft, pairs=True),
    Way("tile_kernel", "programs of a grid as rows", lower_tiles),
    Way("*", "a kernel for small matrices", lower_matrix, is_small, pairs=True),
    Way("*", "LAPACK by its address", lower_lapack, is_lapack, pairs=True),
    Way("*", "NumPy on the host", on_host, pairs=True),
)
CPU = Device(by_op(*ROWS), result_place, waits, prepare_buckets)


def build_program(graph: Graph, own_outputs: bool, inputs: int, target: Target, constants: Collection[int] = (),
                  thresholds: DispatchThresholds = DEFAULT,
                  announce: Callable[[Kernel], None] | None = None) -> Program:
    """Lower a fused graph for a target; it is called with `inputs` arguments, read or not. `own_outputs`: every output
    gets memory of its own, none is a view of an input. `constants` are inputs that seldom change. `thresholds` choose
    among kernels of the same bits. `announce` is told every kernel as soon as it is known."""
    return Lowering(graph, own_outputs, inputs, target, constants, thresholds, CPU).build(announce)
