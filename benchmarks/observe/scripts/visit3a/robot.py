"""expects: imbalance
remedy: the long row cut into 64 rows, whose sums are added.

Clicks of users, one of whom is a robot that clicked on everything.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rng = np.random.default_rng(0)
items, pieces = 4_000_000, 64
robot = np.arange(items, dtype=np.int32)
others = np.sort(rng.integers(0, items, (20_000, 20), dtype=np.int32), axis=1)
others += np.arange(20, dtype=np.int32)[None, :]
indices = np.concatenate([robot, np.minimum(others, items - 1).ravel()])
cuts = np.linspace(0, items, pieces + 1).astype(np.int64) if better else np.array([0, items])
indptr = np.concatenate([cuts, items + 20 * np.arange(1, 20_001)])
clicks = mo.sparse.csr(np.ones(len(indices), np.float32), indices, indptr, (len(indptr) - 1, items))
product = mo.compile(lambda a, x: a @ x)
x = mo.random.normal(mo.random.key(0), (items,)).realise()
first = len(cuts) - 1
for _ in range(150):
    y = product(clicks, x).numpy()
    y = np.concatenate([[y[:first].sum()], y[first:]])
print(y[:3])
