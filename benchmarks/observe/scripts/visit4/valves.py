"""expects: imbalance
remedy: the pipes beside each other, (steps, batch), in one scan.

Pressure in six pipes over time, one scan after the other: each runs on one thread.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
flow = np.random.default_rng(0).normal(size=(6, 300_000)).astype(np.float32)


def pressure(p, q):
    p = p + 0.01 * (q - 0.3 * p * mo.abs(p))
    return p, p


run = mo.compile(lambda start, flow: mo.scan(pressure, start, flow)[1])
beside = mo.asarray(np.ascontiguousarray(flow.T), copy=True)
pipes = [mo.asarray(one, copy=True) for one in flow]
for _ in range(20):
    if better:
        out = run(mo.zeros(6), beside)
        last = out[-1, -1]
    else:
        out = [run(mo.asarray(0.0), one) for one in pipes]
        last = out[-1][-1]
print(float(last))
