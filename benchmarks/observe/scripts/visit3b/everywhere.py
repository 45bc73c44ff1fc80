"""expects: network
ranks: 2
remedy: one sum of all losses after the epoch.

The mean loss over all ranks after every sample, for a progress bar.
"""
import sys

import numpy as np

import morpho as mo
from morpho import cluster

better = "better" in sys.argv
group = cluster.init()
loss = mo.compile(lambda x: mo.tanh(x).sum())
x = mo.ones(200)
total = np.zeros(1, np.float32)
for _ in range(20_000):
    if not better:
        group.all_reduce(total, "mean")
        group.barrier()
total[0] += float(loss(x))
group.all_reduce(total, "mean")
print(total)
