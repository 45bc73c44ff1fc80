"""Complex numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def mandelbrot(c, steps):
    def step(i, carry):
        z, count = carry
        inside = z.real**2 + z.imag**2 < 4
        return jnp.where(inside, z * z + c, z), count + inside

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int64)))


def stockham_fft(x, roots):
    n, stride = len(x), 1
    while n > 1:
        n //= 2
        pair = x.reshape(2, n, stride)
        x = jnp.stack([pair[0] + pair[1], (pair[0] - pair[1]) * roots[::stride, None]], axis=1)
        stride *= 2
    return x.reshape(-1)


def contour_integral(a, b, y, z, weight):
    def solved(point):
        return jnp.linalg.solve(point * point * jnp.eye(len(a)) + point * a + b, y)

    found = weight[:, None, None] * jax.vmap(solved)(z)
    return found.sum(axis=0), (z[:, None, None] * found).sum(axis=0)


def self_energies(green, d_h, phonon, neighbours):
    sigma = jnp.zeros_like(green)
    energies = green.shape[1]
    for b in range(neighbours.shape[1]):
        near = green[:, :, neighbours[:, b]]
        for i in range(d_h.shape[2]):
            moved = near @ d_h[:, b, i]
            for q in range(phonon.shape[0]):
                shifted = jnp.roll(moved, q, axis=0)
                for w in range(phonon.shape[1]):
                    right = (phonon[q, w, :, b, i, :, None, None] * d_h[:, b]).sum(axis=1)
                    sigma = sigma.at[:, w:].add(shifted[:, :energies - w] @ right)
    return sigma


FUNCTIONS = (mandelbrot, stockham_fft, contour_integral, self_energies)
