"""Loading overlapped with computing: an epoch takes hardly longer than the slower of the two stages by itself.

    python -m benchmarks.train.loader

Reading waits (as for a disk), so that it takes no core from the computing; both stages are timed alone first. The
target of every row is total <= 1.1x the slower stage.
"""

from __future__ import annotations

import time

import numpy as np

import morpho as mo

BATCHES = 40
TARGET = 1.1


class Reading(mo.data.Dataset):
    """Rows that take some time to come."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.rows = np.random.default_rng(0).normal(size=(BATCHES * 8, 512)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.rows[number]

    def batch(self, numbers: np.ndarray) -> mo.Tensor:
        time.sleep(self.seconds)
        return mo.asarray(self.rows[numbers])


def timed(data: Reading, compute: bool, workers: int, step: object) -> float:
    """Seconds of an epoch."""
    started = time.perf_counter()
    for batch in mo.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=workers):
        if compute:
            step(batch)  # type: ignore[operator]
    return time.perf_counter() - started


def main() -> None:
    """One row for each relation of the two stages."""
    weights = [mo.asarray(np.full((512, 512), 1e-3, np.float32), copy=True) for _ in range(24)]

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        for weight in weights:
            x = mo.gelu(x @ weight)
        return x

    fast = Reading(0.0)
    timed(fast, True, 0, step)
    alone = min(timed(fast, True, 0, step) for _ in range(3)) / BATCHES
    print(f"computing alone: {1e3 * alone:.2f} ms a batch, {BATCHES} batches\n")
    print("reading / computing   reading   computing     in turn  overlapped   over the slower stage")
    for relation in (0.25, 0.5, 1.0, 2.0):
        data = Reading(relation * alone)
        reading = min(timed(data, False, 0, step) for _ in range(3))
        computing = min(timed(fast, True, 0, step) for _ in range(3))
        in_turn = min(timed(data, True, 0, step) for _ in range(3))
        overlapped = min(timed(data, True, 1, step) for _ in range(3))
        share = overlapped / max(reading, computing)
        verdict = "" if share <= TARGET else f"  above {TARGET}"
        times = f"{reading:8.3f} s {computing:9.3f} s {in_turn:9.3f} s {overlapped:9.3f} s"
        print(f"{relation:19.2f} {times} {share:20.2f}x{verdict}")


if __name__ == "__main__":
    main()
