"""L-BFGS: the minimum of Rosenbrock's function of 100 variables; gradient, memory and line search in a native loop.

    python examples/27_lbfgs.py

The last steps and changes of the gradient are rows of two matrices that the loop carries; `mo.grad` works inside it.
"""

import time

import numpy as np

import morpho as mo

SIZE, MEMORY = 100, 8


def rosenbrock(x):
    return mo.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


gradient = mo.grad(rosenbrock)


def direction(g, steps, changes):
    """Down the slope, bent by the curvature of the last steps; row 0 is the oldest, rows of zeros count for nothing."""
    product = mo.sum(steps * changes, axis=1)
    rho = mo.where(product > 0, 1 / mo.where(product > 0, product, 1.0), 0.0)
    kept = []
    for i in reversed(range(MEMORY)):
        alpha = rho[i] * mo.sum(steps[i] * g)
        g = g - alpha * changes[i]
        kept.append(alpha)
    square = mo.sum(changes[-1] ** 2)
    g = g * mo.where(square > 0, product[-1] / mo.where(square > 0, square, 1.0), 1.0)
    for i, alpha in zip(range(MEMORY), reversed(kept), strict=True):
        g = g + steps[i] * (alpha - rho[i] * mo.sum(changes[i] * g))
    return -g


@mo.compile
def minimise(x):
    def step(state):
        count, x, g, steps, changes = state
        d = direction(g, steps, changes)
        value, slope = rosenbrock(x), mo.sum(g * d)
        length = mo.while_loop(lambda t: (rosenbrock(x + t * d) > value + 1e-4 * t * slope) & (t > 1e-12),
                               lambda t: 0.5 * t, mo.asarray(1.0, dtype=mo.float64))
        new = x + length * d
        change = gradient(new)
        steps = mo.concat([steps[1:], (new - x)[None]])
        changes = mo.concat([changes[1:], (change - g)[None]])
        return count + 1, new, change, steps, changes

    nothing = mo.zeros((MEMORY, SIZE), dtype=mo.float64)
    count, x, g, _, _ = mo.while_loop(lambda state: (mo.sum(state[2] ** 2) > 1e-16) & (state[0] < 2000), step,
                                      (0, x, gradient(x), nothing, nothing))
    return x, count, mo.sqrt(mo.sum(g**2))


begin = mo.asarray(np.full(SIZE, -0.5))
minimise(begin)
start = time.perf_counter()
x, count, size = minimise(begin)
error = np.max(np.abs(x.numpy() - 1))
seconds = time.perf_counter() - start
print(f"{count.item()} steps in {seconds * 1e3:.1f} ms, gradient {size.item():.1e}, error {error:.1e}")
assert size.item() < 1e-7
