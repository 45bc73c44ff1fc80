"""expects: imbalance
remedy: each channel in 64 blocks, summed up by themselves, and the blocks' starts added.

Running sums of three channels on two threads: one has two of them.
"""
import sys

import morpho as mo

better = "better" in sys.argv
sound = mo.random.normal(mo.random.key(0), (3, 4_000_000)).realise()


def plain(x):
    return mo.cumulative_sum(x, axis=1)


def blocks(x):
    parts = mo.cumulative_sum(x.reshape(192, -1), axis=1)
    ends = parts[:, -1].reshape(3, 64)
    starts = mo.cumulative_sum(ends, axis=1) - ends
    return (parts + starts.reshape(192, 1)).reshape(x.shape)


run = mo.compile(blocks if better else plain)
for _ in range(80):
    y = run(sound)
print(y[:, -1].tolist())
