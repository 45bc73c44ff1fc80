"""The processes of a pipeline as its frontend sees them: a folder, mpiexec, a pipe of events, who is alive."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from morpho.cluster.launch.mpiexec import HERE, Hosts, start
from morpho.cluster.workers.reports import EVENTS, INBOX, InboxWriter, is_running

HEARTBEAT_S = 1.5  # a worker of another machine that is silent for longer is taken for dead
WORKER = "morpho.cluster.workers.worker"  # what a worker's process runs
END_S = 5.0  # what a job is given to end by itself
PREFIX = "morpho-run-"  # of its folder's name
OUTPUT = "output"


class Job:
    """A started job. `handle` is called for each event, on a thread of the job's own; `ended` with what the job said
    when it is over."""

    def __init__(self, config: dict[str, Any], nodes: Sequence[str], handle: Callable[[dict[str, Any]], None],
                 ended: Callable[[str], None], hosts: Hosts = HERE, secret: Path | None = None,
                 module: str = WORKER, open_news: Callable[[], Iterable[dict[str, Any]]] = tuple) -> None:
        remove_left_behind(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._handle, self._ended = handle, ended
        (self.folder / INBOX).touch()
        if secret is None:  # workers on this machine read the folder's own, which only this user can
            own = self.folder / "secret"
            own.touch(mode=0o600)
            own.write_bytes(secrets.token_hex(32).encode())
        (self.folder / "config.json").write_text(json.dumps({**config, "frontend": os.getpid(), "module": module}))
        os.mkfifo(self.folder / EVENTS, 0o600)
        self._pipe = os.open(self.folder / EVENTS, os.O_RDWR)  # writers find a reader, and the reader no end of file
        self._inbox = InboxWriter(self.folder, open_news)
        self._said = open(self.folder / OUTPUT, "wb+")
        fcntl.flock(self._said, fcntl.LOCK_EX)  # mpiexec holds it too: until the last of them is gone
        worker = [sys.executable, "-m", module, str(self.folder), str(secret or ""), *nodes]
        # On this machine the frontend sees who is stopped or silent. MPI's own heartbeat is a thread that was seen to
        # crash one worker in a hundred, under load, while MPI starts.
        self.process = start(len(nodes), worker, hosts, heartbeat_s=HEARTBEAT_S if hosts.slots else None,
                             stdout=self._said, stderr=subprocess.STDOUT)
        self._closing = False
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._wait)]
        for thread in self._threads:
            thread.start()

    def write(self, news: dict[str, Any]) -> None:
        """Tell the workers something."""
        self._inbox.write(news)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                raw = os.read(self._pipe, 1 << 16)
            except OSError:
                return
            *lines, rest = (rest + raw).split(b"\n")
            for line in lines:
                event = json.loads(line)
                if event.get("event") == "closed":
                    return
                self._handle(event)

    def _wait(self) -> None:
        self.process.wait()
        time.sleep(0.05)  # what the last one wrote is read first
        if not self._closing:
            self._ended(self.output())

    def output(self) -> str:
        """The last lines that workers and mpiexec printed."""
        text = (self.folder / OUTPUT).read_text(errors="replace") if self.folder.exists() else ""
        return "\n".join(text.strip().splitlines()[-12:])

    def close(self) -> None:
        """End the job: politely, then not."""
        if self._closing:
            return
        self._closing = True
        try:
            self.write({"stop": True})
            self.process.wait(END_S)
        except (subprocess.TimeoutExpired, OSError):
            pass
        self.kill()
        os.write(self._pipe, b'{"event": "closed"}\n')
        self._threads[0].join(1.0)
        for file in (self._inbox, self._said):
            file.close()
        os.close(self._pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End mpiexec and all that it started."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            try:
                os.killpg(self.process.pid, kind)
                self.process.wait(1.0)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass


def remove_left_behind(parent: Path) -> None:
    """Take away this user's folders of jobs whose frontend was killed, with the secrets in them: the frontend is no
    process, and nobody holds the lock on what the job printed (a process of another container has no number here).

    >>> with tempfile.TemporaryDirectory() as parent:
    ...     old = Path(parent) / f"{PREFIX}old"
    ...     old.mkdir()
    ...     (old / OUTPUT).touch()
    ...     _ = (old / "config.json").write_text('{"frontend": 4194305}')  # more than Linux ever gives
    ...     remove_left_behind(Path(parent))
    ...     old.exists()
    False
    """
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid():
                continue
            frontend = int(json.loads((folder / "config.json").read_text())["frontend"])
            with open(folder / OUTPUT, "rb") as said:
                fcntl.flock(said, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_running(frontend):
                    shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError, KeyError, TypeError):  # in use, or not begun yet
            continue
