"""2. Stencils: sweeps that read neighbours and write interiors, many times over.

    morpho bench programs --only stencils
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table, uniform

Array = np.ndarray


def jacobi_1d(a: Array, b: Array, steps: int) -> tuple[Array, Array]:
    """Means of three neighbours, from a to b and back."""
    a, b = a.copy(), b.copy()
    for _ in range(steps):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3
    return a, b


def jacobi_2d(a: Array, b: Array, steps: int) -> tuple[Array, Array]:
    """Means of five neighbours in the plane, from a to b and back."""
    a, b = a.copy(), b.copy()
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
    return a, b


def heat_3d(a: Array, b: Array, steps: int) -> tuple[Array, Array]:
    """The heat equation in space: an eighth of each second difference is added."""
    a, b = a.copy(), b.copy()
    for _ in range(steps):
        for x, y in ((a, b), (b, a)):
            c = x[1:-1, 1:-1, 1:-1]
            y[1:-1, 1:-1, 1:-1] = (0.125 * (x[2:, 1:-1, 1:-1] - 2 * c + x[:-2, 1:-1, 1:-1])
                                   + 0.125 * (x[1:-1, 2:, 1:-1] - 2 * c + x[1:-1, :-2, 1:-1])
                                   + 0.125 * (x[1:-1, 1:-1, 2:] - 2 * c + x[1:-1, 1:-1, :-2]) + c)
    return a, b


def fdtd_2d(ex: Array, ey: Array, hz: Array, source: Array) -> tuple[Array, Array, Array]:
    """Maxwell's equations on a staggered grid, a source at the first row: one step for each of its values."""
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for value in source:
        ey[0] = value
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def hdiff(field: Array, coefficient: Array) -> Array:
    """Horizontal diffusion of a weather model: the Laplacian's gradient, limited where it would go uphill."""
    laplacian = 4 * field[1:-1, 1:-1] - (field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2])
    down = laplacian[1:, 1:-1] - laplacian[:-1, 1:-1]
    down = np.where(down * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0, down)
    across = laplacian[1:-1, 1:] - laplacian[1:-1, :-1]
    across = np.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0, across)
    return field[2:-2, 2:-2] - coefficient * (down[1:] - down[:-1] + across[:, 1:] - across[:, :-1])


def cavity_flow(u: Array, v: Array, p: Array, steps: int, inner: int, dx: float, dt: float) -> tuple[Array, ...]:
    """The Navier-Stokes equations in a box whose lid moves: forward steps, pressure by Jacobi sweeps (nu 0.1)."""
    u, v, p = u.copy(), v.copy(), p.copy()
    nu = 0.1
    for _ in range(steps):
        du = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * dx)
        dv = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * dx)
        cross = (u[2:, 1:-1] - u[:-2, 1:-1]) * (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * dx * dx)
        b = dx * dx / 4 * ((du + dv) / dt - du * du - cross - dv * dv)
        for _ in range(inner):
            p[1:-1, 1:-1] = (p[1:-1, 2:] + p[1:-1, :-2] + p[2:, 1:-1] + p[:-2, 1:-1]) / 4 - b
            p[:, -1], p[0], p[:, 0], p[-1] = p[:, -2], p[1], p[:, 1], 0
        uc, vc = u[1:-1, 1:-1].copy(), v[1:-1, 1:-1].copy()
        un = (uc - dt / dx * (uc * (uc - u[1:-1, :-2]) + vc * (uc - u[:-2, 1:-1]))
              - dt / (2 * dx) * (p[1:-1, 2:] - p[1:-1, :-2])
              + nu * dt / dx**2 * (u[1:-1, 2:] + u[1:-1, :-2] + u[2:, 1:-1] + u[:-2, 1:-1] - 4 * uc))
        vn = (vc - dt / dx * (uc * (vc - v[1:-1, :-2]) + vc * (vc - v[:-2, 1:-1]))
              - dt / (2 * dx) * (p[2:, 1:-1] - p[:-2, 1:-1])
              + nu * dt / dx**2 * (v[1:-1, 2:] + v[1:-1, :-2] + v[2:, 1:-1] + v[:-2, 1:-1] - 4 * vc))
        u[1:-1, 1:-1], v[1:-1, 1:-1] = un, vn
        u[0], u[:, 0], u[:, -1], u[-1] = 0, 0, 0, 1
        v[0], v[-1], v[:, 0], v[:, -1] = 0, 0, 0, 0
    return u, v, p


def fdtd_2d_inputs(rng: np.random.Generator, n: int, m: int, steps: int) -> Arrays:
    """Fields and the source's values."""
    return {name: rng.random((n, m)) for name in ("ex", "ey", "hz")} | {"source": np.arange(float(steps))}


def hdiff_inputs(rng: np.random.Generator, n: int, m: int, levels: int) -> Arrays:
    """A field with a margin of two, a coefficient for each inner point."""
    return {"field": rng.random((n + 4, m + 4, levels)), "coefficient": rng.random((n, m, levels))}


def cavity_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """Fluid at rest."""
    return {name: np.zeros((n, n)) for name in ("u", "v", "p")}


PROGRAMS = table(
    Program(jacobi_1d, uniform(a="i", b="i"), (30,), (16000,), {"steps": 100}),
    Program(jacobi_2d, uniform(a="ij", b="ij"), (13, 17), (250, 250), {"steps": 50}),
    Program(heat_3d, uniform(a="ijk", b="ijk"), (7, 8, 9), (40, 40, 40), {"steps": 25}),
    Program(fdtd_2d, fdtd_2d_inputs, (9, 12, 5), (250, 300, 50)),
    Program(hdiff, hdiff_inputs, (8, 9, 5), (128, 128, 40)),
    Program(cavity_flow, cavity_inputs, (11,), (81,), {"steps": 25, "inner": 25, "dx": 0.05, "dt": 0.001},
            relative=1e-8))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("stencils", PROGRAMS, session)
