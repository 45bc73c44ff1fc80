"""expects: memory
remedy: float32 (what the weights have anyway).

A running average of all weights in float64 after every small step.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
kind = np.float32 if better else np.float64
weights = mo.asarray(np.random.default_rng(0).normal(size=6_000_000).astype(kind), copy=True)
average = mo.zeros(6_000_000, dtype=weights.dtype).realise()
update = mo.compile(lambda average, w: 0.999 * average + 0.001 * w)
for _ in range(150):
    average = update(average, weights)
print(float(average.sum()))
