"""Which generator writes a loop kernel, by how its lanes and rows run."""

from __future__ import annotations

from morpho.backends.kernels.loops.columnwise.columnwise import ColumnwiseCode
from morpho.backends.kernels.loops.columnwise.unrolled_window import UnrolledWindowCode
from morpho.backends.kernels.loops.loop_code import LoopCode
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.backends.kernels.loops.split_rows import BlocksCode, JoinCode
from morpho.base.machine import Isa


def generate(kernel: LoopKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a loop kernel."""
    return _generator(kernel)(kernel, isa).module(name)


def _generator(kernel: LoopKernel) -> type[LoopCode]:
    if kernel.part:
        return BlocksCode if kernel.part == "blocks" else JoinCode
    if kernel.short:
        return UnrolledWindowCode
    return ColumnwiseCode if kernel.transposed else LoopCode
