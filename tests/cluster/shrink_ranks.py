"""One rank kills itself; the others learn of it, shrink, and go on."""

import os
import signal

import numpy as np

from morpho import cluster
from morpho.base.errors import PeerLost

group = cluster.init()
x = np.ones(1000, np.float32)
try:
    for step in range(50):
        if group.rank == 1 and step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        x[:] = 1
        group.all_reduce(x, wait=False).wait()
except PeerLost:
    group.revoke()
    group = group.shrink()
    x[:] = 1
    group.all_reduce(x)
    print(f"rank {group.rank} of {group.size}, epoch {group.epoch}, sum {x[0]:.0f}, {group.agree(True)}", flush=True)
