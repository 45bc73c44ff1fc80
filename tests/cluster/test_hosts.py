"""Machines named in a hosts file, reached by an agent that plays ssh on this one: each host has a working folder, a
home and an environment of its own, and where the kernel allows it the second one does not see the frontend's files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, GroupError
from morpho.cli.cluster import measure
from morpho.cli.launch import launch
from morpho.cli.text.spread import Spread
from morpho.cluster.groups.threads import run_threads
from morpho.cluster.hosts import measuring
from morpho.cluster.hosts.file import read_hosts
from morpho.cluster.hosts.measuring import cluster_toml
from morpho.cluster.hosts.queue import expand, queue_hosts
from morpho.cluster.hosts.reaching import is_reachable
from morpho.cluster.hosts.run import check_secret
from morpho.cluster.launch.mpiexec import environment
from morpho.plan import Cluster

AGENT = """#!/bin/sh
# called as ssh is: options, a host, a command
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
mkdir -p ROOT/$host; cd ROOT/$host
echo "$host" >> ROOT/called
set -- env -i HOME=ROOT/$host PATH="$PATH" PYTHONPATH="$PYTHONPATH" sh -c "$*"
if [ $host = far ] && unshare -m true 2> /dev/null; then
    exec unshare -m sh -c 'mount -t tmpfs none ROOT/frontend && echo another > ROOT/frontend/secret &&
                           exec "$@"' sh "$@"
fi
exec "$@"
"""
HOSTS = """
agent = "ROOT/agent"
secret = "ROOT/secret"
[[host]]
name = "near"
[[host]]
name = "far"
model = "ROOT/nowhere"
"""


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    """A folder with an agent, a secret, and the files of two hosts, one of which lacks the model."""
    def write(name: str, text: str, mode: int = 0o600) -> None:
        (tmp_path / name).write_text(text.replace("ROOT", str(tmp_path)))
        (tmp_path / name).chmod(mode)

    write("agent", AGENT, 0o755)
    write("secret", "random letters")
    write("hosts.toml", HOSTS)
    one = {"memory_bytes": 8e9, "memory_bytes_per_s": 1e9, "f32": 1e9, "links": {}}
    write("cluster.toml", cluster_toml(["near", "far"], [{**one, "links": {"1": [1e-4, 1e10]}}, one]))
    (tmp_path / "frontend").mkdir()
    return tmp_path


def morpho(machines: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "morpho", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "TMPDIR": str(machines / "frontend"), **more})


def test_a_text_over_hosts_is_that_of_one_process(machines: Path) -> None:
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    words = ("run", "In the beginning", "--tokens", "8", "--temperature", "0")
    runs = [morpho(machines, *words), morpho(machines, *words, "--hosts", str(machines / "hosts.toml"))]
    (alone, said), (spread, shown) = (run.communicate(timeout=120) for run in runs)
    assert [run.returncode for run in runs] == [0, 0], said + shown
    assert spread == alone
    assert shown.startswith("[plan: 2 stages") and "far: layers [" in shown
    assert {*(machines / "called").read_text().split()} == {"near", "far"}
    kept = [*(machines / "far").glob(".cache/morpho/cluster/models/*/*/model.safetensors")]
    assert len(kept) == 1  # in the cache of that host, whose home it is


def test_a_host_with_another_secret_gets_nothing(machines: Path) -> None:
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("the kernel gives no second view of the files")
    (machines / "frontend" / "secret").write_text("random letters")
    hosts = (machines / "hosts.toml").read_text().replace(f"{machines}/secret", f"{machines}/frontend/secret")
    (machines / "hosts.toml").write_text(hosts)
    run = morpho(machines, "run", "In the beginning", "--tokens", "8", "--hosts", str(machines / "hosts.toml"))
    text, said = run.communicate(timeout=120)
    assert run.returncode != 0 and text.strip() == "In the beginning"
    assert "the worker on far does not know the shared secret" in said, said
    assert not [*(machines / "far").glob(".cache/morpho/cluster/models/*")]


def test_a_server_over_hosts_survives_a_machine(machines: Path) -> None:
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    httpx = pytest.importorskip("httpx", reason="the client of the test")
    expected = mo.models.load_with_tokenizer(mo.models.SHIPPED)[1].decode([*mo.models.generate(
        *_prompt("In the beginning"), max_new_tokens=40, temperature=0)])
    process = morpho(machines, "serve", f"tiny={mo.models.SHIPPED}", "--hosts", str(machines / "hosts.toml"), "--port",
                     "0", "--quiet")
    assert process.stdout is not None and process.stderr is not None
    try:
        url = process.stdout.readline().split("API ")[1].split("/v1")[0]

        def far() -> int:
            stages = httpx.get(url + "/live", trust_env=False, timeout=60).json()["engines"][0]["stages"]
            return next((row["process"] for row in stages if row["node"] == "far" and row["alive"]), 0)

        def text() -> str:
            asked = {"prompt": "In the beginning", "max_tokens": 40, "temperature": 0}
            answer = httpx.post(url + "/v1/completions", json=asked, trust_env=False, timeout=120)
            return str(answer.json()["choices"][0]["text"])

        worker = far()
        assert text() == expected
        for victim in (daemon_of(worker), worker):  # a machine that is lost, with all that runs there
            os.kill(victim, signal.SIGKILL)
        assert text() == expected  # after MPI has ended the others too, and all were started again
        assert far() not in (0, worker)
    finally:
        process.terminate()
        process.wait(60)


def _prompt(text: str) -> tuple[object, list[int]]:
    model, tokenizer = mo.models.load_with_tokenizer(mo.models.SHIPPED)
    return model, tokenizer.encode(text)


def daemon_of(process: int) -> int:
    """What started a process on its machine: MPI's daemon."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_hosts_of_a_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_NODEFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ArgumentError, match="this is no job of a queue"):
        queue_hosts()
    (tmp_path / "nodes").write_text("a1\na1\nb7\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    assert queue_hosts() == ("a1", "b7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "fat[08-10],thin2")
    assert [host.name for host in read_hosts(Path("queue")).hosts] == ["fat08", "fat09", "fat10", "thin2"]
    (tmp_path / "hosts.toml").write_text("queue = true\ninterfaces = ['ib0']\n")
    assert [host for host, _ in read_hosts(tmp_path / "hosts.toml").launch().slots] == [
        "fat08", "fat09", "fat10", "thin2"]
    for text in ("a[1-", "a[3-1]", "a[x]", "a]", "a[1-99999999]"):
        with pytest.raises(ArgumentError, match="SLURM_JOB_NODELIST="):
            expand(text)


def test_a_job_of_slurm_without_srun_goes_through_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither srun nor ssh
    monkeypatch.setenv("SLURM_JOB_NODELIST", "far7")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert "SLURM_JOB_ID" not in environment()  # or MPI would call srun
    with pytest.raises(GroupError, match=r"far7 cannot be reached\. Hint: try: ssh far7 true"):
        launch(["script.py"], None, "queue", 0, None, None, 0.0)
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    assert "SLURM_JOB_ID" in environment() and is_reachable("far7")  # srun knows the machines of its job


def test_a_cluster_is_measured_and_written_for_the_planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "machine_profile", lambda: SimpleNamespace(bytes_per_s=2e10, flops_per_s=1e11))
    found = run_threads(3, measuring.measure)
    assert [[*each["links"]] for each in found] == [[1, 2], [2], []]
    (tmp_path / "cluster.toml").write_text(cluster_toml(["a", "b", "c"], json.loads(json.dumps(found))))
    cluster = Cluster.load(tmp_path / "cluster.toml")
    assert [node.memory_bytes_per_s for node in cluster.nodes] == [2e10] * 3
    for table in (cluster.bandwidth_bytes_per_s, cluster.latency_s):
        assert all((table[a][b] > 0 and table[a][b] == table[b][a]) for a in range(3) for b in range(3) if a != b)
    (tmp_path / "hosts.toml").write_text('agent = "false"\n[[host]]\nname = "far"\n')
    with pytest.raises(GroupError, match=r"far cannot be reached\. Hint: try: false far true"):
        measure(tmp_path / "hosts.toml", None, None)


def test_hosts_that_are_wrong(machines: Path) -> None:
    file = machines / "hosts.toml"
    (machines / "secret").write_text("")
    with pytest.raises(ArgumentError, match=r"the secret .* is not there, or empty"):
        check_secret(read_hosts(file))
    file.write_text("[[host]]\nname = 'far'\n")
    with pytest.raises(ArgumentError, match="names no secret"):
        check_secret(read_hosts(file))
    file.write_text("ship = 3\n[[host]]\nname = 'far'\n")
    with pytest.raises(ArgumentError, match="ship = 3 is neither true nor false"):
        read_hosts(file)
    file.write_text("agent = 'false'\nsecret = '" + str(machines / "agent") + "'\n[[host]]\nname = 'far'\n")
    with pytest.raises(mo.errors.ArgumentError, match=r"the plan is for near, far, and .* has far"):
        from morpho.cluster.hosts.run import host_pipeline
        host_pipeline(mo.models.SHIPPED, file)
    with pytest.raises(ArgumentError, match=r"--nodes 2 is of this machine, and --hosts .* a worker on each"):
        Spread(2, file).pipeline(mo.models.SHIPPED)
