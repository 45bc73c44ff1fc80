"""Ranks that another launcher starts: a sum, and with `die` the death of the last of them. `host NAME` first gives this
process a machine's name of its own."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

words = sys.argv[1:]
if words and words[0] == "host":
    if ctypes.CDLL(None, use_errno=True).unshare(0x04000000):  # CLONE_NEWUTS
        raise SystemExit("no names of machines here")
    socket.sethostname(words[1])
    words = words[2:]

import numpy as np  # noqa: E402 - the name comes first

from morpho import cluster  # noqa: E402
from morpho.base.errors import PeerLost  # noqa: E402

group = cluster.init()
x = np.full(3, group.rank + 1, np.float32)
group.all_reduce(x)
print(f"rank {group.rank} of {group.size} has {x[0]:g} on {','.join(group.hosts)}\n", end="", flush=True)
if words == ["die"]:
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.all_reduce(x)
    except PeerLost:
        group.revoke()
        rest = group.shrink()
        y = np.ones(1, np.float32)
        rest.all_reduce(y)
        print(f"left {rest.rank} of {rest.size} has {y[0]:g}\n", end="", flush=True)
