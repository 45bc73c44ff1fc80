"""expects: python
remedy: the chain as one compiled `mo.fori_loop`, with the draws made before.

A Metropolis chain, a draw and a decision at a time.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
STEPS = 1_500
rng = np.random.default_rng(0)
moves, chances = rng.normal(size=STEPS).astype(np.float32), rng.uniform(size=STEPS).astype(np.float32)
energy = mo.compile(lambda x: 0.5 * x * x + 0.3 * mo.cos(3 * x))


def chain(moves, chances):
    def turn(i, x):
        y = x + moves[i]
        return mo.where(chances[i] < mo.exp(energy(x) - energy(y)), y, x)

    return mo.fori_loop(0, STEPS, turn, mo.asarray(0.0))


if better:
    x = float(mo.compile(chain)(moves, chances))
else:
    x = np.float32(0)
    for move, chance in zip(moves, chances):
        y = x + move
        if chance < np.exp(energy(x).item() - energy(y).item()):
            x = y
print(x)
