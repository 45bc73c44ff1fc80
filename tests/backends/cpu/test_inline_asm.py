"""Instructions in a written order (AArch64): they are taken where they fit, and do what LLVM's would."""

from dataclasses import replace

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.gemm.gemm import GemmKernel
from morpho.backends.kernels.generators import generate
from morpho.base.dtypes import bfloat16, float16, float32, float64
from morpho.base.machine import ISAS, choose_isa, foreign_machine, machine


def count_written(kernel: GemmKernel, isa: str = "neon", inline_asm: bool = True) -> int:
    return generate(kernel, replace(ISAS[isa], inline_asm=inline_asm), "kernel").count("asm sideeffect")


def test_which_register_tiles_have_a_written_order() -> None:
    assert count_written(GemmKernel(float32, "rows", heights=(8,))) == 1
    assert count_written(GemmKernel(float32, "columns")) == 1  # of heights 8, 4, 2 and 1
    assert count_written(GemmKernel(float32, "rows", heights=(4,))) == 0
    assert count_written(GemmKernel(bfloat16, "rows", heights=(1,))) == 1
    for dtype in (float16, float64, bfloat16):
        assert count_written(GemmKernel(dtype, "rows", heights=(8,))) == 0
    assert count_written(GemmKernel(float32, "rows"), "scalar") == 0


def test_what_cannot_be_assembled_here_is_left_to_llvm() -> None:
    """LLVM reads the assembly of its host only: code for AArch64 that is made elsewhere has none."""
    for dtype in (float32, bfloat16):
        assert count_written(GemmKernel(dtype, "rows"), inline_asm=False) == 0
    assert not choose_isa("avx2", foreign_machine("x86_64")).inline_asm
    assert choose_isa("neon", foreign_machine("aarch64")).inline_asm == (machine().architecture == "aarch64")


@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 8, 31, 100, 831, 1000, 1667])
def test_a_row_has_the_same_bits_alone_and_in_a_tile(rng: np.random.Generator, k: int) -> None:
    """Rows alone take tiles of one row, whose order is LLVM's; with 64 kB of first-level cache there are
    several blocks of k beyond 832 values."""
    a, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((43, k), (k, 41)))
    product = mo.compile(lambda a, w: a @ w)
    whole = product(mo.asarray(a), mo.asarray(w)).numpy()
    for row in (0, 7, 8, 39, 42):
        assert (product(mo.asarray(a[row:row + 1]), mo.asarray(w)).numpy() == whole[row]).all(), row
    # Each of k additions rounds once.
    bound = 2.0**-24 * (np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64))) * (k + 1)
    assert (np.abs(whole - a.astype(np.float64) @ w.astype(np.float64)) <= bound).all()


def test_what_is_not_finite_stays_in_its_row_and_column(rng: np.random.Generator) -> None:
    a, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 96), (96, 36)))
    a[9, 5], w[7, 13] = np.inf, np.nan
    found = mo.compile(lambda a, w: a @ w)(mo.asarray(a), mo.asarray(w)).numpy()
    assert np.isnan(found[:, 13]).all() and np.isfinite(np.delete(np.delete(found, 9, 0), 13, 1)).all()
    assert not np.isfinite(found[9]).any()
