"""First steps: lazy tensors, one kernel for a whole expression, and values when you ask for them.

    python examples/01_first_steps.py
"""

import numpy as np

import morpho as mo

# A NumPy array becomes a tensor with the value it has now; copy=False would borrow its memory instead.
array = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
x = mo.asarray(array)

# Nothing is computed here; shapes and dtypes are checked, and a mistake is reported on its own line.
y = mo.gelu(x * 2 + 1).sum(axis=-1)
print("a promise:", y.shape, y.dtype, "computed yet:", y.is_realised)
try:
    x @ x
except ValueError as error:
    print("a mistake:", error)

# Asking for a value compiles the expression to one native kernel and runs it. `numpy()` is a read-only view.
print("the values:", y.numpy())

# Tensors are values: assigning to a slice of one leaves every other tensor alone.
row = x[1]
row[0] = 100.0
print("row:", row.tolist(), "x[1] still:", x[1].tolist())

# The same expression in NumPy, with the tanh formula because NumPy has no erf.
inner = array * 2 + 1
expected = (0.5 * inner * (1 + np.tanh(0.79788456 * (inner + 0.044715 * inner**3)))).sum(axis=-1)
assert np.allclose(y.numpy(), expected, atol=5e-3)
