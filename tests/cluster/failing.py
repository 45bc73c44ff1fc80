"""A script of which rank 1 fails: `python failing.py early|late`, before the ranks have found each other or after."""

import sys

import numpy as np

from morpho import cluster
from morpho.base import settings

if sys.argv[1] == "early" and settings.world_rank() == 1:
    sys.exit(3)
group = cluster.init()
if group.rank == 1:
    sys.exit(4)
group.all_reduce(np.ones(3, np.float32))
