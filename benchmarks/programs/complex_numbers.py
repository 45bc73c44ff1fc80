"""6. Complex numbers: iterations, a Fourier transform by hand, small systems along a contour, self-energies.

    morpho bench programs --only complex
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table

Array = np.ndarray


def mandelbrot(c: Array, steps: int) -> tuple[Array, Array]:
    """How many steps of z z + c stay within 2, and where z was then."""
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for _ in range(steps):
        inside = z.real**2 + z.imag**2 < 4
        z = np.where(inside, z * z + c, z)
        count += inside
    return z, count


def stockham_fft(x: Array, roots: Array) -> Array:
    """The Fourier transform of 2^k numbers by Stockham's passes, which leave the result in order."""
    n, stride = len(x), 1
    while n > 1:
        n //= 2
        pair = x.reshape(2, n, stride)
        x = np.empty((n, 2, stride), x.dtype)
        x[:, 0] = pair[0] + pair[1]
        x[:, 1] = (pair[0] - pair[1]) * roots[::stride, None]
        stride *= 2
    return x.reshape(-1)


def contour_integral(a: Array, b: Array, y: Array, z: Array, weight: Array) -> tuple[Array, Array]:
    """Moments of (z z + z A + B)^-1 Y along a contour, for eigenvalues inside it."""
    eye = np.eye(len(a))
    zeroth, first = np.zeros_like(y), np.zeros_like(y)
    for point, share in zip(z, weight, strict=True):
        found = share * np.linalg.solve(point * point * eye + point * a + b, y)
        zeroth, first = zeroth + found, first + point * found
    return zeroth, first


def self_energies(green: Array, d_h: Array, phonon: Array, neighbours: Array) -> Array:
    """Scattering self-energies: each atom's, from its neighbours' Green's functions at shifted momenta and energies."""
    sigma = np.zeros_like(green)
    energies = green.shape[1]
    for b in range(neighbours.shape[1]):
        for i in range(d_h.shape[2]):
            moved = green[:, :, neighbours[:, b]] @ d_h[:, b, i]
            for q in range(phonon.shape[0]):
                shifted = np.roll(moved, q, axis=0)
                for w in range(phonon.shape[1]):
                    right = (phonon[q, w, :, b, i, :, None, None] * d_h[:, b]).sum(axis=1)
                    sigma[:, w:] += shifted[:, :energies - w] @ right
    return sigma


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Complex numbers, both parts normal."""
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def plane_inputs(rng: np.random.Generator, n: int, m: int) -> Arrays:
    """Points of the plane around the set."""
    return {"c": np.linspace(-2.2, 0.8, n)[:, None] + 1j * np.linspace(-1.2, 1.2, m)}


def fft_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """A signal, and half of the roots of unity."""
    return {"x": numbers(rng, n), "roots": np.exp(-2j * np.pi * np.arange(n // 2) / n)}


def contour_inputs(rng: np.random.Generator, n: int, width: int, points: int) -> Arrays:
    """Matrices, right sides, and a circle around the origin."""
    z = 3 * np.exp(2j * np.pi * (np.arange(points) + 0.5) / points)
    return {"a": numbers(rng, n, n) / n, "b": numbers(rng, n, n) / n, "y": numbers(rng, n, width), "z": z,
            "weight": z / points}


def energy_inputs(rng: np.random.Generator, momenta: int, energies: int, atoms: int, orbitals: int) -> Arrays:
    """Green's functions, the Hamiltonian's derivatives in three directions, phonons, two neighbours each."""
    return {"green": numbers(rng, momenta, energies, atoms, orbitals, orbitals),
            "d_h": numbers(rng, atoms, 2, 3, orbitals, orbitals), "phonon": numbers(rng, momenta, 2, atoms, 2, 3, 3),
            "neighbours": rng.integers(0, atoms, (atoms, 2))}


PROGRAMS = table(
    Program(mandelbrot, plane_inputs, (12, 9), (200, 160), {"steps": 40}, relative=1e-6),
    Program(stockham_fft, fft_inputs, (16,), (65536,)),
    Program(contour_integral, contour_inputs, (6, 3, 4), (50, 8, 16), native=False),
    Program(self_energies, energy_inputs, (2, 4, 3, 2), (3, 12, 12, 4)))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("complex_numbers", PROGRAMS, session)
