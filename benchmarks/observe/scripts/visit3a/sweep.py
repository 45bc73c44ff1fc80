"""expects: recompiles
remedy: one compiled step, made outside, that takes the rate.

A search over learning rates that compiles its step for each of them.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
rng = np.random.default_rng(0)
x = mo.asarray(rng.normal(size=(200, 20)).astype(np.float32), copy=True)
y = mo.asarray(rng.normal(size=200).astype(np.float32), copy=True)


def loss(w):
    return mo.mean((mo.tanh(x @ w) - y) ** 2)


shared = mo.compile(lambda w, rate: w - rate * mo.grad(loss)(w))
results = {}
for rate in np.linspace(0.01, 1.0, 60):
    rate = float(rate)
    step = shared if better else mo.compile(lambda w, rate=rate: w - rate * mo.grad(loss)(w))
    w = mo.zeros(20)
    for _ in range(40):
        w = step(w, mo.asarray(rate)) if better else step(w)
    results[rate] = float(loss(w))
print(min(results, key=results.get))
