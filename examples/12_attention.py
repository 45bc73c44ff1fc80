"""Attention against a cache: a prompt at once, in chunks, or token by token gives the same bits.

    python examples/12_attention.py

Eight query heads share two key-value heads. The cache is as long as it may ever become; `offset` says where the
queries stand, and what lies behind them is not read.
"""

import numpy as np

import morpho as mo

generator = np.random.default_rng(2)
length, room, depth = 150, 256, 32
q = generator.standard_normal((8, length, depth), dtype=np.float32)
k, v = (generator.standard_normal((2, length, depth), dtype=np.float32) for _ in range(2))
whole = mo.attention(mo.asarray(q), mo.asarray(k), mo.asarray(v), causal=True).numpy()

step = mo.compile(lambda q, k, v, position: mo.attention(q, k, v, causal=True, offset=position))
keys, values = np.full((2, room, depth), np.nan, np.float32), np.full((2, room, depth), np.nan, np.float32)
for size in (1, 50):  # token by token, then in chunks: compiled once for each
    for first in range(0, length, size):
        last = first + size
        keys[:, first:last], values[:, first:last] = k[:, first:last], v[:, first:last]
        cache = [mo.asarray(a, copy=True) for a in (keys, values)]
        part = step(mo.asarray(q[:, first:last]), *cache, mo.asarray(first)).numpy()
        assert part.tobytes() == whole[:, first:last].tobytes()
print(f"{length} positions: the same bits at once, in chunks and one by one;", step.stats["recompiles"], "recompile")

# A window of 64 keys, and the gradient of what came out with respect to the queries: nothing of size 150 x 150 is kept.
slope = mo.grad(lambda x: mo.attention(x, mo.asarray(k), mo.asarray(v), window=64).sum())(mo.asarray(q))
print("gradient:", slope.shape, slope.dtype)
