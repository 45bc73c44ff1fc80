"""`mo.sparse`: sparse matrices and what is computed with them.

Formats are named tuples of tensors, so they are trees: lazy, fused, compiled and differentiated like all others.
"""

from morpho.sparse import operators as _operators
from morpho.sparse.arrays import BSR, COO, CSC, CSR, is_sparse
from morpho.sparse.combine import add, divide, multiply, subtract
from morpho.sparse.convert import coo, csc, csr, diags, eye, from_dense, from_scipy, random, sum_duplicates, to_scipy
from morpho.sparse.eigen import lanczos, lobpcg
from morpho.sparse.einsum import einsum
from morpho.sparse.krylov import LeastSquares, Solved, bicgstab, cg, gmres, lsqr
from morpho.sparse.market import read_mm, write_mm
from morpho.sparse.products import matmul, sddmm
from morpho.sparse.reduce import diagonal, max, mean, min, norm, softmax, sum
from morpho.sparse.triangular import ic0, ilu0, jacobi, solve_triangular, triangle
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls
from morpho.tensor.tools.foreign_names import module_attribute as _module_attribute

__all__ = [
    # formats
    "BSR", "COO", "CSC", "CSR", "is_sparse",
    # making them
    "coo", "csc", "csr", "diags", "eye", "from_dense", "from_scipy", "random", "read_mm", "sum_duplicates", "to_scipy",
    "write_mm",
    # elements, products, sums
    "add", "diagonal", "divide", "einsum", "matmul", "max", "mean", "min", "multiply", "norm", "sddmm", "softmax",
    "subtract", "sum", "triangle",
    # solvers and preconditioners
    "LeastSquares", "Solved", "bicgstab", "cg", "gmres", "ic0", "ilu0", "jacobi", "lanczos", "lobpcg", "lsqr",
    "solve_triangular",
]

_hint_calls(globals(), [name for name in __all__
                        if name not in ("BSR", "COO", "CSC", "CSR", "LeastSquares", "Solved")])
__getattr__ = _module_attribute("sparse", __name__)  # a hint for names of other libraries
