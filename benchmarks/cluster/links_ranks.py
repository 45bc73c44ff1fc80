"""A rank of `links.py`: seconds that activations take over a link of 1 Gbit/s, sent as f32 and as f16, the best of
some rounds in turn."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.cluster.processes import report
from morpho.cluster.transport.channel import Channels
from morpho.cluster.transport.frame import Header, Kind
from morpho.cluster.transport.shim import Shim

GIGABIT_BYTES_PER_S = 125e6
TOKENS, WIDTH = 128, 512  # of a message: a piece of a prompt
ROUNDS = 7


def main(messages: int) -> None:
    """Rank 0 sends, rank 1 takes the time."""
    x = np.random.default_rng(0).standard_normal((1, TOKENS, WIDTH)).astype(np.float32)
    rounds = [{dtype: transfer_s(MPI.COMM_WORLD.Dup(), x, dtype, messages) for dtype in ("f32", "f16")}
              for _ in range(ROUNDS)]
    report(rank=MPI.COMM_WORLD.Get_rank(), seconds={dtype: min(each[dtype] for each in rounds) for dtype in rounds[0]})


def transfer_s(comm: Any, x: np.ndarray, dtype: str, messages: int) -> float:
    """Seconds from the beginning until the last message is there, on the rank that takes them."""
    rank = comm.Get_rank()
    channels = Channels(MPI, comm, 1)
    sender = channels.open_sender(1, x.nbytes, dtype) if rank == 0 else None
    receiver = channels.open_receiver(0, x.nbytes, Shim(0.0, GIGABIT_BYTES_PER_S)) if rank else None
    comm.Barrier()
    begun, taken = time.perf_counter(), 0
    for number in range(messages if sender is not None else 0):
        sender.send_now(Header(Kind.ACTIVATION, 1, rank, 1, 0, number), x)
    while receiver is not None and taken < messages:
        taken += receiver.poll() is not None
    seconds = time.perf_counter() - begun
    comm.Barrier()
    return seconds


if __name__ == "__main__":
    main(int(sys.argv[1]))
