"""The launcher: requests to end, ranks that fail, and the status it ends with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="ranks are MPI processes: pip install 'morpho-tensor[cluster]'")

from morpho.base.errors import GroupError
from morpho.cluster.launch import launcher, told
from morpho.cluster.launch.launcher import Job
from morpho.cluster.launch.mpiexec import Hosts
from morpho.cluster.launch.told import BEGUN, JOINED, JOINING, Rank

HERE = Path(__file__).parent


def launched(script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, say: Callable[[str], Any] = print,
             **more: Any) -> int:
    """The status of a launch whose mpiexec is a shell's script, which begins when it is waited for."""
    mark = tmp_path / "waited"

    class Process(subprocess.Popen[Any]):
        def wait(self, timeout: float | None = None) -> int:
            mark.touch()
            return super().wait(timeout)

    def start(count: int, program: list[str], *arguments: Any, **options: Any) -> Process:
        folder = program[program.index("--told") + 1]
        return Process(["sh", "-c", f"while [ ! -e {mark} ]; do sleep 0.02; done; {script}", "sh", folder],
                       start_new_session=True)

    monkeypatch.setattr(launcher.mpiexec, "start", start)
    return launcher.launch(Job((str(HERE / "failing.py"),), 2, **more), say)


def test_a_second_request_ends_ranks_that_do_not_hear_the_first(monkeypatch: pytest.MonkeyPatch,
                                                               tmp_path: Path) -> None:
    again = "trap 'kill -INT $PPID' USR1; kill -INT $PPID; while :; do sleep 0.02; done"
    assert launched(again, monkeypatch, tmp_path) == -15


def test_a_request_to_terminate_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(launcher, "GRACE_S", 0.05)
    assert launched("trap '' USR1; kill -TERM $PPID; while :; do sleep 0.02; done", monkeypatch, tmp_path) == -15


def test_an_mpiexec_that_is_killed_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    assert launched("kill -9 $$", monkeypatch, tmp_path, said.append) == -9
    assert said == ["mpiexec was ended by signal 9 (SIGKILL), and its ranks with it"]


def test_ranks_that_were_dropped_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ranks 0 and 2 of three went on without rank 1, on a host whose line is down, and have ended well."""
    monkeypatch.setattr(launcher, "LEFT_S", 0.05)
    said: list[str] = []
    script = (f'echo {JOINED} 0 0 0 0 2 > "$1/1000001"; echo {JOINED} 0 0 2 0 2 > "$1/1000002"; '
              f'echo {JOINED} 0 - 1 > "$1/1000003"; while :; do sleep 0.02; done')
    assert launched(script, monkeypatch, tmp_path, said.append) == 0
    assert said == ["the ranks that went on have ended well; those that they went on without have not, and are ended"]


def test_an_mpiexec_that_waits_for_a_host_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch,
                                                                        tmp_path: Path) -> None:
    monkeypatch.setattr(launcher, "LEFT_S", 0.05)
    monkeypatch.setattr(launcher, "is_reachable", lambda host, agent: host != "b")
    said: list[str] = []
    script = f'echo {JOINED} 0 1 0 > "$1/1000001"; while :; do sleep 0.02; done'
    assert launched(script, monkeypatch, tmp_path, said.append, hosts=Hosts((("a", 1), ("b", 1)))) == -15
    assert said == ["all ranks that are heard have ended, and mpiexec waits for one of a host that does not answer"]


def test_a_rank_that_is_killed_before_it_says_anything_is_not_waited_for(monkeypatch: pytest.MonkeyPatch,
                                                                        tmp_path: Path) -> None:
    """One of two ranks, of which the other has come to MPI's start."""
    script = f'sleep 60 & echo {JOINING} 0 > "$1/$!"; trap "kill $!; exit 7" TERM; wait'
    assert launched(script, monkeypatch, tmp_path) == 7


def test_ranks_that_saved_are_not_started_anew_when_the_user_ends_them(monkeypatch: pytest.MonkeyPatch,
                                                                      tmp_path: Path) -> None:
    script = f"trap 'exit {told.AGAIN}' USR1; kill -INT $PPID; while :; do sleep 0.02; done"
    assert launched(script, monkeypatch, tmp_path, narrows=True) == 0


@pytest.mark.parametrize(("when", "status"), [("early", 3), ("late", 4)])
def test_a_rank_that_fails_leaves_nobody_waiting(when: str, status: int) -> None:
    assert launcher.launch(Job((str(HERE / "failing.py"), when), 3, threads=1)) in (status, 1)  # 1: of a survivor


def restarted(answering: list[set[str]], monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[tuple[int, str]]:
    """Ranks and hosts of each start of a job of 2 + 2 ranks that fails, and which hosts answer at each restart."""
    started: list[tuple[int, str]] = []
    hosts = Hosts((("a", 2), ("b", 2)))

    def start(count: int, program: Any, where: Hosts, **options: Any) -> subprocess.Popen[Any]:
        started.append((count, " ".join(host for host, _ in where.slots)))
        return subprocess.Popen(["false"])

    monkeypatch.setattr(launcher.mpiexec, "start", start)
    monkeypatch.setattr(launcher, "is_reachable",
                        lambda host, agent: not started or host in answering[len(started) - 1])
    job = Job((str(HERE / "failing.py"),), 4, hosts, max_restarts=len(answering), **more)
    assert launcher.launch(job) == 1
    return started


def test_a_restart_leaves_out_hosts_that_do_not_answer_and_takes_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = restarted([{"a"}, {"a", "b"}, {"b"}], monkeypatch, least=2, narrows=True)
    assert found == [(4, "a b"), (2, "a"), (4, "a b"), (2, "b")]


def test_a_number_that_is_not_elastic_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert restarted([{"a"}], monkeypatch) == [(4, "a b")] * 2


def test_fewer_than_the_least_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GroupError, match="b cannot be reached: 2 ranks are left, and 3 are the least"):
        restarted([{"a"}], monkeypatch, least=3, narrows=True)


@pytest.mark.parametrize(("code", "ranks", "status"), [
    (0, [], 0),  # ranks of other hosts tell nothing
    (0, [Rank(-1, 0, JOINED, None)] * 2, told.KILLED),  # all were killed, which mpiexec calls well
    (0, [Rank(-1, 0, JOINED, None), Rank(-1, 0, JOINED, 0)], 0),  # one was, and the other went on
    (0, [Rank(-1, 0, JOINED, 3), Rank(-1, 0, JOINED, None)], 3),
    (2, [Rank(-1, 0, JOINED, 0)] * 2, 2),
])
def test_the_status_is_that_of_the_ranks(code: int, ranks: list[Rank], status: int) -> None:
    assert told.verdict(code, ranks, 2) == status


def test_who_waits_in_the_start_for_one_that_is_gone() -> None:
    waiting = Rank(-1, 1, JOINING, None)
    assert told.is_stuck([waiting, Rank(-1, 1, BEGUN, None)]) and told.is_stuck([waiting, Rank(-1, 0, BEGUN, 1)])
    assert not told.is_stuck([Rank(-1, 0, JOINING, None)] * 2)
    assert not told.is_stuck([Rank(-1, 0, JOINED, None), Rank(-1, 1, JOINED, 1), Rank(-1, 1, BEGUN, 0)])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a process that its parent died")
def test_who_is_killed_takes_its_ranks_along() -> None:
    program = ("import os, subprocess\nfrom morpho.cluster.launch.launcher import _dies_with_us\n"
               "subprocess.Popen(['sleep', '30'], preexec_fn=_dies_with_us())\nos.kill(os.getpid(), 9)\n")
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=20, check=False)  # of both
    assert found.returncode == -9
