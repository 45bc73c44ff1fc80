"""One compiled function for every batch size: declare the size that changes.

    python examples/03_dynamic_batch.py

Without `dynamic=` each new shape compiles anew (and Morpho says so after a while). With it, the size is an argument of
the native code. A row has the same bits alone, in any batch, and in the function compiled for fixed sizes.
"""

import numpy as np

import morpho as mo

batch = mo.Dim("batch", 1, 512)


def scores(x, weight):
    """Probabilities of ten classes for each row of x."""
    return mo.softmax(mo.layer_norm(x) @ weight)


dynamic = mo.compile(scores, dynamic={"x": {0: batch}})
fixed = mo.compile(scores)

generator = np.random.default_rng(1)
rows = generator.standard_normal((512, 64), dtype=np.float32)
weight = mo.asarray(generator.standard_normal((64, 10), dtype=np.float32))
whole = dynamic(mo.asarray(rows), weight).numpy()
for size in range(1, 512, 7):
    part = dynamic(mo.asarray(rows[:size]), weight).numpy()
    assert part.tobytes() == whole[:size].tobytes()
assert fixed(mo.asarray(rows[:5]), weight).numpy().tobytes() == whole[:5].tobytes()
print(f"{dynamic.stats['calls']} calls of {dynamic.stats['specialisations']} compiled program, "
      f"{dynamic.stats['recompiles']} recompiles; every row has the same bits in every batch")

try:
    dynamic(mo.zeros((513, 64)), weight)
except TypeError as error:
    print(error)
