"""expects: network
ranks: 2
remedy: one sum of the whole histogram

Histograms of detector events over all ranks: every rank has its own events, the counts are added up.

    morpho launch -n 2 event_histograms.py
"""

import numpy as np

from morpho import cluster

RUNS, EVENTS, BINS = 50, 5_000, 400


def events(rank: int, run: int) -> np.ndarray:
    """Energies that this rank recorded in a run."""
    rng = np.random.default_rng((rank, run))
    return rng.random(EVENTS, dtype=np.float32) ** 2


def total_histogram(group, energies: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Counts of all ranks in each bin."""
    mine = np.histogram(energies, edges)[0].astype(np.float64)
    total = np.empty(BINS)
    for number in range(BINS):
        count = mine[number:number + 1].copy()
        group.all_reduce(count, "sum")
        total[number] = count[0]
    return total


def main() -> None:
    group = cluster.init()
    edges = np.linspace(0.0, 1.0, BINS + 1)
    whole = np.zeros(BINS)
    for run in range(RUNS):
        whole += total_histogram(group, events(group.rank, run), edges)
    if group.rank == 0:
        half = np.searchsorted(whole.cumsum(), whole.sum() / 2)
        print(f"{whole.sum():.0f} events on {group.size} ranks, median energy {edges[half]:.3f}")


if __name__ == "__main__":
    main()
