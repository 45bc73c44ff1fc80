"""Stencils: loops over the interior."""

from __future__ import annotations

import numpy as np
from numba import prange


def jacobi_1d(a, b, steps):
    a, b = a.copy(), b.copy()
    n = len(a)
    for _ in range(steps):
        for i in prange(1, n - 1):
            b[i] = (a[i - 1] + a[i] + a[i + 1]) / 3
        for i in prange(1, n - 1):
            a[i] = (b[i - 1] + b[i] + b[i + 1]) / 3
    return a, b


def jacobi_2d(a, b, steps):
    a, b = a.copy(), b.copy()
    n, m = a.shape
    for _ in range(steps):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                a[i, j] = 0.2 * (b[i, j] + b[i, j - 1] + b[i, j + 1] + b[i + 1, j] + b[i - 1, j])
    return a, b


def heat_3d(a, b, steps):
    a, b = a.copy(), b.copy()
    n, m, l = a.shape  # noqa: E741
    for t in range(2 * steps):
        x, y = (a, b) if t % 2 == 0 else (b, a)
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                for k in range(1, l - 1):
                    c = x[i, j, k]
                    y[i, j, k] = (0.125 * (x[i + 1, j, k] - 2 * c + x[i - 1, j, k])
                                  + 0.125 * (x[i, j + 1, k] - 2 * c + x[i, j - 1, k])
                                  + 0.125 * (x[i, j, k + 1] - 2 * c + x[i, j, k - 1]) + c)
    return a, b


def fdtd_2d(ex, ey, hz, source):
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    n, m = ex.shape
    for t in range(len(source)):
        for j in range(m):
            ey[0, j] = source[t]
        for i in prange(1, n):
            for j in range(m):
                ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in prange(n):
            for j in range(1, m):
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in prange(n - 1):
            for j in range(m - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return ex, ey, hz


def hdiff(field, coefficient):
    n, m, levels = coefficient.shape
    out = np.empty_like(coefficient)
    laplacian = np.empty((n + 2, m + 2, levels))
    down = np.empty((n + 1, m, levels))
    for i in prange(n + 2):
        for j in range(m + 2):
            for k in range(levels):
                laplacian[i, j, k] = 4 * field[i + 1, j + 1, k] - (
                    field[i + 2, j + 1, k] + field[i, j + 1, k] + field[i + 1, j + 2, k] + field[i + 1, j, k])
    for i in prange(n + 1):
        for j in range(m):
            for k in range(levels):
                flow = laplacian[i + 1, j + 1, k] - laplacian[i, j + 1, k]
                uphill = flow * (field[i + 2, j + 2, k] - field[i + 1, j + 2, k]) > 0
                down[i, j, k] = 0.0 if uphill else flow
    for i in prange(n):
        last = np.zeros(levels)
        for j in range(m + 1):
            for k in range(levels):
                flow = laplacian[i + 1, j + 1, k] - laplacian[i + 1, j, k]
                if flow * (field[i + 2, j + 2, k] - field[i + 2, j + 1, k]) > 0:
                    flow = 0.0
                if j > 0:
                    out[i, j - 1, k] = field[i + 2, j + 1, k] - coefficient[i, j - 1, k] * (
                        down[i + 1, j - 1, k] - down[i, j - 1, k] + flow - last[k])
                last[k] = flow
    return out


def cavity_flow(u, v, p, steps, inner, dx, dt):
    u, v, p = u.copy(), v.copy(), p.copy()
    n, m = u.shape
    nu = 0.1
    b, un, vn, pn = np.zeros((n, m)), u.copy(), v.copy(), p.copy()
    for _ in range(steps):
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                du = (u[i, j + 1] - u[i, j - 1]) / (2 * dx)
                dv = (v[i + 1, j] - v[i - 1, j]) / (2 * dx)
                cross = (u[i + 1, j] - u[i - 1, j]) * (v[i, j + 1] - v[i, j - 1]) / (2 * dx * dx)
                b[i, j] = dx * dx / 4 * ((du + dv) / dt - du * du - cross - dv * dv)
        for _ in range(inner):
            pn, p = p, pn
            for i in prange(1, n - 1):
                for j in range(1, m - 1):
                    p[i, j] = (pn[i, j + 1] + pn[i, j - 1] + pn[i + 1, j] + pn[i - 1, j]) / 4 - b[i, j]
            for i in range(1, n - 1):
                p[i, m - 1], p[i, 0] = p[i, m - 2], p[i, 1]
            for j in range(m):
                p[0, j], p[n - 1, j] = p[1, j], 0.0
        for i in prange(1, n - 1):
            for j in range(1, m - 1):
                un[i, j] = (u[i, j] - dt / dx * (u[i, j] * (u[i, j] - u[i, j - 1]) + v[i, j] * (u[i, j] - u[i - 1, j]))
                            - dt / (2 * dx) * (p[i, j + 1] - p[i, j - 1]) + nu * dt / dx**2 * (
                                u[i, j + 1] + u[i, j - 1] + u[i + 1, j] + u[i - 1, j] - 4 * u[i, j]))
                vn[i, j] = (v[i, j] - dt / dx * (u[i, j] * (v[i, j] - v[i, j - 1]) + v[i, j] * (v[i, j] - v[i - 1, j]))
                            - dt / (2 * dx) * (p[i + 1, j] - p[i - 1, j]) + nu * dt / dx**2 * (
                                v[i, j + 1] + v[i, j - 1] + v[i + 1, j] + v[i - 1, j] - 4 * v[i, j]))
        un[0], un[:, 0], un[:, m - 1], un[n - 1] = 0.0, 0.0, 0.0, 1.0
        vn[0], vn[n - 1], vn[:, 0], vn[:, m - 1] = 0.0, 0.0, 0.0, 0.0
        u, un, v, vn = un, u, vn, v
    return u, v, p


FUNCTIONS = (jacobi_1d, jacobi_2d, heat_3d, fdtd_2d, hdiff, cavity_flow)
