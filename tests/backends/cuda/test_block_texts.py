"""LLVM takes the kernels that blocks of threads run for an NVIDIA GPU, with their arrays in registers."""

from __future__ import annotations

import pytest

from morpho.backends.cuda.assembly.ptx import assembly
from morpho.backends.cuda.blocks.fft import Butterflies, Chirp, FillRoots, Halves
from morpho.backends.cuda.blocks.matrices import BlockMatrix
from morpho.backends.cuda.blocks.radix import CountDigits, SortPass, SortTiles
from morpho.backends.cuda.blocks.scan import ScanLines
from morpho.backends.cuda.blocks.segments import CombineSegments
from morpho.backends.cuda.codegen.kernels import OwnKernel
from morpho.backends.kernels.fft.fft_plan import passes
from morpho.base.dtypes import bfloat16, float32, float64, int32, int64

KERNELS: list[OwnKernel] = [
    ScanLines("sum", float32, 1), ScanLines("prod", float64, 0), ScanLines("max", bfloat16, 1),
    SortTiles(float32, False, None, 1, 16), SortTiles(int64, True, int64, 0, 2), CountDigits(float32, False, 4, 1),
    SortPass(float32, False, True, False, None, 4, 1), SortPass(float64, False, False, True, int64, 8, 0),
    CombineSegments("add", bfloat16, float32, int64, 1, 1), CombineSegments("set", int32, int32, int32, 0, 1),
    FillRoots(float32, 240, 480, 0), Butterflies(float32, passes(240, float32)[0], 3, False, True, True),
    BlockMatrix("solve", float32, 20, 1, ()), BlockMatrix("slogdet", float64, 32, 1, ()),
    Halves(float64, 120, True, 7, False), Chirp(float32, "in", 101, 240, 5, True, False)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_llvm_writes_ptx(kernel: OwnKernel) -> None:
    text = assembly(kernel.text())
    assert ".visible .entry kernel_main" in text and ".local" not in text
