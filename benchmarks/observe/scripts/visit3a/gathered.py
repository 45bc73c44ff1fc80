"""expects: network
ranks: 2
remedy: the sums are reduced, not the rows gathered.

Every rank gathers everybody's rows to take the mean over them.
"""
import sys

import numpy as np

import morpho as mo
from morpho import cluster

better = "better" in sys.argv
group = cluster.init()
mine = np.random.default_rng(group.rank).normal(size=(40_000, 64)).astype(np.float32)
everybody = np.empty((group.size * 40_000, 64), np.float32)
scale = mo.compile(lambda m: mo.tanh(m) * 2)
for _ in range(40):
    if better:
        mean = mine.sum(axis=0)
        group.all_reduce(mean, "sum")
        mean /= len(everybody)
    else:
        group.all_gather(mine, everybody)
        mean = everybody.mean(axis=0)
    scale(mean)
print(mean[:2])
