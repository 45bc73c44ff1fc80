"""Complex numbers."""

from __future__ import annotations

import numpy as np
from numba import prange


def mandelbrot(c, steps):
    z, count = np.zeros_like(c), np.zeros(c.shape, np.int64)
    for i in prange(c.shape[0]):
        for j in range(c.shape[1]):
            at, turns = 0j, 0
            while turns < steps and at.real * at.real + at.imag * at.imag < 4:
                at = at * at + c[i, j]
                turns += 1
            z[i, j], count[i, j] = at, turns
    return z, count


def stockham_fft(x, roots):
    size = len(x)
    source, target = x.copy(), np.empty_like(x)
    n, stride = size, 1
    while n > 1:
        n //= 2
        for k in prange(n):
            for s in range(stride):
                one, other = source[k * stride + s], source[(n + k) * stride + s]
                target[2 * k * stride + s] = one + other
                target[(2 * k + 1) * stride + s] = (one - other) * roots[k * stride]
        source, target = target, source
        stride *= 2
    return source


def contour_integral(a, b, y, z, weight):
    eye = np.eye(len(a))
    zeroth, first = np.zeros_like(y), np.zeros_like(y)
    for t in range(len(z)):
        found = weight[t] * np.linalg.solve(z[t] * z[t] * eye + z[t] * a + b, y)
        zeroth += found
        first += z[t] * found
    return zeroth, first


def self_energies(green, d_h, phonon, neighbours):
    sigma = np.zeros_like(green)
    momenta, energies, atoms, orbitals = green.shape[:4]
    directions = d_h.shape[2]
    for atom in prange(atoms):
        right = np.zeros((orbitals, orbitals), green.dtype)
        moved = np.zeros((momenta, energies, orbitals, orbitals), green.dtype)
        for b in range(neighbours.shape[1]):
            for i in range(directions):
                for k in range(momenta):
                    for e in range(energies):
                        for m in range(orbitals):
                            for n in range(orbitals):
                                total = 0j
                                for o in range(orbitals):
                                    total += green[k, e, neighbours[atom, b], m, o] * d_h[atom, b, i, o, n]
                                moved[k, e, m, n] = total
                for q in range(phonon.shape[0]):
                    for w in range(phonon.shape[1]):
                        right[:] = 0
                        for j in range(directions):
                            right += phonon[q, w, atom, b, i, j] * d_h[atom, b, j]
                        for k in range(momenta):
                            for e in range(w, energies):
                                for m in range(orbitals):
                                    for n in range(orbitals):
                                        total = 0j
                                        for o in range(orbitals):
                                            total += moved[k - q, e - w, m, o] * right[o, n]
                                        sigma[k, e, atom, m, n] += total
    return sigma


FUNCTIONS = (mandelbrot, stockham_fft, contour_integral, self_energies)
