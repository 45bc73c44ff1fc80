"""expects: recompiles
remedy: a buffer of the final size, and the number of rows in use as a value.

A history that grows by a row at each step, and goes into a compiled function whole.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
STEPS = 120
mo.nn.seed(0)
net = mo.nn.Sequential(mo.nn.Linear(16, 32), mo.nn.Tanh(), mo.nn.Linear(32, 16))


@mo.compile
def react(history, used):
    inside = (mo.arange(history.shape[0]) < used).astype("float32")
    return net((history * inside[:, None]).sum(axis=0) / used)


history = np.zeros((STEPS + 1, 16), np.float32)
history[0] = 1.0
for n in range(1, STEPS + 1):
    history[n] = react(history if better else history[:n], mo.asarray(float(n))).numpy()
print(history[-1, :3])
