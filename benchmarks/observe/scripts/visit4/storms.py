"""expects: transfers
remedy: the map of the sea as a tensor once, outside of the loop over storms.

Storms over a sea whose map is brought along for each of them.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
depth = np.random.default_rng(0).uniform(10, 4000, (2400, 2400)).astype(np.float32)
once = mo.asarray(depth, copy=True)
surge = mo.compile(lambda sea, row, wind: (wind * wind / mo.sqrt(sea[row])).max())
highest = 0.0
for storm in range(150):
    sea = once if better else mo.asarray(depth, copy=True)
    highest = max(highest, float(surge(sea, mo.asarray(storm), mo.asarray(10.0 + 0.1 * storm))))
print(highest)
