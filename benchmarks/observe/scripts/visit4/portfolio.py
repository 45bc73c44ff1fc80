"""expects: memory
remedy: one compiled function around the operations, which passes over the prices once.

Values of options, operation by operation, each with its value asked for.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rng = np.random.default_rng(0)
price = mo.asarray(rng.uniform(50, 150, 4_000_000).astype(np.float32), copy=True)
strike = mo.asarray(rng.uniform(50, 150, 4_000_000).astype(np.float32), copy=True)


def plain(price, strike):
    gain = (price - strike).realise()
    gain = (gain * 0.97).realise()
    gain = (gain + 1.5).realise()
    gain = mo.maximum(gain, 0.0).realise()
    gain = (gain * 100.0).realise()
    return (gain - 3.0).realise()


fused = mo.compile(lambda price, strike: mo.maximum((price - strike) * 0.97 + 1.5, 0.0) * 100.0 - 3.0)
for _ in range(40):
    value = (fused if better else plain)(price, strike)
print(value[:3].tolist())
