"""expects: recompiles
remedy: sentences padded to multiples of 64.

A tagger that is called with sentences as long as they are.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
mo.nn.seed(0)
table = mo.random.normal(mo.random.key(0), (500, 48)).realise()
net = mo.nn.Sequential(mo.nn.LayerNorm(48), mo.nn.Linear(48, 96), mo.nn.GELU(), mo.nn.Linear(96, 9))
tag = mo.compile(lambda words: mo.argmax(net(table[words]), axis=-1))
rng = np.random.default_rng(0)
total = 0
for _ in range(300):
    length = int(rng.integers(5, 250))
    words = rng.integers(0, 500, length)
    if better:
        tags = tag(np.pad(words, (0, -length % 64))).numpy()[:length]
    else:
        tags = tag(words).numpy()
    total += int(tags.sum())
print(total)
