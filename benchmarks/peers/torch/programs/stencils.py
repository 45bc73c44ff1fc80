"""Stencils: slices written in place."""

from __future__ import annotations

import torch


def jacobi_1d(a, b, steps):
    a, b = a.clone(), b.clone()
    for _ in range(steps):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3
    return a, b


def jacobi_2d(a, b, steps):
    a, b = a.clone(), b.clone()
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
    return a, b


def heat_3d(a, b, steps):
    a, b = a.clone(), b.clone()
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            c = x[1:-1, 1:-1, 1:-1]
            y[1:-1, 1:-1, 1:-1] = (0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1])
                                   + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                                   + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2]) + c)
    return a, b


def fdtd_2d(ex, ey, hz, source):
    ex, ey, hz = ex.clone(), ey.clone(), hz.clone()
    for value in source:
        ey[0] = value
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def hdiff(field, coefficient):
    laplacian = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    down = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    down = torch.where(down * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0.0, down)
    across = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    across = torch.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0.0, across)
    return field[2:-2, 2:-2] - coefficient * (down[1:] - down[:-1] + across[:, 1:] - across[:, :-1])


FUNCTIONS = (jacobi_1d, jacobi_2d, heat_3d, fdtd_2d, hdiff)
