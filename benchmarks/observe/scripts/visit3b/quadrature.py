"""expects: host
remedy: the trapezoidal rule written with Morpho's own operations.

SciPy's cumulative integral inside a compiled function.
"""
import sys

import numpy as np
from scipy import integrate

import morpho as mo

better = "better" in sys.argv
area = mo.extend.op("script_area", reference=lambda y: integrate.cumulative_trapezoid(y, axis=1, initial=0)
                    .astype(y.dtype), native=False)
y = mo.asarray(np.random.default_rng(0).normal(size=(400, 5000)).astype(np.float32), copy=True)


def own(y):
    halves = 0.5 * (y[:, 1:] + y[:, :-1])
    return mo.concat([mo.zeros((y.shape[0], 1)), mo.cumulative_sum(halves, axis=1)], axis=1)


run = mo.compile(lambda y: mo.sqrt(mo.abs((own if better else area)(y)) + 1.0))
for _ in range(60):
    z = run(y)
print(z[0, -3:].tolist())
