"""expects: imbalance
remedy: eight series beside each other, (steps, batch).

Exponential smoothing of eight long series, one after the other: a scan is one thread's.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
series = np.random.default_rng(0).normal(size=(8, 400_000)).astype(np.float32)
smooth = mo.compile(lambda x, start: mo.scan(lambda y, v: (0.95 * y + 0.05 * v,) * 2, start, x)[1])
for _ in range(12):
    if better:
        out = smooth(np.ascontiguousarray(series.T), mo.zeros(8))
    else:
        out = [smooth(one, mo.asarray(0.0)) for one in series]
print(float(out[-1][-1] if not better else out[-1, -1]))
