"""A rank of `killed_rank.py`: trains in ordered mode; one rank may kill itself before a step. Reports its losses and
how long after the kill the step was made.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import morpho as mo
from benchmarks.cluster.processes import report
from morpho import cluster


def main(victim: int, when: int, steps: int, mark: Path) -> None:
    world = cluster.init()
    rank = world.rank
    mo.nn.seed(0)
    model = mo.nn.Sequential(mo.nn.Linear(64, 256), mo.nn.GELU(), mo.nn.Linear(256, 64))
    rule = mo.optim.AdamW(model.parameters(), lr=1e-3)
    trainer = cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)), world, clip=1.0)
    losses, ended = [], []
    for step in range(steps):
        x = np.random.default_rng(step).normal(size=(64, 64)).astype(np.float32)
        if (rank, step) == (victim, when):
            mark.write_text(repr(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        losses.append(trainer.step(x, np.roll(x, 1, 1)))
        ended.append(time.time())
    trainer.finish()
    after = ended[when] - float(mark.read_text()) if mark.exists() else 0.0
    report(rank=rank, ranks=trainer.group.size, losses=losses, after_kill=after, recoveries=trainer.recoveries)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))
