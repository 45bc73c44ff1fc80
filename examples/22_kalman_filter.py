"""A Kalman filter over 2,000 measurements: one native loop, the state in registers.

    python examples/22_kalman_filter.py

A point moves in the plane with a velocity that drifts; its position is seen with noise. `mo.scan` carries the estimate
and its covariance from one measurement to the next.
"""

import time

import numpy as np

import morpho as mo

STEPS, DT = 2000, 0.1
motion = mo.asarray([[1.0, 0, DT, 0], [0, 1, 0, DT], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=mo.float64)
sight = mo.asarray([[1.0, 0, 0, 0], [0, 1, 0, 0]], dtype=mo.float64)
drift, noise, eye = 1e-3 * mo.eye(4, dtype=mo.float64), 0.25 * mo.eye(2, dtype=mo.float64), mo.eye(4, dtype=mo.float64)


def inverse(m):
    """Of a matrix of two by two."""
    determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    return mo.stack([mo.stack([m[1, 1], -m[0, 1]]), mo.stack([-m[1, 0], m[0, 0]])]) / determinant


def step(carry, seen):
    x, p = carry
    x, p = motion @ x, motion @ p @ motion.T + drift
    gain = p @ sight.T @ inverse(sight @ p @ sight.T + noise)
    x, p = x + gain @ (seen - sight @ x), (eye - gain @ sight) @ p
    return (x, p), x


@mo.compile
def track(seen):
    return mo.scan(step, (mo.zeros(4, dtype=mo.float64), eye), seen)[1]


rng = np.random.default_rng(0)
velocity = np.cumsum(0.03 * rng.standard_normal((STEPS, 2)), axis=0)
truth = np.cumsum(DT * velocity, axis=0)
seen = truth + 0.5 * rng.standard_normal((STEPS, 2))
track(mo.asarray(seen))
start = time.perf_counter()
found = track(mo.asarray(seen)).numpy()
seconds = time.perf_counter() - start

error = {name: np.sqrt(np.mean((x - truth) ** 2)) for name, x in (("measured", seen), ("filtered", found[:, :2]))}
print(f"{STEPS} steps in {seconds * 1e3:.2f} ms, {seconds / STEPS * 1e6:.2f} us each, {track.stats['kernels']} kernels")
print(f"error: measured {error['measured']:.3f}, filtered {error['filtered']:.3f}")
assert error["filtered"] < 0.6 * error["measured"] and track.stats["host_steps"] == 0
