"""Loops that carry state: scans over rows or elements."""

from __future__ import annotations

import morpho as mo
from benchmarks.programs.carried import DRIFT, MOTION, NOISE, SEEN, deriche_coefficients


def seidel_2d(a, steps):
    def row(up, rows):
        here, down = rows
        known = up[:-2] + up[1:-1] + up[2:] + here[1:-1] + here[2:] + down[:-2] + down[1:-1] + down[2:]

        def element(left, value):
            new = (left + value) * (1 / 9)
            return new, new

        inner = mo.scan(element, here[0], known)[1]
        new = mo.concat([here[:1], inner, here[-1:]])
        return new, new

    def sweep(i, a):
        rows = mo.scan(row, a[0], (a[1:-1], a[2:]))[1]
        return mo.concat([a[:1], rows, a[-1:]])

    return mo.fori_loop(0, steps, sweep, a)


def adi(u, steps):
    a = b = -0.5
    n = u.shape[0]
    one, nothing = mo.ones(n, dtype=mo.float64), mo.zeros(n, dtype=mo.float64)

    def half(w):
        """One direction: the systems of all rows of w side by side; columns of w are the turns."""
        lines = w.T[1:-1]

        def forth(carry, line):
            p, q = carry
            bottom = a * p + 1 - 2 * a
            right = -b * mo.roll(line, 1) + (1 + 2 * b) * line - b * mo.roll(line, -1)
            p, q = -a / bottom, (right - a * q) / bottom
            return (p, q), (p, q)

        def back(new, line):
            new = line[0] * new + line[1]
            return new, new

        found = mo.scan(back, one, mo.scan(forth, (nothing, one), lines)[1], reverse=True)[1]
        new = mo.ones((n, n), dtype=mo.float64)
        new[1:-1, 1:-1] = found[:, 1:-1].T
        return new

    return mo.fori_loop(0, steps, lambda i, u: half(half(u.T)), u)


def lu(a):
    index = mo.arange(a.shape[0])

    def step(k, a):
        column = mo.where(index > k, a[:, k] / a[k, k], 0.0)
        row = mo.where(index > k, a[k], 0.0)
        a = a - column[:, None] * row
        a[:, k] = mo.where(index > k, column, a[:, k])
        return a

    return mo.fori_loop(0, a.shape[0], step, a)


def cholesky(a):
    """The factor is carried turned: what a turn reads and writes of it are rows."""
    index = mo.arange(a.shape[0])

    def step(j, upper):
        row = a[j] - upper[:, j] @ upper
        upper[j] = mo.where(index >= j, row / mo.sqrt(row[j]), 0.0)
        return upper

    return mo.fori_loop(0, a.shape[0], step, mo.zeros_like(a)).T


def trisolv(lower, b):
    def step(i, x):
        x[i] = (b[i] - mo.sum(lower[i] * x)) / lower[i, i]
        return x

    return mo.fori_loop(0, b.shape[0], step, mo.zeros_like(b))


def durbin(r):
    """The solution so far and its first k values turned round are both carried: neither has to be turned in a step."""
    n = r.shape[0]
    index = mo.arange(n)

    def step(carry, now):
        y, turned, alpha, beta = carry
        beta = beta * (1 - alpha * alpha)
        alpha = -(now[1] + mo.sum(r * turned)) / beta
        new = mo.where(index == now[0], alpha, y + alpha * turned)
        return (new, mo.concat([alpha[None], (turned + alpha * y)[:-1]]), alpha, beta), None

    y = mo.where(index == 0, -r[0], 0.0)
    return mo.scan(step, (y, y, -r[0], mo.asarray(1.0, dtype=mo.float64)), (index[1:], r[1:]))[0][0]


def gramschmidt(a):
    n, m = a.shape
    index = mo.arange(m)

    def step(k, carry):
        a, q, r = carry
        column = a[:, k]
        norm = mo.sqrt(mo.sum(column * column))
        unit = column / norm
        row = mo.where(index > k, unit @ a, 0.0)
        q[:, k] = unit
        r[k] = mo.where(index == k, norm, row)
        return a - unit[:, None] * row, q, r

    return mo.fori_loop(0, m, step, (a, mo.zeros_like(a), mo.zeros((m, m), dtype=a.dtype)))[1:]


def deriche(image, alpha):
    a1, a2, a3, a4, b1, b2 = deriche_coefficients(alpha)

    def forth(carry, x):
        x1, y1, y2 = carry
        y = a1 * x + a2 * x1 + b1 * y1 + b2 * y2
        return (x, y, y1), y

    def back(carry, x):
        x1, x2, y1, y2 = carry
        y = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2
        return (x, x1, y, y1), y

    for _ in range(2):
        lines = image.T
        zero = mo.zeros_like(lines[0])
        image = (mo.scan(forth, (zero,) * 3, lines)[1] + mo.scan(back, (zero,) * 4, lines, reverse=True)[1])
    return image


def floyd_warshall(path):
    return mo.fori_loop(0, path.shape[0], lambda k, path: mo.minimum(path, path[:, k][:, None] + path[k]), path)


def kalman(seen):
    motion, sight, drift, noise, eye = (mo.asarray(m) for m in (MOTION, SEEN, DRIFT, NOISE, DRIFT * 100))

    def step(carry, z):
        x, p = carry
        x, p = motion @ x, motion @ p @ motion.T + drift
        gain = p @ sight.T @ mo.linalg.inv(sight @ p @ sight.T + noise)
        x, p = x + gain @ (z - sight @ x), (eye - gain @ sight) @ p
        return (x, p), x

    (_, p), found = mo.scan(step, (mo.zeros(4, dtype=mo.float64), eye), seen)
    return found, p


def lorenz(y):
    return mo.stack([10.0 * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def rk4(y, steps, h):
    def step(i, y):
        k1 = lorenz(y)
        k2 = lorenz(y + h / 2 * k1)
        k3 = lorenz(y + h / 2 * k2)
        k4 = lorenz(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return mo.fori_loop(0, steps, step, y)


FUNCTIONS = (seidel_2d, adi, lu, cholesky, trisolv, durbin, gramschmidt, deriche, floyd_warshall, kalman, rk4)
