"""expects: network
ranks: 2
remedy: the counts of all districts in one reduction.

An election counted on two machines, with a reduction for each district.
"""
import sys

import numpy as np

import morpho as mo
from morpho import cluster

better = "better" in sys.argv
group = cluster.init()
rng = np.random.default_rng(group.rank)
districts = rng.integers(0, 500, (6000, 8)).astype(np.float32)
shares = mo.compile(lambda votes: votes / votes.sum(axis=-1, keepdims=True))
for _ in range(8):
    counted = districts.copy()
    if better:
        group.all_reduce(counted, "sum")
    else:
        for row in counted:
            group.all_reduce(row, "sum")
    result = shares(counted)
print(float(result.max()))
