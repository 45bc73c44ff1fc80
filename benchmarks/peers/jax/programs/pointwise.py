"""Functions of every element and reductions over them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def arc_distance(theta1, phi1, theta2, phi2):
    t = jnp.sin((theta2 - theta1) / 2) ** 2 + jnp.cos(theta1) * jnp.cos(theta2) * jnp.sin((phi2 - phi1) / 2) ** 2
    return 2 * jnp.arctan2(jnp.sqrt(t), jnp.sqrt(1 - t))


def go_fast(a):
    return a + jnp.tanh(jnp.diagonal(a)).sum()


def azimuthal(image, radius, bins):
    ring = jnp.minimum((radius * bins).astype(jnp.int64), bins - 1).ravel()
    return jnp.bincount(ring, image.ravel(), length=bins) / jnp.maximum(jnp.bincount(ring, length=bins), 1)


def histogram(x, weight, bins):
    which = jnp.minimum((x * bins).astype(jnp.int64), bins - 1)
    return jnp.bincount(which, length=bins), jnp.bincount(which, weight, length=bins)


def acceleration(position, mass):
    x, y, z = (position[:, axis][None] - position[:, axis][:, None] for axis in range(3))
    square = x * x + y * y + z * z + 0.01
    strength = mass / (square * jnp.sqrt(square))
    return jnp.stack([(strength * d).sum(axis=1) for d in (x, y, z)], axis=1)


def nbody(position, velocity, mass, steps, h):
    def step(carry, _):
        position, velocity, pull = carry
        velocity = velocity + h / 2 * pull
        position = position + h * velocity
        pull = acceleration(position, mass)
        velocity = velocity + h / 2 * pull
        return (position, velocity, pull), 0.5 * (mass[:, None] * velocity**2).sum()

    carry, energy = lax.scan(step, (position, velocity, acceleration(position, mass)), length=steps)
    return carry[0], carry[1], energy


def kmeans(points, centres, steps):
    k = len(centres)

    def step(i, carry):
        centres, _ = carry
        distance = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)
        nearest = distance.argmin(axis=1)
        count = jnp.maximum(jnp.bincount(nearest, length=k), 1)
        return jax.ops.segment_sum(points, nearest, k) / count[:, None], nearest

    return lax.fori_loop(0, steps, step, (centres, jnp.zeros(len(points), jnp.int64)))


FUNCTIONS = (arc_distance, go_fast, azimuthal, histogram, nbody, kmeans)
