"""expects: compute
remedy: float32 instead of NumPy's float64.

Lloyd's k-means of what `numpy.random` gave, as it came.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
points = np.random.default_rng(0).normal(size=(20_000, 256))
points = mo.asarray(points.astype(np.float32) if better else points, copy=True)
centres = points[:256].realise()


@mo.compile
def turn(points, centres):
    distances = (centres * centres).sum(axis=1) - 2 * points @ centres.T
    nearest = mo.argmin(distances, axis=1)
    member = (nearest[:, None] == mo.arange(256)[None, :]).astype(points.dtype)
    return (member.T @ points) / mo.maximum(member.sum(axis=0), 1)[:, None]


for _ in range(25):
    centres = turn(points, centres)
print(float(centres.sum()))
