"""`mo.linalg`: the linear algebra extension of the Array API, and what NumPy and SciPy have beyond it.

Real matrices of at most 32 rows and columns are factorised natively, larger and complex ones by LAPACK, on the host;
`algorithm="native"` factorises large ones in blocks on Morpho's own products.
"""

from morpho.linalg.functions import expm, logm, sqrtm
from morpho.linalg.general import EigResult, LDLResult, SchurResult, eig, eigvals, ldl, schur
from morpho.linalg.refined import Refined, solve_refined
from morpho.linalg.solving import cholesky, lu, qr, solve, solve_triangular, svd_lowrank
from morpho.linalg.structured import (
    block_diag,
    circulant,
    cond,
    kron,
    multi_dot,
    norm,
    solve_circulant,
    solve_toeplitz,
    toeplitz,
)
from morpho.tensor.functions.linalg import (
    EighResult,
    LstsqResult,
    LUResult,
    QRResult,
    SlogdetResult,
    SVDResult,
    cross,
    det,
    diagonal,
    eigh,
    eigvalsh,
    inv,
    lstsq,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_rank,
    matrix_transpose,
    outer,
    pinv,
    slogdet,
    svd,
    svdvals,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls
from morpho.tensor.tools.foreign_names import module_attribute as _module_attribute

__all__ = ["block_diag", "cholesky", "circulant", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
           "eigvalsh", "expm", "inv", "kron", "ldl", "logm", "lstsq", "lu", "matmul", "matrix_norm", "matrix_power",
           "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "schur", "slogdet", "solve",
           "solve_circulant", "solve_refined", "solve_toeplitz", "solve_triangular", "sqrtm", "svd", "svd_lowrank",
           "svdvals", "tensordot", "toeplitz", "trace", "vecdot", "vector_norm"]


def __dir__() -> list[str]:
    return __all__


_hint_calls(globals(), __all__)  # calls with other libraries' keywords
__getattr__ = _module_attribute("linalg", __name__)  # a hint for names of other libraries
