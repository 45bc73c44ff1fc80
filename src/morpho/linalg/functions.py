"""Functions of matrices: exponential, logarithm, square root.

The exponential is native: Pade approximants of order 13, scaling and squaring. The others go through LAPACK's Schur
form, in one kernel. Gradients come from the same function of a block matrix, also for repeated and defective
eigenvalues.
"""

from __future__ import annotations

import math
from typing import Any

import morpho as mo
from morpho.base.errors import DTypeError, ShapeError, fail
from morpho.tensor.autodiff.custom import with_derivative
from morpho.tensor.functions import linalg as plain
from morpho.tensor.functions.linalg import _lapack

Tensor = mo.Tensor
# Coefficients of the [13/13] approximant, and the norm up to which it is exact to rounding in float64 (Higham, 2005).
PADE = tuple(float(math.factorial(26 - k) * math.factorial(13) // (math.factorial(13 - k) * math.factorial(k)
                                                                   * math.factorial(13))) for k in range(14))
LARGEST_NORM = 5.371920351148152


def _square(name: str, x: Any) -> Tensor:
    found: Tensor = x if isinstance(x, Tensor) else mo.asarray(x)
    if found.dtype.kind not in "fc":
        raise fail(DTypeError, name, f"dtype {found.dtype} is not taken", "convert to a floating dtype with astype")
    if found.ndim < 2 or found.shape[-1] != found.shape[-2]:
        raise fail(ShapeError, name, f"shape {tuple(found.shape)} is not that of square matrices")
    return found


def expm(x: Any, /) -> Tensor:
    """The exponential of square matrices.

    >>> mo.linalg.expm(mo.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    a = _square("expm", x)
    if any(isinstance(size, int) and size == 0 for size in a.shape):
        return a
    if a.dtype.itemsize == 2:
        return mo.astype(_expm(mo.astype(a, mo.float32)), a.dtype)
    return _expm(a)


def _expm(a: Tensor) -> Tensor:
    """With both directions of its derivative: neither is a program that could be transposed for the other."""
    return with_derivative("expm", _scaled(a), a, lambda a, ct: _expm_slope(_adjoint(a), ct), _expm_slope)


def _adjoint(a: Tensor) -> Tensor:
    return mo.conj(mo.matrix_transpose(a)) if a.dtype.kind == "c" else mo.matrix_transpose(a)


def _expm_slope(a: Tensor, change: Tensor) -> Tensor:
    """How the exponential changes along a matrix: a corner of that of blocks (Van Loan, 1978)."""
    n = a.shape[-1]
    block = mo.concat([mo.concat([a, change], axis=-1), mo.concat([mo.zeros_like(change), a], axis=-1)], axis=-2)
    found: Tensor = _expm(block)[..., :n, n:]
    return found


def _scaled(a: Tensor) -> Tensor:
    """r(a / 2^s)^(2^s), s for each matrix of a stack."""
    norm = mo.max(mo.sum(mo.abs(a), axis=-2), axis=-1)
    ratio = norm / LARGEST_NORM
    above = mo.where(ratio > 1, ratio, mo.ones_like(ratio))  # not of NaN, whose result is NaN in any case
    steps = mo.minimum(mo.ceil(mo.log2(above)), mo.full((), 1100.0, dtype=norm.dtype))
    small = a * mo.astype(mo.exp2(-steps), a.dtype)[..., None, None]
    found = _pade(small)
    most = mo.max(steps)

    def turn(state: Any) -> Any:
        k, y = state
        more = (mo.zeros((), dtype=steps.dtype) + k < steps)[..., None, None]
        return k + 1, mo.where(more, y @ y, y)

    last: Any = mo.while_loop(lambda s: s[0] < most, turn, (mo.zeros((), dtype=steps.dtype), found))
    return last[1]  # type: ignore[no-any-return]


def _pade(a: Tensor) -> Tensor:
    one = mo.eye(int(a.shape[-1]), dtype=a.dtype)
    two = a @ a
    four = two @ two
    six = four @ two
    b = [coefficient / PADE[0] for coefficient in PADE]  # near one: float32 does not hold them as they are
    odd = six @ (b[13] * six + b[11] * four + b[9] * two) + b[7] * six + b[5] * four + b[3] * two + b[1] * one
    even = six @ (b[12] * six + b[10] * four + b[8] * two) + b[6] * six + b[4] * four + b[2] * two + b[0] * one
    u = a @ odd
    return plain.solve(even - u, even + u)


def logm(x: Any, /) -> Tensor:
    """The principal logarithm of square matrices. Of a real matrix it is real; eigenvalues on the negative real axis
    are an error that says to convert it to a complex dtype.

    >>> mo.linalg.logm(mo.asarray([[1.0, 2.0], [0.0, 1.0]])).tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    return _lapack("matrix_function", _square("logm", x), function="logm")[0]


def sqrtm(x: Any, /) -> Tensor:
    """The principal square root of square matrices, with the rule of `logm` for real ones.

    >>> mo.linalg.sqrtm(mo.asarray([[4.0, 0.0], [0.0, 9.0]])).tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return _lapack("matrix_function", _square("sqrtm", x), function="sqrtm")[0]
