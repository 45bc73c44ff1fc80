"""expects: recompiles
remedy: `@mo.compile` around the step

Fits two exponentials to a fluorescence decay by gradient descent with momentum, as typed in a notebook.
"""

import numpy as np

import morpho as mo

STEPS, RATE, MOMENTUM = 40, 0.02, 0.9

rng = np.random.default_rng(4)
t = np.linspace(0.0, 10.0, 160, dtype=np.float32)
counts = 3.0 * np.exp(-t / 0.7) + 1.2 * np.exp(-t / 3.5) + rng.normal(0, 0.03, t.size)
t, measured = mo.asarray(t), mo.asarray(counts.astype(np.float32))


def curve(amplitudes, rates):
    return (amplitudes[:, None] * mo.exp(-mo.abs(rates)[:, None] * t[None, :])).sum(axis=0)


def loss(amplitudes, rates):
    return mo.mean((curve(amplitudes, rates) - measured) ** 2)


slope = mo.grad(loss, argnums=(0, 1))
amplitudes, rates = mo.asarray([2.0, 2.0]), mo.asarray([2.0, 0.2])
push_a, push_r = mo.zeros(2), mo.zeros(2)
history = []
for step in range(STEPS):
    of_amplitudes, of_rates = slope(amplitudes, rates)
    push_a = MOMENTUM * push_a - RATE * of_amplitudes
    push_r = MOMENTUM * push_r - RATE * of_rates
    amplitudes, rates = amplitudes + push_a, rates + push_r
    error = loss(amplitudes, rates).item()
    history.append(error)
    if error < 1e-6 or not np.isfinite(error):
        break
    if step % 20 == 19:
        print(f"step {step + 1}: loss {error:.6f}")

print("amplitudes", amplitudes.numpy().round(3), "lifetimes", (1 / mo.abs(rates)).numpy().round(3))
print(f"{len(history)} steps, best loss {min(history):.6f}")
