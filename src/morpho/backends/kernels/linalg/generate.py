"""The function of a `MatrixKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.kernels.linalg import householder_code, jacobi_code, triangular_code, unrolled_code
from morpho.backends.kernels.linalg.frame import Frame
from morpho.backends.kernels.linalg.matrix import MatrixKernel
from morpho.base.machine import Isa

_ONE: dict[str, Callable[[Frame], None]] = {
    "cholesky": triangular_code.cholesky, "det": triangular_code.determinant, "slogdet": triangular_code.determinant,
    "inv": triangular_code.inverse, "solve": triangular_code.solve, "solve_triangular": triangular_code.solve,
    "lu": triangular_code.lu, "qr": householder_code.qr, "svd": jacobi_code.svd, "svdvals": jacobi_code.svd,
    "eigh": jacobi_code.eigh, "eigvalsh": jacobi_code.eigh}


def generate(kernel: MatrixKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `MatrixKernel`."""
    if kernel.unrolled:
        return unrolled_code.generate(kernel, isa, name)
    frame = Frame(kernel)
    e = frame.e
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
        frame.begin(loop.index)
        _ONE[kernel.name](frame)
    return frame.text(name)
