"""expects: recompiles
remedy: dynamic={"x": {0: mo.Dim("beds", 1, 512)}} for the size that changes.

Risk scores of hospital wards, each with another number of beds.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rng = np.random.default_rng(0)
weights = mo.asarray(rng.normal(size=(24, 3)).astype(np.float32), copy=True)


def risk(x):
    scores = mo.softmax(x @ weights, axis=-1)
    return (scores * mo.log(scores + 1e-6)).sum(axis=0) / x.shape[0]


score = mo.compile(risk, dynamic={"x": {0: mo.Dim("beds", 1, 512)}} if better else None)
total = np.zeros(3)
for ward in range(120):
    beds = rng.normal(size=(20 + 3 * ward, 24)).astype(np.float32)
    total += score(beds).numpy()
print(total)
