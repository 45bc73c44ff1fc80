"""Random graphs: hundreds through the passes and the reference, some through LLVM, checked value by value; four times
as many with `--exhaustive`, and as many as there is time for by `python -m benchmarks.fuzz`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from checks import PASSES_OFF, check_dynamic, check_passes, check_values, guarded
from programs import random_program

from morpho.ir.node import toposort
from morpho.ir.op import REGISTRY

GRAPHS, COMPILED = 1000, 200  # of which a quarter by default


@pytest.fixture(autouse=True)
def _numpy_is_quiet() -> None:
    warnings.simplefilter("error", RuntimeWarning)


def test_the_generator_draws_every_op() -> None:
    programs = (random_program(seed, rowwise=seed % 3 == 0) for seed in range(1500))
    drawn = {node.op.name for program in programs for node in toposort(program.outputs)}
    without = {"group", "gemm", "matmul_blas", "data", "pick", "part", "fft", "dft", "cholesky", "det", "slogdet",
               "inv", "pinv", "qr", "svd", "svdvals", "eigh", "eigvalsh", "solve", "eig", "eigvals", "ldl",
               "matrix_function", "schur",  # of passes, leaves, LAPACK and BLAS
               "detach", "mark", "custom",  # of gradients: they reach no pass
               "matmul_int8", "matmul_quantised", "dequantise", "matmul_rounded",
               "quantise_rows",  # a rule's, and of weights in blocks
               "checkpoint",  # taken out before any pass
               "scan", "while_loop", "switch",  # programs in themselves: tests/tensor/test_control.py
               "paged_attention", "write_pages",  # of four axes, as these two
               "attention", "attention_backward"}  # of four axes, not one: tests/backends/cpu/test_attention.py
    without |= {"bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "betainc", "digamma", "erfcx", "erfinv", "gammainc",
                "gammaincc", "i0", "i0e", "i1", "i1e", "lgamma", "log_ndtr", "ndtr", "ndtri", "zeta",
                "cbrt", "erfcinv", "logit", "trigamma",  # long bodies
                "cumulative_logsumexp", "cumulative_max", "cumulative_min",  # tests/ops has them all
                "as_complex", "as_real", "lu", "solve_triangular", "solve_refined"}
    without |= {"all_gather", "all_reduce", "all_reduce_memory", "all_reduce_start", "all_reduce_wait", "all_to_all",
                "broadcast_from", "reduce_scatter",  # of several ranks: tests/cluster
                "tile_kernel",  # a program in itself: tests/kernel
                "counted",  # of compiled functions alone: tests/compile/test_data_sizes.py
                *(name for name, op in REGISTRY.items() if "ops.sparse" in op.infer.__module__)}  # tests/sparse
    assert set(REGISTRY) - drawn <= without, set(REGISTRY) - drawn - without


def test_passes_keep_every_bit(session_seed: int, sample: Callable[..., Any]) -> None:
    """Optimised at each level and with passes switched off: legal, and the same bits by the reference."""
    for number in sample(range(GRAPHS)):
        seed = session_seed + number
        program = random_program(seed, rowwise=seed % 3 == 0)
        level = (3, 2, 1)[number % 3]
        check_passes(program, 1 + seed % 8, level, PASSES_OFF[number % len(PASSES_OFF)] if number % 2 else "")


@pytest.mark.parametrize("part", range(4))
def test_native_values(part: int, session_seed: int, sample: Callable[..., Any]) -> None:
    """Each value of a compiled program against its op applied to the compiled values of its inputs."""
    for number in sample(range(COMPILED // 4)):
        seed = session_seed + 100_003 * part + number
        program = random_program(seed, rowwise=seed % 3 == 0)
        n = 1 + seed % 8
        guarded(program, program.static(n), program.inputs(n), check_values)
        if number % 4 == 0:
            check_dynamic(program, n)
