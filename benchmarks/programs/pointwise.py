"""4. Functions of every element and reductions over them.

    morpho bench programs --only pointwise
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.programs.board import measure
from benchmarks.programs.program import Arrays, Program, table, uniform

Array = np.ndarray


def arc_distance(theta1: Array, phi1: Array, theta2: Array, phi2: Array) -> Array:
    """Angles between points of a sphere, by the haversine."""
    t = np.sin((theta2 - theta1) / 2) ** 2 + np.cos(theta1) * np.cos(theta2) * np.sin((phi2 - phi1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(t), np.sqrt(1 - t))


def go_fast(a: Array) -> Array:
    """The matrix plus the sum of tanh over its diagonal."""
    return a + np.tanh(np.diagonal(a)).sum()


def azimuthal(image: Array, radius: Array, bins: int) -> Array:
    """The mean of an image over rings of equal width."""
    ring = np.minimum((radius * bins).astype(np.int64), bins - 1).ravel()
    return np.bincount(ring, image.ravel(), bins) / np.maximum(np.bincount(ring, minlength=bins), 1)


def histogram(x: Array, weight: Array, bins: int) -> tuple[Array, Array]:
    """Counts and weights of values between 0 and 1 by bin."""
    which = np.minimum((x * bins).astype(np.int64), bins - 1)
    return np.bincount(which, minlength=bins), np.bincount(which, weight, bins)


def acceleration(position: Array, mass: Array) -> Array:
    """Gravity of all bodies on each, softened by 0.1."""
    d = position[None] - position[:, None]
    strength = ((d * d).sum(axis=-1) + 0.01) ** -1.5 * mass
    return (strength[..., None] * d).sum(axis=1)


def nbody(position: Array, velocity: Array, mass: Array, steps: int, h: float) -> tuple[Array, Array, Array]:
    """Bodies under their gravity by leapfrog; places, speeds, and the kinetic energy after each step."""
    position, velocity = position.copy(), velocity.copy()
    energy = np.empty(steps)
    pull = acceleration(position, mass)
    for t in range(steps):
        velocity += h / 2 * pull
        position += h * velocity
        pull = acceleration(position, mass)
        velocity += h / 2 * pull
        energy[t] = 0.5 * (mass[:, None] * velocity**2).sum()
    return position, velocity, energy


def kmeans(points: Array, centres: Array, steps: int) -> tuple[Array, Array]:
    """Lloyd's algorithm: each point to its nearest centre, each centre to the mean of its points."""
    for _ in range(steps):
        distance = ((points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1))
        nearest = distance.argmin(axis=1)
        total = np.zeros_like(centres)
        np.add.at(total, nearest, points)
        centres = total / np.maximum(np.bincount(nearest, minlength=len(centres)), 1)[:, None]
    return centres, nearest


def image_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """An image and the distance of its points from the centre, below 1."""
    y, x = np.mgrid[:n, :n] / n - 0.5
    return {"image": rng.random((n, n)), "radius": np.sqrt(x * x + y * y)}


def body_inputs(rng: np.random.Generator, n: int) -> Arrays:
    """Bodies around the origin."""
    return {"position": rng.standard_normal((n, 3)), "velocity": rng.standard_normal((n, 3)),
            "mass": rng.random(n) * 20 / n}


def cluster_inputs(rng: np.random.Generator, n: int, k: int, width: int) -> Arrays:
    """Points around k places, and k of the points to begin with."""
    places = 4 * rng.standard_normal((k, width))
    points = places[rng.integers(0, k, n)] + rng.standard_normal((n, width))
    return {"points": points, "centres": points[:k].copy()}


PROGRAMS = table(
    Program(arc_distance, uniform(theta1="i", phi1="i", theta2="i", phi2="i"), (37,), (300_000,)),
    Program(go_fast, uniform(a="ii"), (13,), (2000,)),
    Program(azimuthal, image_inputs, (15,), (800,), {"bins": 100}),
    Program(histogram, uniform(x="i", weight="i"), (40,), (1_000_000,), {"bins": 100}),
    Program(nbody, body_inputs, (7,), (100,), {"steps": 20, "h": 0.01}, relative=1e-8),
    Program(kmeans, cluster_inputs, (60, 4, 3), (5000, 16, 8), {"steps": 10}))


def run(session: Session) -> ThemeResult:
    """A row per program."""
    return measure("pointwise", PROGRAMS, session)
