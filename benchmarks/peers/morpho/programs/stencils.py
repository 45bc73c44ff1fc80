"""Stencils: slices assigned in place, inside loops of the graph."""

from __future__ import annotations

import morpho as mo


def jacobi_1d(a, b, steps):
    def sweep(i, arrays):
        a, b = arrays
        b[1:-1] = (1 / 3) * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = (1 / 3) * (b[:-2] + b[1:-1] + b[2:])
        return a, b

    return mo.fori_loop(0, steps, sweep, (a, b))


def jacobi_2d(a, b, steps):
    def sweep(i, arrays):
        a, b = arrays
        for x, y in ((a, b), (b, a)):
            y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
        return a, b

    return mo.fori_loop(0, steps, sweep, (a, b))


def heat_3d(a, b, steps):
    def sweep(i, arrays):
        a, b = arrays
        for x, y in ((a, b), (b, a)):
            c = x[1:-1, 1:-1, 1:-1]
            y[1:-1, 1:-1, 1:-1] = (0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1])
                                   + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                                   + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2]) + c)
        return a, b

    return mo.fori_loop(0, steps, sweep, (a, b))


def fdtd_2d(ex, ey, hz, source):
    def step(fields, value):
        ex, ey, hz = fields
        ey[0] = value
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
        return (ex, ey, hz), None

    return mo.scan(step, (ex, ey, hz), source)[0]


def hdiff(field, coefficient):
    laplacian = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    down = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    down = mo.where(down * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0.0, down)
    across = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    across = mo.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0.0, across)
    return field[2:-2, 2:-2] - coefficient * (down[1:] - down[:-1] + across[:, 1:] - across[:, :-1])


def cavity_flow(u, v, p, steps, inner, dx, dt):
    nu = 0.1

    def pressure(b):
        def sweep(i, p):
            p[1:-1, 1:-1] = (p[1:-1, 2:] + p[1:-1, :-2] + p[2:, 1:-1] + p[:-2, 1:-1]) * 0.25 - b
            right, left, top = p[1:-1, -2], p[1:-1, 1], p[1]
            p[1:-1, -1] = right
            p[1:-1, 0] = left
            p[0, 1:-1] = top[1:-1]
            p[0, 0] = top[1]
            p[0, -1] = top[-2]
            p[-1] = 0.0
            return p

        return sweep

    def advance(w, u, v, slope):
        uc, vc, wc = u[1:-1, 1:-1], v[1:-1, 1:-1], w[1:-1, 1:-1]
        return (wc - dt / dx * (uc * (wc - w[1:-1, :-2]) + vc * (wc - w[:-2, 1:-1])) - dt / (2 * dx) * slope
                + nu * dt / dx**2 * (w[1:-1, 2:] + w[1:-1, :-2] + w[2:, 1:-1] + w[:-2, 1:-1] - 4 * wc))

    def step(i, fields):
        u, v, p = fields
        du = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
        dv = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
        cross = (u[2:, 1:-1] - u[:-2, 1:-1]) * (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx * dx)
        b = dx * dx / 4 * ((du + dv) / dt - du * du - cross - dv * dv)
        p = mo.fori_loop(0, inner, pressure(b), p)
        un = advance(u, u, v, p[1:-1, 2:] - p[1:-1, :-2])
        vn = advance(v, u, v, p[2:, 1:-1] - p[:-2, 1:-1])
        u[1:-1, 1:-1] = un
        v[1:-1, 1:-1] = vn
        for field, lid in ((u, 1.0), (v, 0.0)):
            field[0] = 0.0
            field[:, 0] = 0.0
            field[:, -1] = 0.0
            field[-1] = lid
        return u, v, p

    return mo.fori_loop(0, steps, step, (u, v, p))


FUNCTIONS = (jacobi_1d, jacobi_2d, heat_3d, fdtd_2d, hdiff, cavity_flow)
