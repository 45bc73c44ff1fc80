"""State that lives between calls: a running mean and variance, updated in place by a compiled function.

    python examples/04_state.py

A `mo.State` is a slot with a version. Inside a compiled function its value is an input, and assigning to it is an
output that takes the same memory where nothing else shares it.
"""

import numpy as np

import morpho as mo

count = mo.State(mo.zeros((), dtype="float64"))
mean = mo.State(mo.zeros(4, dtype="float64"))
squares = mo.State(mo.zeros(4, dtype="float64"))  # the sum of squared distances from the mean


@mo.compile
def observe(sample):
    """Welford's update for one sample; returns the variance so far."""
    count.value = count.value + 1
    distance = sample - mean.value
    mean.value = mean.value + distance / count.value
    squares.value = squares.value + distance * (sample - mean.value)
    return squares.value / mo.maximum(count.value - 1, 1)


samples = np.random.default_rng(2).normal([1, 2, 3, 4], [1, 0.5, 2, 0.1], size=(1000, 4))
for sample in samples:
    variance = observe(mo.asarray(sample))

print("mean    ", mean.value)
print("variance", variance)
print("version ", mean.version, "after", observe.stats["calls"], "calls")
assert np.allclose(mean.value.numpy(), samples.mean(axis=0))
assert np.allclose(variance.numpy(), samples.var(axis=0, ddof=1))
