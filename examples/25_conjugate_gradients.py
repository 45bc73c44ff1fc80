"""Poisson's equation on a grid by conjugate gradients: a while loop that stops when the residual is small.

    python examples/25_conjugate_gradients.py

Nothing is stored but four fields: the operator is a stencil, and the loop, its test included, is native code.
"""

import time

import numpy as np

import morpho as mo

N, TOLERANCE = 128, 1e-10


def laplacian(u):
    """Four times each value less its neighbours; zero outside."""
    found = 4 * u
    found[1:] -= u[:-1]
    found[:-1] -= u[1:]
    found[:, 1:] -= u[:, :-1]
    found[:, :-1] -= u[:, 1:]
    return found


@mo.compile
def solve(b):
    goal = TOLERANCE**2 * mo.sum(b * b)

    def step(state):
        count, x, r, p, rr = state
        q = laplacian(p)
        alpha = rr / mo.sum(p * q)
        x, r = x + alpha * p, r - alpha * q
        new = mo.sum(r * r)
        return count + 1, x, r, r + new / rr * p, new

    count, x, _, _, _ = mo.while_loop(lambda state: state[4] > goal, step, (0, mo.zeros_like(b), b, b, mo.sum(b * b)))
    return x, count


b = mo.asarray(np.random.default_rng(2).standard_normal((N, N)))
solve(b)
start = time.perf_counter()
x, count = solve(b)
residual = float(mo.sqrt(mo.sum((b - laplacian(x)) ** 2)) / mo.sqrt(mo.sum(b * b)))
seconds = time.perf_counter() - start
print(f"{N * N} unknowns, {count.item()} steps in {seconds * 1e3:.1f} ms, relative residual {residual:.1e}")
assert residual < 2 * TOLERANCE and solve.stats["host_steps"] == 0
