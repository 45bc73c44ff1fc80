"""Matrices that need not be symmetric: eigenvalues, the Schur form; L D L^H of those that are."""

from __future__ import annotations

from typing import Any, NamedTuple

import morpho as mo
from morpho.ops.linalg.triangular import permutation
from morpho.tensor.functions.linalg import _lapack

Tensor = mo.Tensor


class EigResult(NamedTuple):
    """Eigenvalues in LAPACK's order, and eigenvectors as columns of length one.

    >>> mo.linalg.eig(mo.asarray([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.shape
    (2,)
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class SchurResult(NamedTuple):
    """An upper triangular T and a unitary Z.

    >>> mo.linalg.schur(mo.ones((2, 2))).T.dtype
    complex64
    """

    T: Tensor
    Z: Tensor


class LDLResult(NamedTuple):
    """A permutation P, a lower triangular L with ones on its diagonal, and D with blocks of one or two rows.

    >>> [part.shape for part in mo.linalg.ldl(mo.ones((2, 2)))]
    [(2, 2), (2, 2), (2, 2)]
    """

    P: Tensor
    L: Tensor
    D: Tensor


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of square matrices, always complex.

    Vectors have length one and any phase, so a gradient through them is that of a function that does not depend on the
    phase; where eigenvalues are equal, terms between their vectors are left out. Defective matrices have no gradient.

    >>> values, vectors = mo.linalg.eig(mo.asarray([[2.0, 1.0], [0.0, 3.0]]))
    >>> values.tolist()
    [(2+0j), (3+0j)]
    """
    return EigResult(*_lapack("eig", x))


def eigvals(x: Any, /) -> Tensor:
    """Eigenvalues of square matrices, always complex, in LAPACK's order.

    >>> mo.linalg.eigvals(mo.asarray([[0.0, 1.0], [-1.0, 0.0]])).numpy().imag.round(3).tolist()
    [1.0, -1.0]
    """
    return _lapack("eigvals", x)[0]


def schur(x: Any, /) -> SchurResult:
    """x = Z T Z^H with T upper triangular, complex also for real matrices: the eigenvalues are on its diagonal.

    >>> t, z = mo.linalg.schur(mo.asarray([[0.0, 1.0], [-1.0, 0.0]]))
    >>> bool(mo.max(mo.abs(z @ t @ mo.conj(z).T - mo.asarray([[0, 1], [-1, 0]]))) < 1e-6)
    True
    """
    return SchurResult(*_lapack("schur", x))


def ldl(x: Any, /) -> LDLResult:
    """x = P L D L^H P^T of Hermitian matrices that need not be positive definite, by Bunch and Kaufman's pivots. The
    lower triangle is read.

    >>> p, l, d = mo.linalg.ldl(mo.asarray([[0.0, 2.0], [2.0, 0.0]]))
    >>> (p @ l @ d @ l.T @ p.T).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    order, lower, blocks = _lapack("ldl", x)
    return LDLResult(Tensor.of_node(permutation(order.node, lower.node)), lower, blocks)
