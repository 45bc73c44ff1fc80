"""3. R4: what a hop of 16 KiB costs between two workers, over shared memory and over TCP above the wire.

    morpho bench cluster --only hops
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster.launch.mpiexec import command, environment

KIB, HOPS = 16, 2000


def run(session: Session) -> ThemeResult:
    """Ping-pong of framed messages, less the same of bare MPI messages."""
    result, table = ThemeResult("hops"), Table("A hop of 16 KiB", ["over", "framed", "bare MPI", "added"])
    result.tables.append(table)
    for name, layer, bar in (("shared memory", "self,sm", 30.0), ("TCP", "self,tcp", 150.0)):
        found = ranks(layer, 200 if session.quick else HOPS)
        added = found["framed"] - found["bare"]
        table.rows.append([name, *(f"{value * 1e6:.1f} us" for value in (found["framed"], found["bare"], added))])
        result.targets.append(Target(f"added per hop, {name}", added * 1e6, bar, False, " us"))
    return result


def ranks(layer: str, hops: int) -> dict[str, float]:
    """Two ranks of this module; the first prints medians."""
    words = command(2, [sys.executable, "-m", "benchmarks.cluster.hops", str(hops)])
    words[words.index("btl") + 1] = layer
    said = subprocess.run(words, env=environment(1), capture_output=True, text=True, timeout=120, check=True,
                          cwd=Path(__file__).parents[2]).stdout
    return dict(json.loads(said.splitlines()[-1]))


def main(hops: int) -> None:
    """A rank."""
    from mpi4py import MPI

    from morpho.cluster.transport.channel import Channels
    from morpho.cluster.transport.frame import Header, Kind

    comm = MPI.COMM_WORLD
    rank, other = comm.Get_rank(), 1 - comm.Get_rank()
    x = np.zeros((1, 1, KIB * 256), np.float32)
    channels = Channels(MPI, comm, 1)
    sender, receiver = channels.open_sender(other, x.nbytes, "f32"), channels.open_receiver(other, x.nbytes)

    def framed(number: int) -> None:
        sender.send(Header(Kind.ACTIVATION, 1, rank, 1, 0, number), x)

    def wait() -> None:
        while receiver.poll() is None:
            sender.flush()

    def bare_send(number: int) -> None:
        comm.Send([x, MPI.FLOAT], other, 9)

    def bare_wait() -> None:
        comm.Recv([x, MPI.FLOAT], other, 9)

    found = {}
    for name, send, receive in (("framed", framed, wait), ("bare", bare_send, bare_wait)):
        times = []
        for number in range(hops):
            begun = time.perf_counter()
            if rank == 0:
                send(number)
                receive()
            else:
                receive()
                send(number)
            times.append((time.perf_counter() - begun) / 2)
        found[name] = float(np.median(times[hops // 10:]))
    if rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
