"""Groups: the same checks on one rank, on threads and on processes over MPI; a rank that dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import group_checks
import numpy as np
import pytest
from starting import run_ranks

from morpho import cluster
from morpho.base.errors import DeviceError, GroupError, PeerLost
from morpho.cluster.groups.hierarchical import HierarchicalGroup
from morpho.cluster.groups.one import OneGroup
from morpho.cluster.groups.threads import run_threads
from morpho.runtime.groups.group import Group


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_threads(size: int) -> None:
    assert run_threads(size, group_checks.check_all) == [True] * size


def test_one() -> None:
    assert group_checks.check_all(OneGroup())


def test_hosts_first() -> None:
    def ranks(group: Group) -> bool:
        group.hosts = ("a", "b", "a", "b", "a")
        return group_checks.check_all(HierarchicalGroup(group))

    assert run_threads(5, ranks) == [True] * 5


def test_hosts_first_waits_for_nobody_unless_it_is_asked_to() -> None:
    """One rank starts, and says so, before the other one comes."""
    begun = threading.Event()

    def ranks(group: Group) -> list[float]:
        group.hosts = ("a", "a")
        made, x = HierarchicalGroup(group), np.ones(3)
        assert group.rank == 0 or begun.wait(30)
        work = made.all_reduce(x, wait=False)
        begun.set()
        work.wait()
        return x.tolist()

    assert run_threads(2, ranks) == [[2.0] * 3] * 2


def test_processes() -> None:
    assert run_ranks(3, "group_checks.py").count("all checks mpi 3") == 3


def test_a_killed_process() -> None:
    """MPI with fault tolerance: two survivors of three."""
    printed = run_ranks(3, "shrink_ranks.py", code=None)
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2, epoch 1, sum 2, True", "rank 1 of 2, epoch 1, sum 2, True"], printed


def test_what_hangs_inside_mpi_is_bounded() -> None:
    """In a process of its own: it ends itself, with a sentence."""
    program = ("import time; from morpho.cluster.groups.limit import limited\n"
               "with limited(60, 'this'): pass\nwith limited(0.05, 'the agreement'): time.sleep(60)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL  # a death that others survive: a status other than 0 ends them all
    assert done.stderr.startswith("[group] the agreement took longer than 0.05 s: this process ends")


def test_threads_shrink() -> None:
    def ranks(group: Group) -> tuple[int, int]:
        if group.rank == 1:
            group.die()
            return 0, 0
        with pytest.raises(PeerLost):
            group.barrier()
        group.revoke()
        smaller = group.shrink()
        x = np.ones(1)
        smaller.all_reduce(x)
        return smaller.rank, int(x[0])

    assert run_threads(3, ranks) == [(0, 2), (0, 0), (1, 2)]


def test_ranks_that_call_different_collectives_are_told() -> None:
    def ranks(group: Group) -> None:
        if group.rank:
            group.barrier()
        else:
            group.all_reduce(np.ones(3))

    with pytest.raises(GroupError, match=r"rank 1 calls .'barrier'"):
        run_threads(2, ranks)


def test_kinds_of_groups() -> None:
    assert cluster.init().size == 1
    with pytest.raises((GroupError, DeviceError), match=r"libnccl is not installed.*morpho\[cuda\]|there is no GPU"):
        cluster.init("nccl")
    with pytest.raises(ValueError, match="'gloo' are unknown"):
        cluster.init("gloo")
