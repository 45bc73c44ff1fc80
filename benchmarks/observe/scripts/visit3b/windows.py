"""expects: transfers
remedy: the recording as a tensor once; windows are slices of it.

Every window of a recording brings the whole recording along.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
recording = np.random.default_rng(0).normal(size=(6_000_000,)).astype(np.float32)
once = mo.asarray(recording, copy=True)
loudness = mo.compile(lambda x, at: mo.sqrt((x[at] ** 2).mean()))
for n in range(150):
    at = np.arange(n * 1000, n * 1000 + 2000)
    level = float(loudness(once if better else mo.asarray(recording, copy=True), at))
print(level)
