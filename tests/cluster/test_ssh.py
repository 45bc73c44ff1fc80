"""Real ssh: an sshd on a loopback port, with keys made for the test, reached by two names of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from morpho.cluster.hosts.measuring import cluster_toml

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="there is no sshd: install "
                                "openssh-server")
SERVER = """
Port PORT
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey ROOT/host
AuthorizedKeysFile ROOT/authorized
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
"""
CLIENT = """
Host *
    Port PORT
    IdentityFile ROOT/key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile ROOT/known
    BatchMode yes
    LogLevel ERROR
"""
HOSTS = """
agent = "ssh -F ROOT/client"
secret = "ROOT/secret"
[[host]]
name = "near"
address = "127.0.0.1"
[[host]]
name = "far"
address = "127.0.0.2"
"""
SCRIPT = """
import os
from morpho import cluster
group = cluster.init()
import morpho
print("rank", group.rank, "of", group.size, "ssh" if "SSH_CONNECTION" in os.environ else "here", morpho.__file__)
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Path]:
    """A folder with keys, hosts and a cluster, while an sshd answers."""
    pytest.importorskip("mpi4py", reason="workers are MPI processes: pip install 'morpho-tensor[cluster]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, text in {"server": SERVER, "client": CLIENT, "hosts.toml": HOSTS, "script.py": SCRIPT,
                       "secret": "random letters"}.items():
        (tmp_path / name).write_text(text.replace("ROOT", str(tmp_path)).replace("PORT", str(port)))
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "key.pub", tmp_path / "authorized")
    one = {"memory_bytes": 8e9, "memory_bytes_per_s": 1e9, "f32": 1e9, "links": {}}
    (tmp_path / "cluster.toml").write_text(cluster_toml(["near", "far"], [{**one, "links": {"1": [1e-4, 1e10]}}, one]))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it wants to be when it listens as root
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([SSHD or "", "-D", "-e", "-f", tmp_path / "server"], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while subprocess.run(["ssh", "-F", tmp_path / "client", "127.0.0.2", "true"], capture_output=True,
                             check=False).returncode:
            if process.poll() is not None or time.monotonic() > end:
                pytest.skip(f"sshd does not let us in: {(tmp_path / 'log').read_text()[-300:]}")
            time.sleep(0.1)
        yield tmp_path
    finally:
        process.terminate()
        process.wait(10)


def morpho(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "morpho", *map(str, words)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_workers_and_ranks_are_started_through_ssh(machines: Path) -> None:
    words = ("run", "In the beginning", "--tokens", "8", "--temperature", "0")
    runs = [morpho(*words), morpho(*words, "--hosts", machines / "hosts.toml"),
            morpho("launch", "--hosts", machines / "hosts.toml", machines / "script.py")]
    (alone, said), (spread, shown), (ranks, told) = (run.communicate(timeout=180) for run in runs)
    assert [run.returncode for run in runs] == [0, 0, 0], said + shown + told
    assert spread == alone and "far: layers [" in shown
    assert sorted(line.split()[:5] for line in ranks.splitlines()) == [
        ["rank", "0", "of", "2", "here"], ["rank", "1", "of", "2", "ssh"]]
    assert len({line.split()[5] for line in ranks.splitlines()}) == 1  # the same Morpho: PYTHONPATH went along


def test_a_machine_that_does_not_answer_is_one_sentence(machines: Path) -> None:
    (machines / "authorized").write_text("")  # nobody is let in any more
    for words in (("run", "Hi"), ("launch", machines / "script.py")):
        run = morpho(words[0], "--hosts", machines / "hosts.toml", *words[1:])
        said = "".join(run.communicate(timeout=120))
        assert run.returncode and "127.0.0.2" in said and "cannot be reached" in said, said
        assert "Traceback" not in said and "daemon" not in said
