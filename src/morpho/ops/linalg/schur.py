"""The complex Schur form in NumPy, and functions of triangular matrices by it: roots and logarithms.

Householder's reduction to Hessenberg form, then QR steps with Wilkinson's shift; a function of the triangle follows
the recurrences of Bjorck and Hammarling (root), and of inverse scaling and squaring (logarithm).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.errors import ValueFault, fail

NEGATIVE = "the matrix has an eigenvalue on the negative real axis, and its principal value is complex"
TO_COMPLEX = "convert it to a complex dtype"
MOST_STEPS = 40  # QR steps for one eigenvalue, before an exceptional shift every tenth


def hessenberg(a: Any) -> tuple[Any, Any]:
    """H with zeros below the first subdiagonal, and a unitary Q: a = Q H Q^H."""
    h, q = np.array(a), np.eye(len(a), dtype=a.dtype)
    for k in range(len(a) - 2):
        x = h[k + 1:, k].copy()
        size = np.linalg.norm(x)
        if size == 0:
            continue
        phase = x[0] / abs(x[0]) if x[0] != 0 else 1.0
        x[0] += phase * size
        x /= np.linalg.norm(x)
        h[k + 1:] -= 2 * np.outer(x, x.conj() @ h[k + 1:])
        h[:, k + 1:] -= 2 * np.outer(h[:, k + 1:] @ x, x.conj())
        q[:, k + 1:] -= 2 * np.outer(q[:, k + 1:] @ x, x.conj())
        h[k + 2:, k] = 0
    return h, q


def schur(a: Any) -> tuple[Any, Any]:
    """T upper triangular and Z unitary with a = Z T Z^H, for a complex matrix."""
    if not np.all(np.isfinite(a)):
        raise fail(ValueFault, "schur", "array must not contain infs or nans")
    t, z = hessenberg(a)
    eps = np.finfo(t.dtype).eps
    end, steps = len(t) - 1, 0
    while end > 0:
        size = np.abs(np.diagonal(t))
        below = np.abs(np.diagonal(t, -1))[:end]
        neighbours = size[:end] + size[1:end + 1]
        small = below <= eps * np.where(neighbours == 0, np.abs(t).max(initial=0), neighbours)
        start = int(np.flatnonzero(small)[-1]) + 1 if small.any() else 0
        if start == end:
            t[end, end - 1] = 0
            end, steps = end - 1, 0
            continue
        if start:
            t[start, start - 1] = 0
        steps += 1
        if steps > MOST_STEPS * 10:
            raise fail(ValueFault, "schur", "the QR steps did not converge")
        _step(t, z, start, end, _shift(t, end, steps))
    return np.triu(t), z


def _shift(t: Any, end: int, steps: int) -> Any:
    """The eigenvalue of the last block that lies nearer its corner."""
    if steps % 10 == 0:
        return t[end, end] + abs(t[end, end - 1])
    a, b, c, d = t[end - 1, end - 1], t[end - 1, end], t[end, end - 1], t[end, end]
    half, root = (a + d) / 2, np.sqrt(((a - d) / 2) ** 2 + b * c + 0j)
    one, other = half + root, half - root
    return one if abs(one - d) < abs(other - d) else other


def _step(t: Any, z: Any, start: int, end: int, shift: Any) -> None:
    """One QR step on rows start..end, by Givens rotations that chase the bulge."""
    x, y = t[start, start] - shift, t[start + 1, start]
    for k in range(start, end):
        size = np.hypot(abs(x), abs(y))
        if size != 0:
            c, s = x / size, y / size
            turn = np.array([[np.conj(c), np.conj(s)], [-s, c]])
            first = max(k - 1, start)
            t[k:k + 2, first:] = turn @ t[k:k + 2, first:]
            last = min(k + 3, end + 1)
            back = turn.conj().T
            t[:last, k:k + 2] = t[:last, k:k + 2] @ back
            z[:, k:k + 2] = z[:, k:k + 2] @ back
        if k < end - 1:
            x, y = t[k + 1, k], t[k + 2, k]


def triangular_root(t: Any) -> Any:
    """The principal square root of an upper triangular matrix, a diagonal at a time."""
    n = len(t)
    roots = np.zeros_like(t)
    np.fill_diagonal(roots, np.sqrt(np.diagonal(t)))
    for distance in range(1, n):
        for i in range(n - distance):
            j = i + distance
            left = t[i, j] - roots[i, i + 1:j] @ roots[i + 1:j, j]
            below = roots[i, i] + roots[j, j]
            if below == 0:
                if abs(left) > 0:
                    raise fail(ValueFault, "sqrtm", "a singular matrix that has no square root")
                continue
            roots[i, j] = left / below
    return roots


def triangular_log(t: Any) -> Any:
    """The principal logarithm: roots until near the identity, a Pade approximant in partial fractions, and doubling."""
    n, count = len(t), 0
    if np.any(np.diagonal(t) == 0):
        raise fail(ValueFault, "logm", "a singular matrix has no logarithm")
    one, root = np.eye(n), t
    while np.linalg.norm(root - one, 1) > 0.25 and count < 100:
        root, count = triangular_root(root), count + 1
    nodes, weights = np.polynomial.legendre.leggauss(16)
    rest = root - one
    found = np.zeros_like(t)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        found = found + weight * np.linalg.solve(one + node * rest, rest)
    return found * 2.0**count


def of_matrix(name: str, a: Any) -> Any:
    """A function of one square matrix; of a real one the result is real, or an error."""
    real = a.dtype.kind != "c"
    t, z = schur(a.astype(np.complex128))
    values = np.diagonal(t)
    size = np.abs(values).max(initial=0)
    if real and np.any((values.real < 0) & (np.abs(values.imag) <= 1e-14 * size)):
        raise fail(ValueFault, name, NEGATIVE, TO_COMPLEX)
    found = z @ (triangular_root(t) if name == "sqrtm" else triangular_log(t)) @ z.conj().T
    return (found.real if real else found).astype(a.dtype)
