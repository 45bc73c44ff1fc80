"""From a graph to steps for a GPU: the CPU's lowering, whose loop kernels say what is computed and not how."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from morpho.backends.cuda.attention.decode.lower import is_decode, lower_decode, waits_as_line
from morpho.backends.cuda.attention.lower import lower_attention, lower_gradient, over_pages
from morpho.backends.cuda.attention.simt.lower import simt_forward, simt_gradient, simt_over_pages
from morpho.backends.cuda.blocks.fft import has_known_sizes, lower_fft
from morpho.backends.cuda.blocks.matrices import NAMES, is_block_matrix, lower_block_matrix
from morpho.backends.cuda.blocks.segments import has_many_indices, sorted_scatter
from morpho.backends.cuda.casts import moved_casts
from morpho.backends.cuda.gemm.conv_lower import is_product, lower_conv, lower_followed_conv
from morpho.backends.cuda.gemm.lower import follows, lower_followed, lower_gemm, lower_matmul, lower_product
from morpho.backends.cuda.gemm.quantised.lower import are_chunks, lower_rounded, multiply_bytes, multiply_quantised
from morpho.backends.cuda.grouped.schedule import grouped
from morpho.backends.cuda.layout import interchanged, result_place
from morpho.backends.cuda.sorting.lower import has_blocks, lower_sort
from morpho.backends.cuda.sparse.transposed import lower_spmm_transposed, with_team
from morpho.backends.cuda.tiles.scans import is_long_line, lower_scan
from morpho.backends.cuda.tiles.scatters import counts, lower_scatter
from morpho.backends.lowering import lower_graph
from morpho.backends.lowering.groups.lower_scatter import has_pairs_in_order
from morpho.backends.lowering.groups.lower_scatter import lower_scatter as lower_in_order
from morpho.backends.lowering.loops import SCANS
from morpho.backends.lowering.lower_linalg import is_lapack, is_small
from morpho.backends.lowering.lower_tiles import lower_tiles
from morpho.backends.lowering.lowering import Device, Lowering, Way, by_op
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.cost.tuned_choices import NO_CHOICES, Choices
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.passes.pipeline import Report, optimise
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program


def lapack_on_host(low: Lowering, node: Node) -> None:
    """The routine's address is one of the host."""
    low.lower_host(node, fallback=True)


def is_lapack_alone(node: Node) -> bool:
    return is_lapack(node) and not is_small(node)


def waits(low: Lowering, node: Node) -> bool:
    return waits_as_line(low, node) or lower_graph.waits(low, node)


ROWS = (
    Way("matmul", "tiles of a grid", lower_matmul),
    Way("matmul_quantised", "weights dequantised on the way", partial(lower_product, multiply=multiply_quantised)),
    Way("matmul_int8", "bytes on tensor cores", partial(lower_product, multiply=multiply_bytes), are_chunks),
    Way("conv", "implicit product", lower_conv, is_product),
    Way("gemm", "implicit product, then what follows", lower_followed_conv, is_product),
    Way("gemm", "tiles of a grid, with what follows", lower_gemm, follows("matmul")),
    Way("gemm", "weights dequantised on the way, with what follows",
        partial(lower_followed, multiply=multiply_quantised), follows("matmul_quantised")),
    Way("gemm", "bytes on tensor cores, then what follows", partial(lower_followed, multiply=multiply_bytes),
        are_chunks),
    Way("quantise_rows", "a warp a block", lower_rounded),
    Way("matmul_rounded", "bytes on tensor cores", lower_rounded),
    Way("attention", "one query over a cache", lower_decode, is_decode),
    Way("attention", "tensor cores", lower_attention),
    Way("attention", "arithmetic units", simt_forward),
    Way("attention_backward", "tensor cores", lower_gradient),
    Way("attention_backward", "arithmetic units", simt_gradient),
    Way("paged_attention", "tensor cores", over_pages),
    Way("paged_attention", "arithmetic units", simt_over_pages),
    Way("sort", "radix, a block a line or the whole grid", lower_sort, has_blocks),
    Way("argsort", "radix, a block a line or the whole grid", lower_sort, has_blocks),
    Way("dft", "a launch a pass", lower_fft, has_known_sizes, pairs=True),
    Way("spmm_transposed", "a sort, then chains", lower_spmm_transposed),
    *(Way(op, "blocks of threads", lower_scan, is_long_line) for op in SCANS),
    Way("scatter", "atomics", lower_scatter, counts),
    Way("scatter", "a sort of the indices, then chains", partial(lower_in_order, into=sorted_scatter),
        lambda node: has_many_indices(node) and has_pairs_in_order(node), pairs=True),
    Way("tile_kernel", "programs of a grid", partial(lower_tiles, on_gpu=True)),
    *(Way(op, "a block a matrix", lower_block_matrix, is_block_matrix) for op in sorted(NAMES)),
    Way("*", "LAPACK on the host", lapack_on_host, is_lapack_alone, pairs=True),
)
GPU = Device(by_op(*ROWS, *lower_graph.ROWS), result_place, waits, loop=interchanged, sparse_product=with_team,
             joins_scatters=False)


def lowered(graph: Graph, level: int, target: Target, model: str = "", choices: Choices = NO_CHOICES) -> Program:
    """The program of a graph."""
    return optimised_and_lowered(graph, level, target, model, choices)[0]


def optimised_and_lowered(graph: Graph, level: int, target: Target, model: str = "",
                          choices: Choices = NO_CHOICES) -> tuple[Program, Report]:
    """The program of a graph, and what the passes did."""
    optimised, report = optimise(moved_casts(graph) if level > 0 else graph, level, "")
    return program_of(optimised, level, target, model, choices, _inputs(graph)), report


def _inputs(graph: Graph) -> int:
    return 1 + max((node["index"] for node in graph.parameters), default=-1)


def program_of(optimised: Graph, level: int, target: Target, model: str, choices: Choices,
               inputs: int | None = None) -> Program:
    """The program of a graph that has been through the passes, with the tuner's choices for a model of GPU."""
    taken = _inputs(optimised) if inputs is None else inputs  # passes may drop the last of a graph's parameters
    thresholds = replace(defaults_for(0), choices=choices)
    program = Lowering(optimised, True, taken, target, (), thresholds, replace(GPU, model=model)).build(None)
    if level > 0:
        grouped(program)
    plan_memory(program, reuse=level > 0, apart=False)
    return program
