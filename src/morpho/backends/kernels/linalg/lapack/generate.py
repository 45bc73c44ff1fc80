"""The function of a `LapackKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code.emit import Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.linalg.lapack import dense_code, function_code, general_code, refined_code
from morpho.backends.kernels.linalg.lapack.frame import Code
from morpho.backends.kernels.linalg.lapack.kernel import LapackKernel
from morpho.base.machine import Isa

OPERATIONS: dict[str, Callable[[Code, list[Value]], None]] = {
    "solve": dense_code.solve, "inv": dense_code.solve, "cholesky": dense_code.cholesky, "qr": dense_code.qr,
    "svd": dense_code.svd, "svdvals": dense_code.svd, "eigh": dense_code.eigh, "eigvalsh": dense_code.eigh,
    "det": dense_code.determinant, "slogdet": dense_code.determinant, "solve_triangular": dense_code.solve_triangular,
    "lu": general_code.lu, "eig": general_code.eig, "eigvals": general_code.eig, "schur": general_code.schur,
    "ldl": general_code.ldl, "matrix_function": function_code.matrix_function,
    "solve_refined": refined_code.solve_refined}


def generate(kernel: LapackKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a kernel."""
    code = Code(kernel, isa)
    e = code.e
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
        OPERATIONS[kernel.name](code, code.starts(loop.index))
    code.leave(0)
    return (defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n")
