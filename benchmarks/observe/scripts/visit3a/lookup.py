"""expects: transfers
remedy: the tensor once, outside of the loop.

The whole table of embeddings becomes a tensor for every query.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
table = np.random.default_rng(0).normal(size=(150_000, 64)).astype(np.float32)
once = mo.asarray(table, copy=True)
pick = mo.compile(lambda table, rows: table[rows].mean(axis=0))
for n in range(120):
    rows = np.arange(n, n + 200)
    found = pick(once if better else mo.asarray(table, copy=True), rows)
print(found[:3].tolist())
