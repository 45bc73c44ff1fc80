"""Stencils: interiors set functionally, inside loops of the graph."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def jacobi_1d(a, b, steps):
    def sweep(i, arrays):
        a, b = arrays
        b = b.at[1:-1].set((a[:-2] + a[1:-1] + a[2:]) / 3)
        a = a.at[1:-1].set((b[:-2] + b[1:-1] + b[2:]) / 3)
        return a, b

    return lax.fori_loop(0, steps, sweep, (a, b))


def jacobi_2d(a, b, steps):
    def one(x, y):
        new = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
        return y.at[1:-1, 1:-1].set(new)

    def sweep(i, arrays):
        b = one(*arrays)
        return one(b, arrays[0]), b

    return lax.fori_loop(0, steps, sweep, (a, b))


def heat_3d(a, b, steps):
    def one(x, y):
        c = x[1:-1, 1:-1, 1:-1]
        return y.at[1:-1, 1:-1, 1:-1].set(0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1])
                                          + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                                          + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2]) + c)

    def sweep(i, arrays):
        b = one(*arrays)
        return one(b, arrays[0]), b

    return lax.fori_loop(0, steps, sweep, (a, b))


def fdtd_2d(ex, ey, hz, source):
    def step(fields, value):
        ex, ey, hz = fields
        ey = ey.at[0].set(value)
        ey = ey.at[1:].add(-0.5 * (hz[1:] - hz[:-1]))
        ex = ex.at[:, 1:].add(-0.5 * (hz[:, 1:] - hz[:, :-1]))
        hz = hz.at[:-1, :-1].add(-0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1]))
        return (ex, ey, hz), None

    return lax.scan(step, (ex, ey, hz), source)[0]


def hdiff(field, coefficient):
    laplacian = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    down = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    down = jnp.where(down * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0, down)
    across = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    across = jnp.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0, across)
    return field[2:-2, 2:-2] - coefficient * (down[1:] - down[:-1] + across[:, 1:] - across[:, :-1])


def cavity_flow(u, v, p, steps, inner, dx, dt):
    nu = 0.1

    def pressure(b):
        def sweep(i, p):
            p = p.at[1:-1, 1:-1].set((p[1:-1, 2:] + p[1:-1, :-2] + p[2:, 1:-1] + p[:-2, 1:-1]) / 4 - b)
            p = p.at[:, -1].set(p[:, -2])
            p = p.at[0].set(p[1])
            p = p.at[:, 0].set(p[:, 1])
            return p.at[-1].set(0)

        return sweep

    def advance(w, u, v, slope, lid):
        uc, vc, wc = u[1:-1, 1:-1], v[1:-1, 1:-1], w[1:-1, 1:-1]
        new = (wc - dt / dx * (uc * (wc - w[1:-1, :-2]) + vc * (wc - w[:-2, 1:-1])) - dt / (2 * dx) * slope
               + nu * dt / dx**2 * (w[1:-1, 2:] + w[1:-1, :-2] + w[2:, 1:-1] + w[:-2, 1:-1] - 4 * wc))
        return jnp.pad(new, 1).at[-1].set(lid)

    def step(i, fields):
        u, v, p = fields
        du = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
        dv = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
        cross = (u[2:, 1:-1] - u[:-2, 1:-1]) * (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx * dx)
        b = dx * dx / 4 * ((du + dv) / dt - du * du - cross - dv * dv)
        p = lax.fori_loop(0, inner, pressure(b), p)
        return (advance(u, u, v, p[1:-1, 2:] - p[1:-1, :-2], 1.0), advance(v, u, v, p[2:, 1:-1] - p[:-2, 1:-1], 0.0),
                p)

    return lax.fori_loop(0, steps, step, (u, v, p))


FUNCTIONS = (jacobi_1d, jacobi_2d, heat_3d, fdtd_2d, hdiff, cavity_flow)
