"""An ocean model's."""

from __future__ import annotations

import morpho as mo
from benchmarks.programs import ocean as o


def equation_of_state(s, t, p):
    root = mo.sqrt(s)
    surface = o.horner(t, o.PURE) + s * (o.horner(t, o.SALT) + root * o.horner(t, o.SALT_15) + o.SALT_2 * s)
    bulk = o.horner(t, o.BULK) + s * (o.horner(t, o.BULK_SALT) + root * o.horner(t, o.BULK_SALT_15))
    linear = o.horner(t, o.PRESSURE) + s * (o.horner(t, o.PRESSURE_SALT) + o.PRESSURE_SALT_15 * root)
    square = o.horner(t, o.PRESSURE_2) + s * o.horner(t, o.PRESSURE_2_SALT)
    return surface / (1 - p / (bulk + p * (linear + p * square)))


def slope_terms(horizontal, vertical):
    slope = -horizontal / mo.minimum(vertical, -o.THIN)
    return slope, o.DIFFUSIVITY * 0.5 * (1 + mo.tanh((o.STEEP - mo.abs(slope)) / o.TAPER))


def isoneutral(t, s, dx, dz):
    rho = o.CONTRACTION * s - o.EXPANSION * t
    steps = {}
    for name, field in (("t", t), ("rho", rho)):
        steps[name] = ((field[1:] - field[:-1]) / dx, (field[:, 1:] - field[:, :-1]) / dx,
                       (field[:, :, 1:] - field[:, :, :-1]) / dz)
    flows, upward = [], 0.0
    for axis in (0, 1):
        along_t, along_rho = steps["t"][axis], steps["rho"][axis]
        flow = 0.0
        for side in (0, 1):
            for level in (0, 1):
                cut = [slice(None), slice(None), slice(level, -1 if level == 0 else None)]
                cut[axis] = slice(side, -1 if side == 0 else None)
                up_t, up_rho = steps["t"][2][tuple(cut)], steps["rho"][2][tuple(cut)]
                slope, strength = slope_terms(along_rho[:, :, 1:-1], up_rho)
                flow = flow + 0.25 * strength * (along_t[:, :, 1:-1] + slope * up_t)
        flows.append(flow)
        for side in (0, 1):
            cut = [slice(1, -1), slice(1, -1), slice(None)]
            cut[axis] = slice(side, -1 if side == 0 else None)
            for level in (slice(None, -1), slice(1, None)):
                cut[2] = level
                slope, strength = slope_terms(along_rho[tuple(cut)], steps["rho"][2][1:-1, 1:-1])
                upward = upward + 0.25 * strength * slope * (along_t[tuple(cut)] + slope * steps["t"][2][1:-1, 1:-1])
    return flows[0], flows[1], upward


def thomas(lower, diagonal, upper, right):
    """Tridiagonal systems along the last axis: two scans over levels, all columns of water side by side."""
    lower, diagonal, upper, right = (mo.moveaxis(x, -1, 0) for x in (lower, diagonal, upper, right))
    zero = mo.zeros_like(right[0])

    def forth(carry, level):
        low, middle, high, given = level
        pivot = middle - low * carry[0]
        new = high / pivot, (given - low * carry[1]) / pivot
        return new, new

    def back(below, level):
        new = level[1] - level[0] * below
        return new, new

    made = mo.scan(forth, (zero, zero), (lower, diagonal, upper, right))[1]
    return mo.moveaxis(mo.scan(back, zero, made, reverse=True)[1], 0, -1)


def turbulent_kinetic_energy(tke, u, v, buoyancy, stress, dz, dt):
    root = mo.sqrt(mo.maximum(tke, 0.0))
    length = 2.0**0.5 * root / mo.sqrt(mo.maximum(buoyancy, 1e-8))
    depth = dz * (mo.arange(tke.shape[-1], dtype=mo.float64) + 0.5)
    length = mo.minimum(mo.minimum(length, depth), mo.flip(depth))
    viscosity = mo.minimum(10.0, 0.1 * length * root)
    shear = ((u[..., 1:] - u[..., :-1]) / dz) ** 2 + ((v[..., 1:] - v[..., :-1]) / dz) ** 2
    source = viscosity * shear - 0.2 * viscosity * mo.maximum(buoyancy, 0.0)
    between = 0.5 * (viscosity[..., 1:] + viscosity[..., :-1]) * dt / dz**2
    nothing = mo.zeros_like(tke[..., :1])
    below, above = mo.concat([nothing, between], axis=-1), mo.concat([between, nothing], axis=-1)
    right = tke + dt * source
    right[..., -1] += dt / dz * stress
    new = thomas(-below, 1 + below + above + 0.7 * dt * root / mo.maximum(length, 0.01), -above, right)
    return mo.maximum(new, 1e-6), viscosity


FUNCTIONS = (equation_of_state, isoneutral, turbulent_kinetic_energy)
