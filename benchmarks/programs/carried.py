"""3. Loops that carry state: recurrences, factorisations, filters, shortest paths. Compared with Numba and JAX.

    morpho bench programs --only carried
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table, uniform

Array = np.ndarray
# Constant velocity in the plane: position and velocity, of which the position is seen.
MOTION = np.array([[1.0, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 1, 0], [0, 0, 0, 1]])
SEEN = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0]])
DRIFT, NOISE = 0.01 * np.eye(4), 0.5 * np.eye(2)


def seidel_2d(a: Array, steps: int) -> Array:
    """Means of nine neighbours, written where they are read: each uses those before it in the same sweep."""
    a = a.copy()
    for _ in range(steps):
        for i in range(1, len(a) - 1):
            up, here, down = a[i - 1], a[i], a[i + 1]
            known = (up[:-2] + up[1:-1] + up[2:] + here[1:-1] + here[2:] + down[:-2] + down[1:-1] + down[2:]).tolist()
            left = float(here[0])
            for j, value in enumerate(known, 1):
                left = here[j] = (left + value) / 9
    return a


def adi(u: Array, steps: int) -> Array:
    """Heat in the plane by alternating directions: tridiagonal systems along columns, then along rows."""
    u = u.copy()
    n = len(u)
    a = b = -0.5  # the step in time is the square of that in space
    for _ in range(steps):
        for turn in (True, False):
            w = u.T if turn else u
            p, q = np.zeros((n, n)), np.ones((n, n))
            for j in range(1, n - 1):
                bottom = a * p[:, j - 1] + 1 - 2 * a
                p[:, j] = -a / bottom
                right = -b * np.roll(w[:, j], 1) + (1 + 2 * b) * w[:, j] - b * np.roll(w[:, j], -1)
                q[:, j] = (right - a * q[:, j - 1]) / bottom
            new = np.ones((n, n))
            for j in range(n - 2, 0, -1):
                new[:, j] = p[:, j] * new[:, j + 1] + q[:, j]
            new[0] = new[-1] = 1
            u = new
    return u


def lu(a: Array) -> Array:
    """L and U in one matrix, without pivots."""
    a = a.copy()
    for k in range(len(a)):
        a[k + 1:, k] /= a[k, k]
        a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k, k + 1:])
    return a


def cholesky(a: Array) -> Array:
    """The lower factor, column by column."""
    lower = np.zeros_like(a)
    for j in range(len(a)):
        column = a[j:, j] - lower[j:, :j] @ lower[j, :j]
        lower[j:, j] = column / np.sqrt(column[0])
    return lower


def trisolv(lower: Array, b: Array) -> Array:
    """Forward substitution."""
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - lower[i, :i] @ x[:i]) / lower[i, i]
    return x


def durbin(r: Array) -> Array:
    """The Yule-Walker equations of a Toeplitz matrix, one order after the other (Levinson and Durbin)."""
    y = np.zeros_like(r)
    alpha = y[0] = -r[0]
    beta = 1.0
    for k in range(1, len(r)):
        beta *= 1 - alpha * alpha
        alpha = -(r[k] + r[:k][::-1] @ y[:k]) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


def gramschmidt(a: Array) -> tuple[Array, Array]:
    """Q and R by modified Gram-Schmidt."""
    a, q = a.copy(), np.zeros_like(a)
    r = np.zeros((a.shape[1], a.shape[1]))
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        r[k, k + 1:] = q[:, k] @ a[:, k + 1:]
        a[:, k + 1:] -= np.outer(q[:, k], r[k, k + 1:])
    return q, r


def deriche_coefficients(alpha: float) -> tuple[float, ...]:
    """Of Deriche's smoothing filter: gain of the first pass, of the second, and the recursion's two."""
    e = math.exp(-alpha)
    k = (1 - e) ** 2 / (1 + 2 * alpha * e - e * e)
    return k, k * e * (alpha - 1), k * e * (alpha + 1), -k * e * e, 2 * e, -e * e


def deriche(image: Array, alpha: float) -> Array:
    """Deriche's recursive smoothing: forwards and backwards along rows, then along columns."""
    a1, a2, a3, a4, b1, b2 = deriche_coefficients(alpha)
    for _ in range(2):
        x = np.ascontiguousarray(image.T)
        forth, back = np.zeros_like(x), np.zeros_like(x)
        x1 = y1 = y2 = np.zeros(x.shape[1])
        for j in range(len(x)):
            forth[j] = a1 * x[j] + a2 * x1 + b1 * y1 + b2 * y2
            x1, y1, y2 = x[j], forth[j], y1
        x1 = x2 = y1 = y2 = np.zeros(x.shape[1])
        for j in range(len(x) - 1, -1, -1):
            back[j] = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2
            x1, x2, y1, y2 = x[j], x1, back[j], y1
        image = forth + back
    return image


def floyd_warshall(path: Array) -> Array:
    """Shortest paths between all pairs."""
    path = path.copy()
    for k in range(len(path)):
        np.minimum(path, path[:, k, None] + path[k], out=path)
    return path


def kalman(seen: Array) -> tuple[Array, Array]:
    """A Kalman filter of four states and two measurements; all estimates, and the last covariance."""
    x, p = np.zeros(4), np.eye(4)
    found = np.empty((len(seen), 4))
    for t, z in enumerate(seen):
        x, p = MOTION @ x, MOTION @ p @ MOTION.T + DRIFT
        gain = p @ SEEN.T @ np.linalg.inv(SEEN @ p @ SEEN.T + NOISE)
        x, p = x + gain @ (z - SEEN @ x), (np.eye(4) - gain @ SEEN) @ p
        found[t] = x
    return found, p


def lorenz(y: Array) -> Array:
    """The derivative of Lorenz' system."""
    return np.array([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def rk4(y: Array, steps: int, h: float) -> Array:
    """Lorenz' system by the classical Runge-Kutta method."""
    for _ in range(steps):
        k1 = lorenz(y)
        k2 = lorenz(y + h / 2 * k1)
        k3 = lorenz(y + h / 2 * k2)
        k4 = lorenz(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def definite_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """A matrix that is symmetric and positive definite."""
    a = rng.random((n, n))
    return {"a": a @ a.T / n + np.eye(n)}


def triangular_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """A lower triangle that is far from singular."""
    return {"lower": np.tril(rng.random((n, n)) / n) + 2 * np.eye(n), "b": rng.random(n)}


def durbin_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """Correlations that decay."""
    return {"r": 0.4 ** np.arange(1.0, n + 1) + 0.001 * rng.random(n) / np.arange(1, n + 1) ** 2}


def tall_inputs(rng: np.random.Generator, n: int, m: int) -> Arrays:
    """Columns far from dependent."""
    return {"a": rng.random((n, m)) + 3 * np.eye(n, m)}


def path_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """Lengths of edges, all small integers."""
    return {"path": rng.integers(1, 1000, (n, n), dtype=np.int32)}


def kalman_inputs(rng: np.random.Generator, steps: int) -> Arrays:
    """A noisy walk."""
    return {"seen": np.cumsum(0.1 * rng.standard_normal((steps, 2)), axis=0) + 0.5 * rng.standard_normal((steps, 2))}


PROGRAMS = table(
    Program(seidel_2d, uniform(a="ij"), (9, 11), (120, 120), {"steps": 4}),
    Program(adi, uniform(u="ii"), (9,), (100,), {"steps": 5}),
    Program(lu, definite_inputs, (9,), (200,)),
    Program(cholesky, definite_inputs, (9,), (200,)),
    Program(trisolv, triangular_inputs, (9,), (1000,)),
    Program(durbin, durbin_inputs, (9,), (800,)),
    Program(gramschmidt, tall_inputs, (12, 7), (240, 160)),
    Program(deriche, uniform(image="ij"), (9, 12), (320, 240), {"alpha": 0.25}),
    Program(floyd_warshall, path_inputs, (9,), (160,)),
    Program(kalman, kalman_inputs, (20,), (1000,)),
    Program(rk4, lambda rng: {"y": np.ones(3)}, (), (), {"steps": 1000, "h": 0.005}, relative=1e-6))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("carried", PROGRAMS, session)
