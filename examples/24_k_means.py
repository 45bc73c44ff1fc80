"""k-means: each point to its nearest centre, each centre to the mean of its points, in one native loop.

    python examples/24_k_means.py
"""

import time

import numpy as np

import morpho as mo

POINTS, WIDTH, CLUSTERS, STEPS = 20_000, 8, 10, 30


def assign(points, centres):
    """The nearest centre of each point, and its squared distance."""
    distance = (mo.sum(points**2, axis=1)[:, None] - 2 * points @ centres.T + mo.sum(centres**2, axis=1))
    return mo.argmin(distance, axis=1), mo.min(distance, axis=1)


@mo.compile
def k_means(points, centres):
    def step(i, centres):
        nearest, _ = assign(points, centres)
        count = mo.maximum(mo.bincount(nearest, length=CLUSTERS), 1)
        return mo.segment_sum(points, nearest, CLUSTERS) / count[:, None]

    centres = mo.fori_loop(0, STEPS, step, centres)
    nearest, distance = assign(points, centres)
    return centres, nearest, mo.mean(distance)


rng = np.random.default_rng(1)
places = 6 * rng.standard_normal((CLUSTERS, WIDTH))
truth = rng.integers(0, CLUSTERS, POINTS)
points = mo.asarray(places[truth] + rng.standard_normal((POINTS, WIDTH)))
begin_at = mo.asarray(np.stack([points.numpy()[truth == k][0] for k in range(CLUSTERS)]))
k_means(points, begin_at)
start = time.perf_counter()
centres, nearest, spread = k_means(points, begin_at)
right = np.mean(nearest.numpy() == truth)
seconds = time.perf_counter() - start
print(f"{STEPS} rounds over {POINTS} points in {seconds * 1e3:.1f} ms, {k_means.stats['kernels']} kernels")
print(f"mean squared distance {spread.item():.3f} (noise alone gives {WIDTH}), {right:.1%} in the right cluster")
assert right > 0.99 and abs(spread.item() - WIDTH) < 0.5
