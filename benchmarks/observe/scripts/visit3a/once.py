"""expects: cold
remedy: NumPy's own functions: nothing is compiled for five numbers.

A command that computes one small answer, and ends.
"""
import sys

import numpy as np

import morpho as mo

better = "better" in sys.argv
numbers = np.array([3.0, 1.0, 4.0, 1.0, 5.0], np.float32)
if better:
    e = np.exp(numbers - numbers.max())
    print(e / e.sum(), np.tanh(numbers @ np.diag(numbers) @ numbers), np.sort(numbers))
else:
    f = mo.compile(lambda x: (mo.softmax(x), mo.tanh(x @ mo.diag(x) @ x), mo.sort(x)))
    print([r.tolist() for r in f(numbers)])
