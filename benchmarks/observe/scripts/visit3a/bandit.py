"""expects: python
remedy: the whole loop as one compiled `mo.fori_loop`.

An epsilon-greedy bandit, a Python loop over small tensors.
"""
import sys

import morpho as mo

better = "better" in sys.argv
TURNS = 4000
means = mo.linspace(0.0, 1.0, 16).realise()


def turn(i, state):
    values, counts = state
    arm = mo.argmax(values + 1.0 / (counts + 1.0))
    one = (mo.arange(16) == arm).astype("float32")
    reward = (means * one).sum() + 0.1 * mo.sin(mo.asarray(i).astype("float32"))
    counts = counts + one
    return values + one * (reward - values) / mo.maximum(counts, 1.0), counts


state = (mo.zeros(16).realise(), mo.zeros(16).realise())
if better:
    state = mo.compile(lambda state: mo.fori_loop(0, TURNS, turn, state))(state)
else:
    for i in range(TURNS):
        values, counts = turn(float(i), state)
        state = (values.realise(), counts.realise())
print(state[1].tolist())
