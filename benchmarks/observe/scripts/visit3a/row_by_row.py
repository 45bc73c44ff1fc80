"""expects: python
remedy: all rows in one call.

A score applied to each row of a table, `DataFrame.apply` by hand.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rows = np.random.default_rng(0).normal(size=(120_000, 12)).astype(np.float32)
weights = mo.linspace(-1.0, 1.0, 12).realise()
score = mo.compile(lambda row: mo.sigmoid((row * weights).sum(axis=-1)))
if better:
    scores = score(rows).numpy()
else:
    scores = np.array([score(row).item() for row in rows])
print(len(scores), scores[:2])
