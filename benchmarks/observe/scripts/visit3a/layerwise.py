"""expects: network
ranks: 2
remedy: one reduction of all of them in one buffer.

Gradients that are averaged by a reduction for every row of every weight.
"""
import sys

import numpy as np

import morpho as mo
from morpho import cluster

better = "better" in sys.argv
group = cluster.init()
gradients = np.ones((4000, 64), np.float32)
step = mo.compile(lambda x: mo.tanh(x @ x.T).sum())
x = mo.ones((64, 64))
for _ in range(10):
    float(step(x))
    if better:
        group.all_reduce(gradients, "mean")
    else:
        for row in gradients:
            group.all_reduce(row, "mean")
print(gradients.sum())
