"""Ranks that `torchrun`, `srun`, `pbsdsh` and Kubernetes start: what variables say, and how they meet."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="ranks are MPI processes: pip install 'morpho-tensor[cluster]'")

from typer.testing import CliRunner

from morpho import plan
from morpho.base import settings
from morpho.base.errors import ArgumentError, GroupError
from morpho.cli.main import app
from morpho.cluster.launch import joining
from morpho.cluster.launch.mpiexec import environment

SCRIPT = Path(__file__).parent / "joining_ranks.py"


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def run(size: int, *words: str, hosts: list[str] | None = None, **more: str) -> list[str]:
    """Lines of ranks that are started with torchrun's variables, each by itself."""
    port, ranks = str(free_port()), []
    for rank in range(size):
        own = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": port, "MORPHO_THREADS": "1", **more}
        host = ["host", hosts[rank]] if hosts else []
        ranks.append(subprocess.Popen([sys.executable, str(SCRIPT), *host, *words], env={**environment(), **own},
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        return sorted(line for each in ranks for line in each.communicate(timeout=110)[0].splitlines() if line)
    finally:
        for each in ranks:
            each.kill()


def test_ranks_come_together_and_survive_a_death() -> None:
    lines = [line.split(" on ")[0] for line in run(3, "die") if line.startswith(("rank", "left"))]
    assert lines == ["left 0 of 2 has 2", "left 1 of 2 has 2", *(f"rank {rank} of 3 has 6" for rank in range(3))]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0 or not hasattr(ctypes.CDLL(None), "unshare"),
                    reason="machines' names are root's")
def test_ranks_of_two_machines_that_do_not_lie_side_by_side() -> None:
    """A daemon of mpiexec is started on the second machine by the rank there; no ssh."""
    lines = [line for line in run(3, hosts=["first", "second", "first"]) if line.startswith("rank")]
    assert lines == [f"rank {rank} of 3 has 6 on first,second,first" for rank in range(3)]


def test_torchrun_keeps_the_store() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port",
                           str(free_port()), str(SCRIPT)], env=environment(), capture_output=True, text=True,
                          timeout=110, check=False)
    assert sorted(line.split(" on ")[0] for line in done.stdout.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2 has 3", "rank 1 of 2 has 3"], done.stderr[-2000:]


@pytest.mark.parametrize(("variables", "launcher", "place"), [
    ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}, (1, 4, "torchrun"),
     ("a", 29500, "0")),
    ({"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.job", "MASTER_PORT": "29500"},
     (2, 3, "Kubernetes"), ("job-0.job", 29500, "0")),
    ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2",
      "SLURM_STEP_NODELIST": "n[07-08]", "SLURM_STEP_NUM_NODES": "2"}, (3, 4, "srun"),
     ("n[07-08]", 19185, "17.2")),
    ({"PBS_TASKNUM": "0000000B", "PBS_NODENUM": "1", "PBS_JOBID": "12.head", "PBS_NODEFILE": "FILE"}, (1, 3, "pbsdsh"),
     ("node1", 19019, "12.head")),
    ({"PBS_TASKNUM": "2", "PBS_VNODENUM": "0", "PBS_NP": "2", "PBS_JOBID": "12.head", "PBS_NODEFILE": "FILE",
      "MASTER_PORT": "99"}, (0, 2, "pbsdsh"), ("node1", 99, "12.head")),
])
def test_variables_of_launchers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str],
                                launcher: tuple[int, int, str], place: tuple[str, int, str]) -> None:
    (tmp_path / "nodes").write_text("node1\nnode1\nnode2\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("FILE", str(tmp_path / "nodes")))
    rank, size, _, name = settings.other_launcher()
    meeting = settings.meeting_place(name)
    assert (rank, size, name) == launcher
    assert meeting is not None and (meeting.address, meeting.port, meeting.run) == place


def test_the_script_of_a_job_itself_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PBS_TASKNUM": "00000001", "PBS_NODENUM": "0", "PBS_NP": "4"}.items():
        monkeypatch.setenv(name, value)
    assert settings.other_launcher()[1] == 1
    monkeypatch.setenv("SLURM_PROCID", "0")  # of sbatch's script
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert settings.meeting_place(settings.other_launcher()[3]) is None


def test_what_ranks_are_told_where_they_cannot_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    place = settings.MeetingPlace("127.0.0.1", free_port(), "0")
    monkeypatch.setattr(joining, "START_S", 0.4)
    with pytest.raises(GroupError, match=r"of 3 ranks 2 did not come within 0.4 s: 1, 2\. .*MASTER_ADDR"):
        joining.join(0, 3, place, "torchrun")
    with pytest.raises(GroupError, match=r"rank 0 is not at 127\.0\.0\.1"):
        joining.join(1, 3, settings.MeetingPlace("127.0.0.1", free_port(), "0"), "torchrun")
    with (socket.create_server(("127.0.0.1", 0)) as other,
          pytest.raises(GroupError, match=r"port \d+, at which ranks meet, cannot be opened.*MASTER_PORT")):
        joining.join(0, 2, settings.MeetingPlace("127.0.0.1", other.getsockname()[1], "0"), "torchrun")


def test_ranks_of_two_jobs_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank proves that it knows the key of the job; two ranks of one number are one too many."""
    meeting = joining.Kept(port := free_port(), b"letters")
    try:
        with pytest.raises(GroupError, match="does not know this job's key"):
            joining.Reached("127.0.0.1", port, b"other", 0.0)
        first = joining.Reached("127.0.0.1", port, b"letters", 0.0)
        first.put("rank/1", json.dumps(["host", "machine", 3, joining.version()]))
        with pytest.raises(GroupError, match="two processes say that they are rank 1"):
            meeting.put("rank/1", "")
        meeting.put("rank/0", json.dumps(["host", "machine", 2, joining.version()]))
        with pytest.raises(GroupError, match="rank 1 knows of 3 ranks, and rank 0 of 2"):
            joining._order(meeting, 2, 0.0)
    finally:
        meeting.close()


def test_a_port_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "70000")
    with pytest.raises(ArgumentError, match="MASTER_PORT=70000 is no port"):
        settings.meeting_place("torchrun")


def test_written_files(tmp_path: Path) -> None:
    """Variables that a file sets are those that ranks read; YAML is what a parser of others reads."""
    run = CliRunner().invoke
    words = ["launch", "-n", "4", "--image", "lab/morpho:1", "--write"]
    for kind, controller in (("kubernetes", "Job"), ("statefulset", "StatefulSet")):
        text = run(app, [*words, kind, "train.py", "--lr", "1e-3"]).output
        yaml = pytest.importorskip("yaml")
        service, job = yaml.safe_load_all(text)
        pod = job["spec"]["template"]["spec"]
        variables = {row["name"]: row.get("value") for row in pod["containers"][0]["env"]}
        assert job["kind"] == controller and pod["containers"][0]["command"] == ["python", "train.py", "--lr", "1e-3"]
        assert variables["WORLD_SIZE"] == "4" and variables["MASTER_ADDR"] == "train-0.train"
        assert service["metadata"]["name"] == pod["subdomain"] == "train"
        assert {"RANK", "MASTER_PORT"} <= variables.keys()
    text = run(app, ["launch", "-n", "8", "--per-node", "4", "--threads", "3", "--write", "pbs", "train.py"]).output
    assert "#PBS -l select=2:ncpus=12:mpiprocs=4" in text and "pbsdsh -- /bin/bash" in text
    bad = run(app, ["launch", "-n", "3", "--per-node", "2", "--write", "slurm", "train.py"])
    assert bad.exit_code and "do not part" in str(bad.exception)
    assert "--write 'lsf' is unknown" in str(run(app, ["launch", "--write", "lsf", "train.py"]).exception)
    assert "needs an image" in str(run(app, ["launch", "--write", "kubernetes", "train.py"]).exception)


def test_a_file_for_a_plan(tmp_path: Path) -> None:
    nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": 1e11}) for name in ("fat", "thin")]
    solved = plan.solve(plan.ModelCard.from_config("gpt2", dtype="f32"), plan.Cluster.uniform(nodes, 1e9, 1e-4))
    (tmp_path / "plan.json").write_text(solved.to_json())
    text = CliRunner().invoke(app, ["launch", "--write", "slurm", "--plan", str(tmp_path / "plan.json"), "serve",
                                    "gpt2"]).output
    assert "#SBATCH --nodelist=fat,thin" in text and "fat: layers [0, " in text
    assert text.rstrip().endswith(f'morpho serve gpt2 --plan {tmp_path / "plan.json"} --hosts "$hosts"')
