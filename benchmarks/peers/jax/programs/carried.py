"""Loops that carry state: scans over rows or elements."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from benchmarks.programs.carried import DRIFT, MOTION, NOISE, SEEN, deriche_coefficients


def seidel_2d(a, steps):
    def row(up, rows):
        here, down = rows
        known = up[:-2] + up[1:-1] + up[2:] + here[1:-1] + here[2:] + down[:-2] + down[1:-1] + down[2:]

        def element(left, value):
            new = (left + value) / 9
            return new, new

        inner = lax.scan(element, here[0], known)[1]
        new = jnp.concatenate([here[:1], inner, here[-1:]])
        return new, new

    def sweep(i, a):
        return a.at[1:-1].set(lax.scan(row, a[0], (a[1:-1], a[2:]))[1])

    return lax.fori_loop(0, steps, sweep, a)


def adi(u, steps):
    a = b = -0.5
    n = u.shape[0]

    def half(w):
        def forth(carry, line):
            p, q = carry
            bottom = a * p + 1 - 2 * a
            right = -b * jnp.roll(line, 1) + (1 + 2 * b) * line - b * jnp.roll(line, -1)
            p, q = -a / bottom, (right - a * q) / bottom
            return (p, q), (p, q)

        def back(new, line):
            new = line[0] * new + line[1]
            return new, new

        made = lax.scan(forth, (jnp.zeros(n), jnp.ones(n)), w.T[1:-1])[1]
        found = lax.scan(back, jnp.ones(n), made, reverse=True)[1]
        return jnp.ones((n, n)).at[1:-1, 1:-1].set(found[:, 1:-1].T)

    return lax.fori_loop(0, steps, lambda i, u: half(half(u.T)), u)


def lu(a):
    index = jnp.arange(len(a))

    def step(k, a):
        column = jnp.where(index > k, a[:, k] / a[k, k], 0)
        row = jnp.where(index > k, a[k], 0)
        return (a - column[:, None] * row).at[:, k].set(jnp.where(index > k, column, a[:, k]))

    return lax.fori_loop(0, len(a), step, a)


def cholesky(a):
    index = jnp.arange(len(a))

    def step(j, lower):
        column = a[:, j] - lower @ lower[j]
        return lower.at[:, j].set(jnp.where(index >= j, column / jnp.sqrt(column[j]), 0))

    return lax.fori_loop(0, len(a), step, jnp.zeros_like(a))


def trisolv(lower, b):
    def step(i, x):
        return x.at[i].set((b[i] - lower[i] @ x) / lower[i, i])

    return lax.fori_loop(0, len(b), step, jnp.zeros_like(b))


def durbin(r):
    n = len(r)
    index = jnp.arange(n)

    def step(k, carry):
        y, alpha, beta = carry
        beta = beta * (1 - alpha * alpha)
        turned = jnp.where(index < k, jnp.roll(y[::-1], k - n), 0)
        alpha = -(r[k] + r @ turned) / beta
        return (y + alpha * turned).at[k].set(alpha), alpha, beta

    return lax.fori_loop(1, n, step, (jnp.zeros_like(r).at[0].set(-r[0]), -r[0], 1.0))[0]


def gramschmidt(a):
    n, m = a.shape
    index = jnp.arange(m)

    def step(k, carry):
        a, q, r = carry
        column = a[:, k]
        norm = jnp.sqrt(column @ column)
        unit = column / norm
        row = jnp.where(index > k, unit @ a, 0)
        return a - unit[:, None] * row, q.at[:, k].set(unit), r.at[k].set(jnp.where(index == k, norm, row))

    return lax.fori_loop(0, m, step, (a, jnp.zeros_like(a), jnp.zeros((m, m))))[1:]


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
        zero = jnp.zeros_like(lines[0])
        image = lax.scan(forth, (zero,) * 3, lines)[1] + lax.scan(back, (zero,) * 4, lines, reverse=True)[1]
    return image


def floyd_warshall(path):
    return lax.fori_loop(0, len(path), lambda k, path: jnp.minimum(path, path[:, k, None] + path[k]), path)


def kalman(seen):
    def step(carry, z):
        x, p = carry
        x, p = MOTION @ x, MOTION @ p @ MOTION.T + DRIFT
        gain = p @ SEEN.T @ jnp.linalg.inv(SEEN @ p @ SEEN.T + NOISE)
        x, p = x + gain @ (z - SEEN @ x), (jnp.eye(4) - gain @ SEEN) @ p
        return (x, p), x

    (_, p), found = lax.scan(step, (jnp.zeros(4), jnp.eye(4)), seen)
    return found, p


def lorenz(y):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def rk4(y, steps, h):
    def step(i, y):
        k1 = lorenz(y)
        k2 = lorenz(y + h / 2 * k1)
        k3 = lorenz(y + h / 2 * k2)
        k4 = lorenz(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return lax.fori_loop(0, steps, step, y)


FUNCTIONS = (seidel_2d, adi, lu, cholesky, trisolv, durbin, gramschmidt, deriche, floyd_warshall, kalman, rk4)
