"""An ocean model's."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from benchmarks.programs import ocean as o

PURE, SALT, SALT_15, SALT_2 = o.PURE, o.SALT, o.SALT_15, o.SALT_2
BULK, BULK_SALT, BULK_SALT_15 = o.BULK, o.BULK_SALT, o.BULK_SALT_15
PRESSURE, PRESSURE_SALT, PRESSURE_SALT_15 = o.PRESSURE, o.PRESSURE_SALT, o.PRESSURE_SALT_15
PRESSURE_2, PRESSURE_2_SALT = o.PRESSURE_2, o.PRESSURE_2_SALT
STEEP, TAPER, DIFFUSIVITY, THIN = o.STEEP, o.TAPER, o.DIFFUSIVITY, o.THIN
EXPANSION, CONTRACTION = o.EXPANSION, o.CONTRACTION


@njit(inline="always")
def horner(t, coefficients):
    total = 0.0
    for k in range(len(coefficients) - 1, -1, -1):
        total = total * t + coefficients[k]
    return total


def equation_of_state(s, t, p):
    out = np.empty_like(s)
    a, b, c, result = s.ravel(), t.ravel(), p.ravel(), out.ravel()
    for i in prange(len(result)):
        x, y, z = a[i], b[i], c[i]
        root = math.sqrt(x)
        surface = horner(y, PURE) + x * (horner(y, SALT) + root * horner(y, SALT_15) + SALT_2 * x)
        bulk = horner(y, BULK) + x * (horner(y, BULK_SALT) + root * horner(y, BULK_SALT_15))
        linear = horner(y, PRESSURE) + x * (horner(y, PRESSURE_SALT) + PRESSURE_SALT_15 * root)
        square = horner(y, PRESSURE_2) + x * horner(y, PRESSURE_2_SALT)
        result[i] = surface / (1 - z / (bulk + z * (linear + z * square)))
    return out


@njit(inline="always")
def strength(slope):
    return DIFFUSIVITY * 0.5 * (1 + math.tanh((STEEP - abs(slope)) / TAPER))


def isoneutral(t, s, dx, dz):
    n, m, levels = t.shape
    rho = CONTRACTION * s - EXPANSION * t
    east, north = np.zeros((n - 1, m, levels - 2)), np.zeros((n, m - 1, levels - 2))
    upward = np.zeros((n - 2, m - 2, levels - 1))
    for i in prange(n):
        for j in range(m):
            for axis in range(2):
                i1, j1 = i + 1 - axis, j + axis
                if i1 < n and j1 < m:
                    for k in range(1, levels - 1):
                        along_t, along_rho = (t[i1, j1, k] - t[i, j, k]) / dx, (rho[i1, j1, k] - rho[i, j, k]) / dx
                        total = 0.0
                        for side in range(2):
                            x, y = (i1, j1) if side else (i, j)
                            for level in range(k - 1, k + 1):
                                up_t = (t[x, y, level + 1] - t[x, y, level]) / dz
                                up_rho = (rho[x, y, level + 1] - rho[x, y, level]) / dz
                                slope = -along_rho / min(up_rho, -THIN)
                                total += 0.25 * strength(slope) * (along_t + slope * up_t)
                        if axis == 0:
                            east[i, j, k - 1] = total
                        else:
                            north[i, j, k - 1] = total
    for i in prange(1, n - 1):
        for j in range(1, m - 1):
            for k in range(levels - 1):
                up_t, up_rho = (t[i, j, k + 1] - t[i, j, k]) / dz, (rho[i, j, k + 1] - rho[i, j, k]) / dz
                total = 0.0
                for axis in range(2):
                    for side in range(-1, 1):
                        x, y = (i + side, j) if axis == 0 else (i, j + side)
                        x1, y1 = (x + 1, y) if axis == 0 else (x, y + 1)
                        for level in range(k, k + 2):
                            along_t = (t[x1, y1, level] - t[x, y, level]) / dx
                            slope = -(rho[x1, y1, level] - rho[x, y, level]) / dx / min(up_rho, -THIN)
                            total += 0.25 * strength(slope) * slope * (along_t + slope * up_t)
                upward[i - 1, j - 1, k] = total
    return east, north, upward


def turbulent_kinetic_energy(tke, u, v, buoyancy, stress, dz, dt):
    n, m, levels = tke.shape
    new, viscosity = np.empty_like(tke), np.empty_like(tke)
    for i in prange(n):
        c, d, decay = np.empty(levels), np.empty(levels), np.empty(levels)
        for j in range(m):
            for k in range(levels):
                root = math.sqrt(max(tke[i, j, k], 0.0))
                length = math.sqrt(2.0) * root / math.sqrt(max(buoyancy[i, j, k], 1e-8))
                length = min(length, dz * (k + 0.5), dz * (levels - k - 0.5))
                viscosity[i, j, k] = min(10.0, 0.1 * length * root)
                decay[k] = 0.7 * dt * root / max(length, 0.01)
            below = 0.0
            for k in range(levels):
                above = 0.0
                if k < levels - 1:
                    above = 0.5 * (viscosity[i, j, k + 1] + viscosity[i, j, k]) * dt / dz**2
                shear = (((u[i, j, k + 1] - u[i, j, k]) / dz) ** 2 + ((v[i, j, k + 1] - v[i, j, k]) / dz) ** 2)
                right = tke[i, j, k] + dt * (
                    viscosity[i, j, k] * shear - 0.2 * viscosity[i, j, k] * max(buoyancy[i, j, k], 0.0))
                if k == levels - 1:
                    right += dt / dz * stress[i, j]
                pivot = 1 + below + above + decay[k] + (below * c[k - 1] if k > 0 else 0.0)
                c[k] = -above / pivot
                d[k] = (right + (below * d[k - 1] if k > 0 else 0.0)) / pivot
                below = above
            new[i, j, levels - 1] = max(d[levels - 1], 1e-6)
            for k in range(levels - 2, -1, -1):
                d[k] -= c[k] * d[k + 1]
                new[i, j, k] = max(d[k], 1e-6)
    return new, viscosity


FUNCTIONS = (equation_of_state, isoneutral, turbulent_kinetic_energy)
