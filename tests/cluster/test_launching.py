"""The command line of mpiexec, and what is said where it cannot be made."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from morpho.base.errors import ArgumentError, GroupError
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.launch import mpiexec, secret
from morpho.cluster.launch.launcher import Job
from morpho.runtime.groups.group import Group


def test_the_command_line_survives_a_dead_rank() -> None:
    pytest.importorskip("mpi4py", reason="mpiexec comes with the extra `cluster`")
    words = mpiexec.command(3, ["python", "x.py"], heartbeat_s=0.9)
    assert words[-2:] == ["python", "x.py"] and words[1:3] == ["-n", "3"]
    line = " ".join(words)
    for part in ("--with-ft ulfm", "--mca pml ob1", "--mca coll ^han,cuda", "--bind-to none",
                 "--mca mpi_yield_when_idle 1", "--mca mpi_ft_detector_timeout 0.900"):
        assert part in line, part


def test_hosts() -> None:
    pytest.importorskip("mpi4py", reason="mpiexec comes with the extra `cluster`")
    hosts = mpiexec.Hosts((("a", 2), ("b", 1)), agent="ssh -q", interfaces=("eth1",))
    line = " ".join(mpiexec.command(3, ["x"], hosts, export=["A"]))
    for part in ("--host a:2,b:1", "-x A", "plm_ssh_agent ssh -q", "btl_tcp_if_include eth1", "prte_if_include eth1"):
        assert part in line, part
    with pytest.raises(ArgumentError, match="3 slots, and 4 processes"):
        mpiexec.command(4, ["x"], hosts)
    with pytest.raises(ArgumentError, match="0 processes"):
        mpiexec.command(0, ["x"])


def test_without_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GroupError, match=r"MPI is not installed .*cluster"):
        mpiexec.command(2, ["x"])


def test_another_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpiexec comes with the extra `cluster`")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    other = tmp_path / "mpiexec"
    for said in ("HYDRA build details:", "mpiexec (OpenRTE) 4.1.6"):
        other.write_text(f"#!/bin/sh\necho '{said}'\n")
        other.chmod(0o755)
        mpiexec._refuse_others.cache_clear()
        with pytest.raises(GroupError, match="not Open MPI 5 or later"):
            mpiexec.command(2, ["x"])
    other.write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n")
    mpiexec._refuse_others.cache_clear()
    assert mpiexec.command(2, ["x"])[0] == str(other)


def test_ranks_show_that_they_know_the_secret(tmp_path: Path) -> None:
    for name, text in (("one", "letters"), ("same", " letters\n"), ("other", "others"), ("empty", "\n")):
        (tmp_path / name).write_text(text)

    def said(*names: str, newest: int = -1) -> list[str]:
        def rank(group: Group) -> str:
            try:
                secret.check_ranks(group, tmp_path / names[group.rank], "this run", f"1.{group.rank == newest:d}")
            except GroupError as error:
                return str(error)
            return ""

        return run_threads(len(names), rank)

    assert said("one", "same", "one") == ["", "", ""]
    found = said("one", "other", "one")
    assert all("rank 1 does not know the shared secret" in found[rank] for rank in (0, 2)) and "rank 0" in found[1]
    found = said("one", "empty")
    assert "rank 1 does not know" in found[0] and "is not there, or empty, on the host of rank 1" in found[1]
    assert said("one", "one", newest=1)[0].startswith("[launch] rank 1 has Morpho 1.1 and rank 0 1.0: install the same")
    words = Job(("x.py",), 1, mpiexec.Hosts((("a", 1),), secret="/there")).words("told")
    assert words[-5:-2] == ["told", "--secret", "/there"] and words[-1] == "x.py"


def test_the_environment_has_no_other_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    found = mpiexec.environment(threads=1, extra={"A": "b"})
    assert "OMPI_COMM_WORLD_SIZE" not in found and found["MORPHO_THREADS"] == "1" and found["A"] == "b"
