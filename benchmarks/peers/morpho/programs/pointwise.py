"""Functions of every element and reductions over them."""

from __future__ import annotations

import morpho as mo


def arc_distance(theta1, phi1, theta2, phi2):
    t = mo.sin((theta2 - theta1) / 2) ** 2 + mo.cos(theta1) * mo.cos(theta2) * mo.sin((phi2 - phi1) / 2) ** 2
    return 2 * mo.atan2(mo.sqrt(t), mo.sqrt(1 - t))


def go_fast(a):
    return a + mo.sum(mo.tanh(mo.diagonal(a)))


def azimuthal(image, radius, bins):
    ring = mo.minimum((radius * bins).astype(mo.int64), bins - 1).reshape(-1)
    return mo.bincount(ring, image.reshape(-1), length=bins) / mo.maximum(mo.bincount(ring, length=bins), 1)


def histogram(x, weight, bins):
    which = mo.minimum((x * bins).astype(mo.int64), bins - 1)
    return mo.bincount(which, length=bins), mo.bincount(which, weight, length=bins)


def acceleration(position, mass):
    """Coordinates apart, so that lanes run along the bodies."""
    x, y, z = (position[:, axis][None] - position[:, axis][:, None] for axis in range(3))
    square = x * x + y * y + z * z + 0.01
    strength = mass / (square * mo.sqrt(square))
    return mo.stack([mo.sum(strength * d, axis=1) for d in (x, y, z)], axis=1)


def nbody(position, velocity, mass, steps, h):
    def step(carry, _):
        position, velocity, pull = carry
        velocity = velocity + h / 2 * pull
        position = position + h * velocity
        pull = acceleration(position, mass)
        velocity = velocity + h / 2 * pull
        return (position, velocity, pull), 0.5 * mo.sum(mass[:, None] * velocity**2)

    carry, energy = mo.scan(step, (position, velocity, acceleration(position, mass)), length=steps)
    return carry[0], carry[1], energy


def kmeans(points, centres, steps):
    squares = mo.sum(points**2, axis=1)[:, None]
    k = centres.shape[0]

    def step(i, carry):
        centres, _ = carry
        nearest = mo.argmin(squares - 2 * points @ centres.T + mo.sum(centres**2, axis=1), axis=1)
        count = mo.maximum(mo.bincount(nearest, length=k), 1)
        return mo.segment_sum(points, nearest, k) / count[:, None], nearest

    return mo.fori_loop(0, steps, step, (centres, mo.zeros(points.shape[0], dtype=mo.int64)))


FUNCTIONS = (arc_distance, go_fast, azimuthal, histogram, nbody, kmeans)
