"""Loops that carry state."""

from __future__ import annotations

import math

import numpy as np
from numba import prange


def seidel_2d(a, steps):
    a = a.copy()
    n, m = a.shape
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = (a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j] + a[i, j + 1]
                           + a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]) / 9
    return a


def adi(u, steps):
    u = u.copy()
    n = len(u)
    a = b = -0.5
    p, q, new = np.zeros((n, n)), np.ones((n, n)), np.ones((n, n))
    for t in range(2 * steps):
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                if t % 2 == 0:
                    right = -b * u[j, i - 1] + (1 + 2 * b) * u[j, i] - b * u[j, i + 1]
                else:
                    right = -b * u[i - 1, j] + (1 + 2 * b) * u[i, j] - b * u[i + 1, j]
                bottom = a * p[i, j - 1] + 1 - 2 * a
                p[i, j] = -a / bottom
                q[i, j] = (right - a * q[i, j - 1]) / bottom
            for j in range(n - 2, 0, -1):
                new[i, j] = p[i, j] * new[i, j + 1] + q[i, j]
        u, new = new, u
        if t == 0:
            new[0], new[n - 1], new[:, 0], new[:, n - 1] = 1.0, 1.0, 1.0, 1.0
    return u


def lu(a):
    a = a.copy()
    n = len(a)
    for k in range(n):
        for i in prange(k + 1, n):
            a[i, k] /= a[k, k]
            for j in range(k + 1, n):
                a[i, j] -= a[i, k] * a[k, j]
    return a


def cholesky(a):
    n = len(a)
    lower = np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = math.sqrt(total) if i == j else total / lower[j, j]
    return lower


def trisolv(lower, b):
    x = np.zeros_like(b)
    for i in range(len(b)):
        total = b[i]
        for j in range(i):
            total -= lower[i, j] * x[j]
        x[i] = total / lower[i, i]
    return x


def durbin(r):
    n = len(r)
    y, z = np.zeros_like(r), np.zeros_like(r)
    alpha = -r[0]
    y[0] = alpha
    beta = 1.0
    for k in range(1, n):
        beta *= 1 - alpha * alpha
        total = r[k]
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -total / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


def gramschmidt(a):
    a = a.copy()
    n, m = a.shape
    q, r = np.zeros_like(a), np.zeros((m, m))
    for k in range(m):
        total = 0.0
        for i in range(n):
            total += a[i, k] * a[i, k]
        r[k, k] = math.sqrt(total)
        for i in range(n):
            q[i, k] = a[i, k] / r[k, k]
        for i in range(n):
            for j in range(k + 1, m):
                r[k, j] += q[i, k] * a[i, j]
        for i in prange(n):
            for j in range(k + 1, m):
                a[i, j] -= q[i, k] * r[k, j]
    return q, r


def deriche(image, alpha):
    e = math.exp(-alpha)
    gain = (1 - e) ** 2 / (1 + 2 * alpha * e - e * e)
    a1, a2, a3, a4 = gain, gain * e * (alpha - 1), gain * e * (alpha + 1), -gain * e * e
    b1, b2 = 2 * e, -e * e
    n, m = image.shape
    middle, out, kept = np.empty((n, m)), np.empty((n, m)), np.empty((n, m))
    for i in prange(n):
        x1 = y1 = y2 = 0.0
        for j in range(m):
            y = a1 * image[i, j] + a2 * x1 + b1 * y1 + b2 * y2
            x1, y2, y1 = image[i, j], y1, y
            middle[i, j] = y
        x1 = x2 = y1 = y2 = 0.0
        for j in range(m - 1, -1, -1):
            y = a3 * x1 + a4 * x2 + b1 * y1 + b2 * y2
            x2, x1, y2, y1 = x1, image[i, j], y1, y
            middle[i, j] += y
    for i in range(n):
        for j in range(m):
            kept[i, j] = a1 * middle[i, j] + (a2 * middle[i - 1, j] + b1 * kept[i - 1, j] if i > 0 else 0.0) + (
                b2 * kept[i - 2, j] if i > 1 else 0.0)
    for i in range(n - 1, -1, -1):
        for j in range(m):
            out[i, j] = (a3 * middle[i + 1, j] + b1 * out[i + 1, j] if i < n - 1 else 0.0) + (
                a4 * middle[i + 2, j] + b2 * out[i + 2, j] if i < n - 2 else 0.0)
    return kept + out


def floyd_warshall(path):
    path = path.copy()
    n = len(path)
    for k in range(n):
        for i in prange(n):
            for j in range(n):
                path[i, j] = min(path[i, j], path[i, k] + path[k, j])
    return path


def kalman(seen):
    motion = np.eye(4)
    motion[0, 2] = motion[1, 3] = 0.1
    sight = np.zeros((2, 4))
    sight[0, 0] = sight[1, 1] = 1.0
    drift, noise, eye = 0.01 * np.eye(4), 0.5 * np.eye(2), np.eye(4)
    x, p = np.zeros(4), np.eye(4)
    found = np.empty((len(seen), 4))
    for t in range(len(seen)):
        x, p = motion @ x, motion @ p @ motion.T + drift
        gain = p @ sight.T @ np.linalg.inv(sight @ p @ sight.T + noise)
        x, p = x + gain @ (seen[t] - sight @ x), (eye - gain @ sight) @ p
        found[t] = x
    return found, p


def rk4(y, steps, h):
    y = y.copy()
    k, at, total = np.empty(3), np.empty(3), np.empty(3)
    for _ in range(steps):
        at[:] = y
        total[:] = 0.0
        for stage in range(4):
            k[0] = 10 * (at[1] - at[0])
            k[1] = at[0] * (28 - at[2]) - at[1]
            k[2] = at[0] * at[1] - 8 / 3 * at[2]
            for i in range(3):
                total[i] += (2.0 if 0 < stage < 3 else 1.0) * k[i]
                at[i] = y[i] + (h if stage == 2 else h / 2) * k[i]
        for i in range(3):
            y[i] += h / 6 * total[i]
    return y


FUNCTIONS = (seidel_2d, adi, lu, cholesky, trisolv, durbin, gramschmidt, deriche, floyd_warshall, kalman, rk4)
