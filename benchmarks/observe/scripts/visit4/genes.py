"""expects: host
remedy: ranks by Morpho's own argsort, twice.

Rank correlations of genes, with SciPy's ranks inside a compiled function.
"""
import sys

import numpy as np
from scipy import stats

import morpho as mo

better = "better" in sys.argv
ranks = mo.extend.op("script_ranks", reference=lambda x: stats.rankdata(x, axis=1).astype(x.dtype), native=False)
x = mo.asarray(np.random.default_rng(0).normal(size=(200, 3000)).astype(np.float32), copy=True)


def own(x):
    return mo.argsort(mo.argsort(x, axis=1), axis=1).astype(mo.float32) + 1.0


@mo.compile
def correlations(x):
    r = (own if better else ranks)(x)
    r = r - r.mean(axis=1, keepdims=True)
    r = r / mo.sqrt((r * r).sum(axis=1, keepdims=True))
    return r @ r.T


for _ in range(25):
    c = correlations(x)
print(float(c[0, 1]))
