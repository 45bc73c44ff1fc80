"""8. An ocean model's: the equation of state, mixing along surfaces of equal density, turbulent kinetic energy.

    morpho bench programs --only ocean
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table

Array = np.ndarray
# UNESCO's equation of state of 1980: coefficients of powers of the temperature, by power of the salinity.
PURE = (999.842594, 6.793952e-2, -9.095290e-3, 1.001685e-4, -1.120083e-6, 6.536332e-9)
SALT = (0.824493, -4.0899e-3, 7.6438e-5, -8.2467e-7, 5.3875e-9)
SALT_15 = (-5.72466e-3, 1.0227e-4, -1.6546e-6)
SALT_2 = 4.8314e-4
BULK = (19652.21, 148.4206, -2.327105, 1.360477e-2, -5.155288e-5)
BULK_SALT = (54.6746, -0.603459, 1.09987e-2, -6.1670e-5)
BULK_SALT_15 = (7.944e-2, 1.6483e-2, -5.3009e-4)
PRESSURE = (3.239908, 1.43713e-3, 1.16092e-4, -5.77905e-7)
PRESSURE_SALT = (2.2838e-3, -1.0981e-5, -1.6078e-6)
PRESSURE_SALT_15 = 1.91075e-4
PRESSURE_2 = (8.50935e-5, -6.12293e-6, 5.2787e-8)
PRESSURE_2_SALT = (-9.9348e-7, 2.0816e-8, 9.1697e-10)
# Slopes beyond STEEP are tapered off; diffusivities and lengths in metres and seconds.
STEEP, TAPER, DIFFUSIVITY, THIN = 2e-3, 1e-3, 1000.0, 1e-12
EXPANSION, CONTRACTION = 0.2, 0.8


def horner(t: Array, coefficients: tuple[float, ...]) -> Array:
    """A polynomial."""
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * t + coefficient
    return total


def equation_of_state(s: Array, t: Array, p: Array) -> Array:
    """Density from salinity (g/kg), temperature (degrees) and pressure (bar)."""
    root = np.sqrt(s)
    surface = horner(t, PURE) + s * (horner(t, SALT) + root * horner(t, SALT_15) + SALT_2 * s)
    bulk = horner(t, BULK) + s * (horner(t, BULK_SALT) + root * horner(t, BULK_SALT_15))
    linear = horner(t, PRESSURE) + s * (horner(t, PRESSURE_SALT) + PRESSURE_SALT_15 * root)
    square = horner(t, PRESSURE_2) + s * horner(t, PRESSURE_2_SALT)
    return surface / (1 - p / (bulk + p * (linear + p * square)))


def slope_terms(horizontal: Array, vertical: Array) -> tuple[Array, Array]:
    """The slope of a surface of equal density, and the diffusivity along it, tapered where it is steep."""
    slope = -horizontal / np.minimum(vertical, -THIN)
    return slope, DIFFUSIVITY * 0.5 * (1 + np.tanh((STEEP - np.abs(slope)) / TAPER))


def isoneutral(t: Array, s: Array, dx: float, dz: float) -> tuple[Array, Array, Array]:
    """Fluxes of temperature along surfaces of equal density: east, north, up; four triads at each face."""
    rho = CONTRACTION * s - EXPANSION * t
    steps = {}
    for name, field in (("t", t), ("rho", rho)):
        steps[name] = ((field[1:] - field[:-1]) / dx, (field[:, 1:] - field[:, :-1]) / dx,
                       (field[:, :, 1:] - field[:, :, :-1]) / dz)
    flows = []
    upward = np.zeros_like(t[1:-1, 1:-1, :-1])
    for axis in (0, 1):
        along_t, along_rho = steps["t"][axis], steps["rho"][axis]
        flow = np.zeros_like(along_t[:, :, 1:-1])
        for side in (0, 1):
            for level in (0, 1):
                cut = [slice(None), slice(None), slice(level, -1 if level == 0 else None)]
                cut[axis] = slice(side, -1 if side == 0 else None)
                up_t, up_rho = steps["t"][2][tuple(cut)], steps["rho"][2][tuple(cut)]
                slope, strength = slope_terms(along_rho[:, :, 1:-1], up_rho)
                flow = flow + 0.25 * strength * (along_t[:, :, 1:-1] + slope * up_t)
        flows.append(flow)
        for side in (0, 1):
            for level in (0, 1):
                cut = [slice(1, -1), slice(1, -1), slice(level, -1 if level == 0 else None)]
                cut[axis] = slice(side, -1 if side == 0 else None)
                slope, strength = slope_terms(along_rho[tuple(cut)], steps["rho"][2][1:-1, 1:-1])
                upward = upward + 0.25 * strength * slope * (along_t[tuple(cut)] + slope * steps["t"][2][1:-1, 1:-1])
    return flows[0], flows[1], upward


def thomas(lower: Array, diagonal: Array, upper: Array, right: Array) -> Array:
    """Tridiagonal systems along the last axis."""
    n = right.shape[-1]
    c, d = np.empty_like(right), np.empty_like(right)
    c[..., 0], d[..., 0] = upper[..., 0] / diagonal[..., 0], right[..., 0] / diagonal[..., 0]
    for k in range(1, n):
        pivot = diagonal[..., k] - lower[..., k] * c[..., k - 1]
        c[..., k] = upper[..., k] / pivot
        d[..., k] = (right[..., k] - lower[..., k] * d[..., k - 1]) / pivot
    for k in range(n - 2, -1, -1):
        d[..., k] -= c[..., k] * d[..., k + 1]
    return d


def turbulent_kinetic_energy(tke: Array, u: Array, v: Array, buoyancy: Array, stress: Array, dz: float, dt: float
                             ) -> tuple[Array, Array]:
    """A step of turbulent energy in a column of water: shear makes it, stratification and viscosity take it, it mixes
    up and down implicitly, and what is negative is cut off. The new energy, and the eddy viscosity."""
    root = np.sqrt(np.maximum(tke, 0))
    length = np.sqrt(2.0) * root / np.sqrt(np.maximum(buoyancy, 1e-8))
    depth = dz * (np.arange(tke.shape[-1]) + 0.5)
    length = np.minimum(np.minimum(length, depth), depth[::-1])
    viscosity = np.minimum(10.0, 0.1 * length * root)
    shear = ((u[..., 1:] - u[..., :-1]) / dz) ** 2 + ((v[..., 1:] - v[..., :-1]) / dz) ** 2
    source = viscosity * shear - 0.2 * viscosity * np.maximum(buoyancy, 0)
    between = 0.5 * (viscosity[..., 1:] + viscosity[..., :-1]) * dt / dz**2
    nothing = np.zeros_like(tke[..., :1])
    below, above = np.concatenate((nothing, between), -1), np.concatenate((between, nothing), -1)
    right = tke + dt * source
    right[..., -1] += dt / dz * stress
    new = thomas(-below, 1 + below + above + 0.7 * dt * root / np.maximum(length, 0.01), -above, right)
    return np.maximum(new, 1e-6), viscosity


def water_inputs(rng: np.random.Generator, *shape: int) -> Arrays:
    """Salinity, temperature, pressure."""
    return {"s": 30 + 8 * rng.random(shape), "t": 25 * rng.random(shape), "p": 400 * rng.random(shape)}


def layered_inputs(rng: np.random.Generator, n: int, m: int, levels: int) -> Arrays:
    """Temperature that rises upwards and salinity that falls, with some disorder."""
    up = np.linspace(0, 1, levels)
    return {"t": 20 * up + 0.1 * rng.random((n, m, levels)), "s": 35 - up + 0.1 * rng.random((n, m, levels))}


def column_inputs(rng: np.random.Generator, n: int, m: int, levels: int) -> Arrays:
    """Energy, currents, stratification, wind."""
    return {"tke": 1e-3 * rng.random((n, m, levels)), "u": rng.random((n, m, levels + 1)),
            "v": rng.random((n, m, levels + 1)), "buoyancy": 1e-4 * rng.standard_normal((n, m, levels)),
            "stress": 1e-4 * rng.random((n, m))}


PROGRAMS = table(
    Program(equation_of_state, water_inputs, (5, 6, 7), (64, 64, 40)),
    Program(isoneutral, layered_inputs, (6, 7, 8), (50, 50, 30), {"dx": 1e4, "dz": 20.0}),
    Program(turbulent_kinetic_energy, column_inputs, (4, 5, 9), (60, 60, 30), {"dz": 10.0, "dt": 600.0}))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("ocean", PROGRAMS, session)
