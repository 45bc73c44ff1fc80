"""10,000 Runge-Kutta steps of Lorenz' system: the loop and its body are one kernel, and the state is in registers.

    python examples/23_runge_kutta.py
"""

import time

import numpy as np

import morpho as mo

STEPS, H = 10_000, 0.002


def lorenz(y):
    return mo.stack([10.0 * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def rk4(i, y):
    k1 = lorenz(y)
    k2 = lorenz(y + H / 2 * k1)
    k3 = lorenz(y + H / 2 * k2)
    k4 = lorenz(y + H * k3)
    return y + H / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@mo.compile
def orbit(y):
    return mo.fori_loop(0, STEPS, rk4, y)


start = mo.asarray(np.ones(3))
begin = time.perf_counter()
end = orbit(start).numpy()
first = time.perf_counter() - begin
begin = time.perf_counter()
orbit(start).numpy()
again = time.perf_counter() - begin
print(f"after {STEPS} steps: {end}")
print(f"first call {first * 1e3:.0f} ms, then {again * 1e3:.2f} ms: {again / STEPS * 1e9:.0f} ns a step")
assert "scan in registers" in orbit.explain() and np.all(np.abs(end) < 60)
