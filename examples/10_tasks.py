"""Tasks: a small pipeline with dependencies, then uneven tiles of a picture on all cores.

    python examples/10_tasks.py

Compiled calls give up the interpreter lock, so tasks that make them run side by side; while they fill the cores, the
engine uses one thread for each. The reduce follows a tree that depends on the number of tiles alone: the same bits for
any number of threads.
"""

import numpy as np

import morpho as mo

# A pipeline: "fit" begins when both parts are there, "failed" shows how an exception arrives.
futures = mo.tasks.graph({
    "inputs": (lambda: mo.random.normal(mo.random.key(0), (2000, 3)).numpy(),),
    "targets": (lambda inputs: inputs @ np.array([1.0, -2.0, 3.0], np.float32), "inputs"),
    "fit": (lambda inputs, targets: np.linalg.lstsq(inputs, targets, rcond=None)[0], "inputs", "targets"),
    "failed": (lambda fit: fit[7], "fit"),
})
print("fit:", futures["fit"].result().round(3))
print("failed:", repr(futures["failed"].exception()))


# Tiles of very different cost: the next one goes to whichever worker is free.
@mo.compile(dynamic={"x": {0: mo.Dim("n", 1, 1 << 20)}})
def energy(x):
    return (mo.gelu(x) * mo.tanh(x)).sum()


def tile(length):
    return float(energy(mo.linspace(-3.0, 3.0, length)).item())


lengths = [1 << (8 + n * 7 % 11) for n in range(60)]
totals = []
for threads in (1, 2, 4):
    with mo.tasks.Scheduler(threads) as scheduler:
        totals.append(mo.tasks.reduce(lambda a, b: a + b, lengths, map=tile, scheduler=scheduler))
        stats = scheduler.stats()
        print(f"{threads} threads: {totals[-1]!r}, {stats['executed']} tasks, {stats['stolen']} stolen, "
              f"imbalance {stats['imbalance']:.0%}")
assert len(set(totals)) == 1 and np.allclose(futures["fit"].result(), [1, -2, 3], atol=1e-4)
