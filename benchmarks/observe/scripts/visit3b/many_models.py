"""expects: cold
remedy: one function that takes the model's widths from the shapes of its arguments: the same width for all.

A command that tries twelve small networks of different widths on one batch each.
"""
import sys

import morpho as mo

better = "better" in sys.argv
mo.nn.seed(0)
x = mo.random.normal(mo.random.key(0), (64, 20)).realise()
scores = []
for number in range(12):
    width = 32 if better else 16 + 4 * number
    net = mo.nn.Sequential(mo.nn.Linear(20, width), mo.nn.GELU(), mo.nn.LayerNorm(width), mo.nn.Linear(width, 1))
    scores.append(float(mo.compile(net)(x).mean()))
print(max(scores))
