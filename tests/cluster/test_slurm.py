"""Real Slurm: a controller and two nodes on this machine, started for the test; a job's machines are used by
`--hosts queue`, and Slurm's own launcher starts ranks too."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from morpho.cluster.launch.job_files import JobFile
from morpho.cluster.launch.mpiexec import environment

PLACES = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
CONTROLLER, NODE = (next((found for name in (kind, f"{kind}-wlm") if (found := shutil.which(name, path=PLACES))), "")
                    for kind in ("slurmctld", "slurmd"))
pytestmark = pytest.mark.skipif(not (CONTROLLER and NODE and shutil.which("salloc")), reason="there is no Slurm: "
                                "install slurmctld, slurmd and slurm-client")
CONFIGURATION = """
ClusterName=test
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/none
CredType=cred/none
StateSaveLocation=ROOT/state
SlurmdSpoolDir=ROOT/spool.%n
SlurmctldPidFile=ROOT/slurmctld.pid
SlurmdPidFile=ROOT/slurmd.%n.pid
SlurmctldLogFile=ROOT/log
SlurmdLogFile=ROOT/log.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmctldPort=PORT0
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT1 CPUs=2
NodeName=n2 NodeHostname=HOST NodeAddr=127.0.0.1 Port=PORT2 CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""
SCRIPT = """
import os
from morpho import cluster
group = cluster.init()
print("rank", group.rank, "of", group.size, os.environ["SLURM_JOB_NODELIST"], flush=True)
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the configuration, while two nodes wait for jobs."""
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    root = tmp_path_factory.mktemp("slurm")
    text = CONFIGURATION.replace("ROOT", str(root)).replace("HOST", socket.gethostname().split(".")[0])
    for number, port in enumerate(free_ports(3)):
        text = text.replace(f"PORT{number}", str(port))
    plugins = Path(CONTROLLER).parents[1] / "lib" / "x86_64-linux-gnu" / "slurm-wlm"
    text = text.replace("USER", getpass.getuser()) + (f"PluginDir={plugins}\n" if plugins.is_dir() else "")
    (root / "slurm.conf").write_text(text)
    (root / "state").mkdir()
    (root / "script.py").write_text(SCRIPT)
    daemon = Path(NODE).with_name(Path(NODE).name.replace("slurmd", "slurmstepd"))
    stepd = ["-d", str(daemon)] if daemon.exists() else []
    started = [subprocess.Popen([CONTROLLER, "-D"], env=given(root))]
    started += [subprocess.Popen([NODE, "-D", "-N", name, *stepd], env=given(root)) for name in ("n1", "n2")]
    try:
        end = time.monotonic() + 30
        while asked(root, "sinfo", "-h", "-o", "%D %t").strip() != "2 idle":
            if any(each.poll() is not None for each in started) or time.monotonic() > end:
                pytest.skip(f"Slurm does not start here: {(root / 'log').read_text()[-300:]}")
            time.sleep(0.2)
        yield root
    finally:
        for each in reversed(started):
            each.terminate()
            each.wait(20)


def given(root: Path) -> dict[str, str]:
    return {**environment(), "SLURM_CONF": str(root / "slurm.conf")}


def asked(root: Path, *words: object) -> str:
    return subprocess.run([*map(str, words)], env=given(root), capture_output=True, text=True, timeout=150,
                          check=False).stdout


def ranks_of(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if line.startswith("rank"))


def test_ranks_run_on_the_machines_of_the_job(slurm: Path) -> None:
    said = asked(slurm, "salloc", "-N", 2, sys.executable, "-m", "morpho", "launch", "-n", 2, "--hosts", "queue",
                 slurm / "script.py")
    assert ranks_of(said) == [["rank", "0", "of", "2", "n[1-2]"], ["rank", "1", "of", "2", "n[1-2]"]], said


def test_slurm_starts_ranks_itself(slurm: Path) -> None:
    if "pmix" not in asked(slurm, "sh", "-c", "srun --mpi=list 2>&1").split() or asked(
            slurm, "srun", "--mpi=pmix", "echo", "here").strip() != "here":
        pytest.skip("this Slurm has no PMIx")
    said = asked(slurm, "srun", "--mpi=pmix", "-N", 1, "-n", 2, sys.executable, "-m", "morpho.cluster.launch.worker",
                 slurm / "script.py")
    assert [row[:4] for row in ranks_of(said)] == [["rank", "0", "of", "2"], ["rank", "1", "of", "2"]], said


def test_srun_without_pmix(slurm: Path) -> None:
    """Ranks meet by the variables of a plain `srun`: at a port that follows from the job."""
    text = asked(slurm, "srun", "--mpi=none", "-N", 1, "-n", 2, "--overcommit", sys.executable, slurm / "script.py")
    assert [row[:4] for row in ranks_of(text)] == [["rank", "0", "of", "2"], ["rank", "1", "of", "2"]], text


def test_a_written_file_is_one_that_sbatch_runs(slurm: Path) -> None:
    file = slurm / "job.sh"
    text = JobFile("slurm", (str(slurm / "script.py"),), 2, 2).text()
    file.write_text(text.replace(" python ", f" {sys.executable} "))
    asked(slurm, "sbatch", "--wait", "--chdir", slurm, "-o", slurm / "out", file)
    text = (slurm / "out").read_text()
    assert [row[:4] for row in ranks_of(text)] == [["rank", "0", "of", "2"], ["rank", "1", "of", "2"]], text
