"""Complex numbers."""

from __future__ import annotations

import morpho as mo


def mandelbrot(c, steps):
    def step(i, carry):
        z, count = carry
        inside = mo.real(z) ** 2 + mo.imag(z) ** 2 < 4
        return mo.where(inside, z * z + c, z), count + inside.astype(mo.int64)

    return mo.fori_loop(0, steps, step, (mo.zeros_like(c), mo.zeros(c.shape, dtype=mo.int64)))


def stockham_fft(x, roots):
    n, stride = x.shape[0], 1
    while n > 1:
        n //= 2
        pair = x.reshape((2, n, stride))
        x = mo.stack([pair[0] + pair[1], (pair[0] - pair[1]) * roots[::stride, None]], axis=1)
        stride *= 2
    return x.reshape((-1,))


def contour_integral(a, b, y, z, weight):
    point = z[:, None, None]
    systems = point * point * mo.eye(a.shape[0], dtype=a.dtype) + point * a + b
    found = weight[:, None, None] * mo.linalg.solve(systems, y[None])
    return mo.sum(found, axis=0), mo.sum(point * found, axis=0)


def self_energies(green, d_h, phonon, neighbours):
    sigma = mo.zeros_like(green)
    energies = green.shape[1]
    for b in range(neighbours.shape[1]):
        near = mo.take(green, neighbours[:, b], axis=2)
        for i in range(d_h.shape[2]):
            moved = near @ d_h[:, b, i]
            for q in range(phonon.shape[0]):
                shifted = mo.roll(moved, q, axis=0)
                for w in range(phonon.shape[1]):
                    right = mo.sum(phonon[q, w, :, b, i, :, None, None] * d_h[:, b], axis=1)
                    sigma[:, w:] += shifted[:, :energies - w] @ right
    return sigma


FUNCTIONS = (mandelbrot, stockham_fft, contour_integral, self_energies)
