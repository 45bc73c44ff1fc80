"""expects: network
ranks: 2
remedy: gather the probes alone

An ocean model on several ranks: each has a part of the sea, and a few probes are written in every step.

    morpho launch -n 2 ocean_probes.py
"""

import numpy as np

import morpho as mo
from morpho import cluster

LAYERS, CELLS, STEPS, PROBES = 12, 500_000, 84, 24


@mo.compile
def relax(temperature, forcing):
    """One small step of a layer towards the forcing at the surface."""
    return temperature + 0.02 * (forcing - temperature)


def main() -> None:
    group = cluster.init()
    rng = np.random.default_rng(group.rank)
    forcing = mo.asarray(rng.random(CELLS, dtype=np.float32))
    sea = np.zeros((LAYERS, CELLS), np.float32)
    whole = np.empty((group.size, LAYERS, CELLS), np.float32)
    probes = np.random.default_rng(99).integers(0, whole.size, PROBES)
    series = np.empty((STEPS, PROBES), np.float32)

    for step in range(STEPS):
        layer = step % LAYERS
        sea[layer] = relax(sea[layer], forcing).numpy()
        group.all_gather(sea, whole)
        series[step] = whole.ravel()[probes]

    if group.rank == 0:
        print(f"{group.size} ranks, {STEPS} steps; probes from {series[-1].min():.3f} to {series[-1].max():.3f}, "
              f"mean change over a round {np.abs(series[-1] - series[-1 - LAYERS]).mean():.2e}")


if __name__ == "__main__":
    main()
