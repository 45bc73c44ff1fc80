"""Data parallel training: the same script alone, `python 28_data_parallel.py`, and on several processes,
`morpho launch -n 4 28_data_parallel.py`. The losses have the same bits, whatever the number of processes, and go on
where one of them is killed.
"""

import numpy as np

import morpho as mo
from morpho import cluster

group = cluster.init()                     # MPI's processes where a launcher started several, otherwise this one alone
mo.nn.seed(0)
model = mo.nn.Sequential(mo.nn.Linear(8, 32), mo.nn.GELU(), mo.nn.Linear(32, 1))
rule = mo.optim.AdamW(model.parameters(), lr=0.02)
trainer = cluster.Trainer(model, rule, lambda x, y: mo.mean(mo.square(model(x) - y)), group, clip=1.0)

for step in range(30):
    rng = np.random.default_rng(step)      # every rank draws the same global batch, and takes its rows of it
    x = rng.normal(size=(64, 8)).astype(np.float32)
    loss = trainer.step(x, np.sin(x).sum(1, keepdims=True))
    if trainer.group.rank == 0 and step % 10 == 9:
        print(f"step {step + 1}: loss {loss:.4f} on {trainer.group.size} rank(s)")
trainer.finish()
