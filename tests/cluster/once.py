"""A script whose first start fails on rank 0: `python once.py FILE`."""

import sys
from pathlib import Path

from morpho import cluster

group = cluster.init()
mark = Path(sys.argv[1])
first = not mark.exists()
group.barrier()
if group.rank == 0:
    mark.write_text(mark.read_text() + "again" if mark.exists() else "once")
    if first:
        raise RuntimeError("the first start fails")
group.barrier()
