"""expects: host
remedy: `mo.sigmoid`, `mo.log1p`, `mo.exp`.

SciPy's functions as operations of a compiled likelihood.
"""
import sys

import numpy as np
from scipy import special

import morpho as mo

better = "better" in sys.argv
expit = mo.extend.op("script_expit", reference=special.expit, native=False)
entropy = mo.extend.op("script_entropy", reference=special.entr, native=False)
x = mo.asarray(np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32), copy=True)


def plain(x):
    p = expit(x)
    return (entropy(p) + entropy(1 - p)).sum(axis=1)


def native(x):
    p = mo.sigmoid(x)
    return (-p * mo.log(p) - (1 - p) * mo.log(1 - p)).sum(axis=1)


run = mo.compile(native if better else plain)
for _ in range(60):
    y = run(x)
print(float(y.sum()))
