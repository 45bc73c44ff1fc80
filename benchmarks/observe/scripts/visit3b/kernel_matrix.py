"""expects: compute
remedy: the matrix of all pairs once, outside of the loop over regularisations.

Kernel ridge regression that computes the kernel again for each value of its parameter.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
points = mo.asarray(np.random.default_rng(0).normal(size=(1500, 400)).astype(np.float32), copy=True)
target = mo.sin(points[:, 0]).realise()


@mo.compile
def gram(points):
    squares = (points * points).sum(axis=1)
    return mo.exp(-0.01 * (squares[:, None] + squares[None, :] - 2 * points @ points.T))


@mo.compile
def smooth(k, target, strength):
    fitted = target
    for _ in range(3):
        fitted = fitted - (k @ fitted) * 1e-4 - strength * fitted
    return fitted


k = gram(points)
for strength in np.linspace(0.0, 0.1, 60):
    k = k if better else gram(points)
    result = smooth(k, target, mo.asarray(np.float32(strength)))
print(float(result.sum()))
