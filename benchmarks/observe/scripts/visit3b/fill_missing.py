"""expects: memory
remedy: all columns' steps in one compiled function.

Cleaning a table column by column with eager lines that make a new column each.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rng = np.random.default_rng(0)
columns = [mo.asarray(rng.normal(size=3_000_000).astype(np.float32), copy=True) for _ in range(4)]


def clean(x, look=lambda t: t):
    x = look(mo.where(x < -2.5, 0.0, x))
    x = look(mo.minimum(x, 2.5))
    x = look(x * 0.1)
    x = look(x + 3.0)
    x = look(mo.maximum(x, 0.0))
    return look(mo.abs(x - 1.0))


together = mo.compile(lambda columns: [clean(x) for x in columns])
for _ in range(14):
    out = together(columns) if better else [clean(x, lambda t: t.realise()) for x in columns]
print(out[0][:3].tolist())
