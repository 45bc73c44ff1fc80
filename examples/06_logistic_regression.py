"""Logistic regression: the loss, its gradient and the update as one compiled step.

    python examples/06_logistic_regression.py

The gradient is an ordinary program, so it is traced, fused and compiled with everything around it.
"""

import numpy as np

import morpho as mo

weights = mo.State(mo.zeros(3))


def loss(w, x, y):
    """Mean cross-entropy of labels y (0 or 1): softplus(z) - y z."""
    z = (x * w).sum(axis=-1)
    return (mo.softplus(z) - y * z).mean()


@mo.compile
def train(x, y):
    """One step of gradient descent; returns the loss before it."""
    before = loss(weights.value, x, y)
    weights.value = weights.value - 0.5 * mo.grad(loss)(weights.value, x, y)
    return before


generator = np.random.default_rng(4)
points = generator.standard_normal((2000, 3), dtype=np.float32)
points[:, 2] = 1  # the last column is the intercept
truth = np.array([2.0, -1.0, 0.5], np.float32)
labels = (generator.random(2000) < 1 / (1 + np.exp(-points @ truth))).astype(np.float32)
x, y = mo.asarray(points), mo.asarray(labels)

for number in range(300):
    value = train(x, y)
    if number % 100 == 0:
        print(f"step {number:3d}  loss {value.item():.4f}")
print("weights found:", weights.value, " true ones:", truth)
print(f"one step is {train.stats['kernels']} kernels in one native call")
assert value.item() < 0.5
assert np.allclose(weights.value.numpy(), truth, atol=0.3)
