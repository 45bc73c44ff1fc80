"""Iterative solvers as native loops: CG, BiCGStab, GMRES, LSQR.

Each is a `mo.while_loop` (GMRES with an inner `mo.fori_loop`): lazy, usable inside `mo.compile`, no Python between
turns. The operator is a sparse or dense matrix, or a function of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.sparse.arrays import Tensor, is_sparse
from morpho.sparse.checks import common, compressed

Apply = Callable[[Tensor], Tensor]


class Solved(NamedTuple):
    """The solution, the number of turns taken, and |b - a x| / |b| as the method knows it (|b - a x| where b is 0).

    A method that breaks down gives the last x that it had, and a residual above the tolerance.

    >>> mo.sparse.cg(mo.sparse.eye(2), mo.asarray([1.0, 2.0])).iterations.item()
    1
    """

    x: Tensor
    iterations: Tensor
    residual: Tensor


class LeastSquares(NamedTuple):
    """Result of `lsqr`: x, the number of iterations, |b - a x| / |b|, and |a^H r| / (|a| |r|) with r = b - a x.

    The residual is small where the system has a solution; the slope, where x is that of least squares (for `damp` that
    of the system with damp x = 0 below it).

    >>> found = mo.sparse.lsqr(mo.ones((2, 1)), mo.asarray([0.0, 2.0]))
    >>> found.x.tolist(), round(found.residual.item(), 3), found.slope.item() < 1e-6
    ([1.0], 0.707, True)
    """

    x: Tensor
    iterations: Tensor
    residual: Tensor
    slope: Tensor


def operator(name: str, a: Any) -> Apply:
    """A matrix or a function as a function."""
    if callable(a) and not isinstance(a, Tensor):
        return a  # type: ignore[no-any-return]
    if is_sparse(a):
        matrix = compressed(name, a)
        if matrix.shape[0] != matrix.shape[1]:
            raise fail(ShapeError, name, f"shape {matrix.shape} is not that of a square matrix")
        return lambda x: matrix @ x
    dense = mo.asarray(a)
    if dense.ndim != 2 or dense.shape[0] != dense.shape[1]:
        raise fail(ShapeError, name, f"shape {tuple(dense.shape)} is not that of a square matrix")
    return lambda x: dense @ x


def _of_both(a: Any, right: Tensor) -> Tensor:
    """A right side of the dtype that its product with a matrix has."""
    if callable(a) and not isinstance(a, Tensor):
        return right
    dtype = mo.result_type(a.dtype if is_sparse(a) else mo.asarray(a).dtype, right.dtype)
    return mo.astype(right, dtype)


def _begin(name: str, a: Any, b: Any, x0: Any, maxiter: int | None) -> tuple[Apply, Tensor, Tensor, int]:
    right = mo.asarray(b) if not isinstance(b, Tensor) else b
    if right.ndim != 1 or right.dtype.kind not in "fc":
        raise fail(ShapeError if right.ndim != 1 else DTypeError, name,
                   f"the right side is {right.dtype}{tuple(right.shape)}, not a vector of floats",
                   "mo.vmap solves for several right sides")
    right = _of_both(a, right)
    rows = a.shape[0] if is_sparse(a) or isinstance(a, Tensor) else right.shape[0]
    if rows != right.shape[0]:
        raise fail(ShapeError, name, f"a matrix of {rows} rows and a right side of {right.shape[0]}")
    start = mo.zeros_like(right) if x0 is None else common(name, x0, right)[0]
    if maxiter is not None and maxiter < 1:
        raise fail(ArgumentError, name, f"maxiter {maxiter} is less than one")
    return operator(name, a), right, start, maxiter if maxiter is not None else 10 * int(right.shape[0])


def _conj(x: Tensor) -> Tensor:
    return mo.conj(x) if x.dtype.kind == "c" else x


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return mo.sum(_conj(x) * y)


def _size(x: Tensor) -> Tensor:
    square = mo.sum(x * x) if x.dtype.kind != "c" else mo.sum(mo.real(x) ** 2 + mo.imag(x) ** 2)
    return mo.sqrt(square)


def _nonzero(x: Tensor) -> Tensor:
    """x to divide by: 1 for 0."""
    return mo.where(x == 0, mo.ones_like(x), x)


def _goal(b: Tensor, tol: float) -> Tensor:
    return tol * _nonzero(_size(b))


def _ended(b: Tensor, count: Tensor, x: Tensor, size: Tensor) -> Solved:
    return Solved(x, count, size / _nonzero(_size(b)))


def _count() -> Tensor:
    return mo.zeros((), dtype=mo.int64)


def cg(a: Any, b: Any, /, *, x0: Any = None, tol: float = 1e-5, maxiter: int | None = None,
       M: Apply | None = None) -> Solved:
    """Conjugate gradients for a symmetric (Hermitian), positive definite matrix, until |b - a x| <= tol |b|.

    `M` is a preconditioner: a function such as `mo.sparse.jacobi(a)`, `ic0(a)`. A direction p for which p^T a p is
    nothing but rounding, as singular and indefinite matrices have, ends it with the x from before.

    >>> a = mo.sparse.diags([2.0, -1.0, -1.0], [0, 1, -1], shape=(4, 4))
    >>> mo.sparse.cg(a, mo.ones(4)).x.numpy().round(3).tolist()
    [2.0, 3.0, 3.0, 2.0]
    """
    apply, right, start, most = _begin("cg", a, b, x0, maxiter)
    goal, improve = _goal(right, tol), M or (lambda r: r)
    r = right - apply(start)
    z = improve(r)

    nothing = 16 * mo.finfo(right.dtype).eps

    def turn(state: Any) -> Any:
        count, x, r, p, rz, _ = state
        q = apply(p)
        along = _dot(p, q)
        sound = mo.abs(along) > nothing * _size(p) * _size(q)

        def step() -> Any:
            alpha = rz / along
            after = r - alpha * q
            z = improve(after)
            new = _dot(after, z)
            return count + 1, x + alpha * p, after, z + new / _nonzero(rz) * p, new

        return (*mo.cond(sound, step, lambda: (count, x, r, p, rz)), sound)

    count, x, r, _, _, _ = mo.while_loop(lambda s: (s[0] < most) & (_size(s[2]) > goal) & s[5], turn,
                                         (_count(), start, r, z, _dot(r, z), mo.ones((), dtype=mo.bool)))
    return _ended(right, count, x, _size(r))


def bicgstab(a: Any, b: Any, /, *, x0: Any = None, tol: float = 1e-5, maxiter: int | None = None,
             M: Apply | None = None) -> Solved:
    """Stabilised biconjugate gradients for a matrix that need not be symmetric.

    >>> a = mo.sparse.diags([3.0, -1.0, -0.5], [0, 1, -1], shape=(4, 4))
    >>> x = mo.sparse.bicgstab(a, a @ mo.ones(4)).x
    >>> x.numpy().round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    apply, right, start, most = _begin("bicgstab", a, b, x0, maxiter)
    goal, improve = _goal(right, tol), M or (lambda r: r)
    r = right - apply(start)
    shadow = r
    one = mo.ones((), dtype=right.dtype)
    nothing = mo.finfo(right.dtype).eps

    def turn(state: Any) -> Any:
        count, x, r, p, v, rho, alpha, omega, _ = state
        new = _dot(shadow, r)
        beta = new / _nonzero(rho) * (alpha / _nonzero(omega))
        p = r + beta * (p - omega * v)
        ph = improve(p)
        v = apply(ph)
        along = _dot(shadow, v)
        sound = (mo.abs(along) > nothing * _size(shadow) * _size(v)) & (mo.abs(new) > 0)

        def step() -> Any:
            alpha = new / along
            s = r - alpha * v
            sh = improve(s)
            t = apply(sh)
            across = _dot(t, s)
            more = mo.abs(across) > nothing * _size(t) * _size(s)
            omega = mo.where(more, across / _nonzero(_dot(t, t)), mo.zeros_like(across))
            return count + 1, x + alpha * ph + omega * sh, s - omega * t, p, v, new, alpha, omega, more

        return mo.cond(sound, step, lambda: (count, x, r, p, v, rho, alpha, omega, sound))

    zero = mo.zeros_like(right)
    found = mo.while_loop(lambda s: (s[0] < most) & (_size(s[2]) > goal) & s[8], turn,
                          (_count(), start, r, zero, zero, one, one, one, mo.ones((), dtype=mo.bool)))
    return _ended(right, found[0], found[1], _size(found[2]))


def gmres(a: Any, b: Any, /, *, x0: Any = None, tol: float = 1e-5, restart: int = 20, maxiter: int | None = None,
          M: Apply | None = None) -> Solved:
    """GMRES with restarts: the least residual over a Krylov space of `restart` vectors, until it gets no smaller.

    `maxiter` counts restarts. The basis is made orthogonal twice, the small problem solved by Givens rotations.

    >>> a = mo.sparse.diags([3.0, -1.0, -0.5], [0, 1, -1], shape=(4, 4))
    >>> mo.sparse.gmres(a, a @ mo.ones(4)).x.numpy().round(3).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    apply, right, start, _ = _begin("gmres", a, b, x0, maxiter)
    size = min(restart, int(right.shape[0]))
    if restart < 1:
        raise fail(ArgumentError, "gmres", f"restart {restart} is less than one")
    most = maxiter if maxiter is not None else 10 * int(right.shape[0])
    goal, improve = _goal(right, tol), M or (lambda r: r)

    def cycle(state: Any) -> Any:
        count, x, r, _ = state
        found = x + improve(_krylov(lambda v: apply(improve(v)), r, size))
        left = right - apply(found)
        better = _size(left) < _size(r)  # else the next cycle would be this one again
        return count + 1, mo.where(better, found, x), mo.where(better, left, r), better

    first = right - apply(start)
    count, x, r, _ = mo.while_loop(lambda s: (s[0] < most) & (_size(s[2]) > goal) & s[3], cycle,
                                   (_count(), start, first, mo.ones((), dtype=mo.bool)))
    return _ended(right, count, x, _size(r))


def _krylov(apply: Apply, r: Tensor, size: int) -> Tensor:
    """Correction of x from the basis r, A r, A^2 r, ... by Arnoldi, and least squares over it."""
    norm = _size(r)
    n, dtype = r.shape[0], r.dtype
    basis = mo.concat([(r / _nonzero(norm))[None, :], mo.zeros((size, n), dtype=dtype)])
    numbers, nothing = mo.arange(size + 1), 16 * mo.finfo(dtype).eps

    def arnoldi(k: Any, state: Any) -> Any:
        basis, hessenberg = state
        image = apply(mo.take(basis, mo.reshape(k, (1,)), axis=0)[0])
        along = mo.astype(numbers <= k, dtype)
        h = (_conj(basis) @ image) * along
        w = image - h @ basis
        again = (_conj(basis) @ w) * along  # once more, for what rounding left
        w = w - again @ basis
        length = _size(w)
        closed = length <= nothing * _size(image)  # the rest of the basis is 0
        w, length = mo.where(closed, mo.zeros_like(w), w), mo.where(closed, mo.zeros_like(length), length)
        following = mo.astype(numbers == k + 1, dtype)
        basis = basis + following[:, None] * (w / _nonzero(length))[None, :]
        column = h + again + following * length
        hessenberg = hessenberg + column[:, None] * mo.astype(numbers[:size] == k, dtype)[None, :]
        return basis, hessenberg

    basis, hessenberg = mo.fori_loop(0, size, arnoldi, (basis, mo.zeros((size + 1, size), dtype=dtype)))
    found: Tensor = _least_squares(hessenberg, norm, size) @ basis[:size]
    return found


def _least_squares(h: Tensor, norm: Tensor, size: int) -> Tensor:
    """y with the least |norm e1 - h y|, h upper Hessenberg: rotations make it a triangle."""
    numbers = mo.arange(size + 1)
    right = mo.astype(numbers == 0, h.dtype) * norm

    def rotate(k: Any, state: Any) -> Any:
        h, g = state
        pair = mo.stack([k, k + 1])
        two = mo.take(h, pair, axis=0)
        at = mo.take(two, mo.reshape(k, (1,)), axis=1)
        a, b = at[0, 0], at[1, 0]
        length = _size(at[:, 0])
        safe = _nonzero(length)
        c, s = mo.where(length == 0, mo.ones_like(a), a / safe), b / safe
        turn = mo.stack([mo.stack([_conj(c), _conj(s)]), mo.stack([-s, c])])
        mine = mo.take(g, pair)
        rows = mo.astype(numbers[:, None] == pair[None, :], h.dtype)
        h = h + rows @ (turn @ two - two)
        g = g + rows @ (turn @ mine - mine)
        return h, g

    h, g = mo.fori_loop(0, size, rotate, (h, right))
    upper, g = h[:size], g[:size]
    nothing, largest = 16 * mo.finfo(h.dtype).eps, mo.max(mo.abs(upper))  # a pivot of a singular matrix is rounding

    def back(i: Any, y: Tensor) -> Tensor:
        k = size - 1 - i
        row = mo.take(upper, mo.reshape(k, (1,)), axis=0)[0]
        here = mo.astype(numbers[:size] == k, y.dtype)
        pivot = mo.sum(row * here)
        value = (mo.sum(g * here) - mo.sum(row * y)) / _nonzero(pivot)
        return y + here * mo.where(mo.abs(pivot) <= nothing * largest, mo.zeros_like(value), value)

    found: Tensor = mo.fori_loop(0, size, back, mo.zeros(size, dtype=h.dtype))
    return found


def lsqr(a: Any, b: Any, /, *, tol: float = 1e-6, maxiter: int | None = None, damp: float = 0.0
         ) -> LeastSquares:
    """Least squares for any shape of matrix, real or complex (LSQR): min |a x - b|^2 + damp^2 |x|^2.

    It goes on until the slope |a^H r| / (|a| |r|) is at most `tol`, as it is at the least squares solution, or the
    residual |b - a x| / |b| at most `tol` squared; both are returned.

    >>> a = mo.sparse.from_dense(mo.asarray([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]))
    >>> mo.sparse.lsqr(a, mo.asarray([1.0, 3.0, 4.0])).x.numpy().round(3).tolist()
    [1.0, 2.0]
    """
    matrix = compressed("lsqr", a) if is_sparse(a) else mo.asarray(a)
    right = mo.asarray(b)
    if right.ndim != 1 or right.shape[0] != matrix.shape[0]:
        raise fail(ShapeError, "lsqr", f"a matrix of shape {tuple(matrix.shape)} and a right side {tuple(right.shape)}")
    if right.dtype.kind not in "fc":
        raise fail(DTypeError, "lsqr", f"the right side is {right.dtype}, not floats")
    right = _of_both(matrix, right)
    most = maxiter if maxiter is not None else 4 * max(matrix.shape)
    turned = matrix.T

    def adjoint(u: Tensor) -> Tensor:
        return _conj(turned @ _conj(u))

    def unit(v: Tensor) -> tuple[Tensor, Tensor]:
        size = _size(v)
        return v / _nonzero(size), size

    u, beta = unit(right)
    v, alpha = unit(adjoint(u))
    zero = mo.zeros_like(alpha)

    def turn(s: Any) -> Any:
        count, x, w, u, v, alpha, phi, rho, total, _ = s
        u, beta = unit(matrix @ v - alpha * u)
        total = total + alpha * alpha + beta * beta + damp * damp
        v, new = unit(adjoint(u) - beta * v)
        damped = mo.sqrt(rho * rho + damp * damp)
        phi = phi * (rho / _nonzero(damped))
        length = mo.sqrt(damped * damped + beta * beta)
        safe = _nonzero(length)
        c, si = damped / safe, beta / safe
        x = x + (c * phi / safe) * w
        w = v - (si * new / safe) * w
        left = si * phi
        slope = mo.abs(new * c) / mo.sqrt(total)
        return count + 1, x, w, u, v, new, left, -c * new, total, mo.where(left == 0, zero, slope)

    small = tol * beta
    found = mo.while_loop(lambda s: (s[0] < most) & (s[9] > tol) & (mo.abs(s[6]) > small * tol), turn,
                          (_count(), mo.zeros(matrix.shape[1], dtype=right.dtype), v, u, v, alpha, beta, alpha, zero,
                           mo.where(alpha == 0, zero, mo.ones_like(zero))))  # a^H b is 0: x is
    return LeastSquares(found[1], found[0], _size(right - matrix @ found[1]) / _nonzero(beta), found[9])
