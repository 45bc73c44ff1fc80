"""Ranks that another launcher started (`torchrun`, `srun`, `pbsdsh`, Kubernetes) become ranks of MPI, in place.

They meet once, at MASTER_ADDR:MASTER_PORT or in the store that `torchrun` keeps there, and tell rank 0 their hosts.
Rank 0 starts mpiexec over these hosts. Instead of ssh, the first rank of each host runs mpiexec's daemon there. The
daemons start a stand-in for each rank (`standin.py`), whose environment the real process takes over. From there on all
is MPI's: how ranks find each other, what they send, and how a death is noticed.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.base.distribution import install
from morpho.base.errors import GroupError, MorphoError, fail
from morpho.base.settings import MeetingPlace
from morpho.cluster.hosts.queue import expand
from morpho.cluster.launch import mpiexec, secret, standin
from morpho.cluster.launch.told import started
from morpho.cluster.workers.meeting import version

START_S = 120.0  # what ranks have to come, at least
SECRET = Path("~/.config/morpho/cluster-secret")
_STANDIN = str(Path(standin.__file__).resolve())
_MOST_BYTES = 1 << 20  # of a message at the meeting
_LOOK_EVERY_S = 0.02
_OF_QUEUES = ("SLURM_", "PBS_", "LSB_", "TORCHELASTIC_")  # by them mpiexec would look for machines of its own


class Meeting(ABC):
    """Texts by name that ranks leave for each other until they are ranks of MPI."""

    @abstractmethod
    def put(self, name: str, text: str) -> None:
        """Leave a text; a second one of a name is an error."""

    @abstractmethod
    def get(self, name: str, limit_s: float) -> str | None:
        """The text, once it is there; None if the time `limit_s` (monotonic) comes first."""

    def close(self) -> None:  # noqa: B027 - those who came hold nothing
        """End it, where this rank keeps it."""


class Kept(Meeting):
    """The meeting that rank 0 keeps: connections of the standard library, which prove that they know the key first, and
    messages of JSON."""

    def __init__(self, port: int, key: bytes) -> None:
        self._texts: dict[str, str] = {}
        self._changed = threading.Condition()
        self._key, self._open = key, True
        self._listener = Listener(("", port), "AF_INET", backlog=1024)
        threading.Thread(target=self._accept, name="morpho-meeting", daemon=True).start()

    def _accept(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError):
                continue
            threading.Thread(target=self._serve, args=(connection,), name="morpho-meeting", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while True:
                verb, name, rest = json.loads(connection.recv_bytes(_MOST_BYTES))
                if verb == "put":
                    answer: Any = self._left(name, rest)
                else:
                    answer = self.get(name, time.monotonic() + float(rest))
                connection.send_bytes(json.dumps(answer).encode())
        except (OSError, EOFError, ValueError, TypeError, AssertionError):  # its rank is gone, or was none
            connection.close()
        except Exception as error:
            if type(error).__name__ != "AuthenticationError":
                raise
            connection.close()

    def _left(self, name: str, text: str) -> bool:
        with self._changed:
            fresh = name not in self._texts
            self._texts.setdefault(name, text)
            self._changed.notify_all()
        return fresh

    def put(self, name: str, text: str) -> None:
        if not self._left(name, text):
            raise _twice(name)

    def get(self, name: str, limit_s: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: name in self._texts, max(0.0, limit_s - time.monotonic()))
            return self._texts.get(name)

    def close(self) -> None:
        self._open = False
        self._listener.close()


class Reached(Meeting):
    """The meeting that another process keeps."""

    def __init__(self, address: str, port: int, key: bytes, limit_s: float) -> None:
        while True:
            try:
                self._connection = Client((address, port), "AF_INET")
                answer_challenge(self._connection, key)
                deliver_challenge(self._connection, key)
                return
            except (OSError, EOFError) as error:
                if time.monotonic() > limit_s:
                    raise fail(GroupError, "cluster", f"rank 0 is not at {address}:{port} ({error or 'it hung up'})",
                               "start all ranks at about the same time, and open this port between them",
                               line="") from None
                time.sleep(_LOOK_EVERY_S * 5)
            except Exception as error:
                if type(error).__name__ != "AuthenticationError":
                    raise
                raise fail(GroupError, "cluster", f"{address}:{port} does not know this job's key",
                           f"all hosts have the same {SECRET}, or none, and no other program listens there",
                           line="") from None

    def _ask(self, *words: Any) -> Any:
        try:
            self._connection.send_bytes(json.dumps(words).encode())
            return json.loads(self._connection.recv_bytes(_MOST_BYTES))
        except (OSError, EOFError, ValueError):
            raise fail(GroupError, "cluster", "rank 0 ended before all ranks had come", line="") from None

    def put(self, name: str, text: str) -> None:
        if not self._ask("put", name, text):
            raise _twice(name)

    def get(self, name: str, limit_s: float) -> str | None:
        answer = self._ask("get", name, max(0.0, limit_s - time.monotonic()))
        return None if answer is None else str(answer)


class Stored(Meeting):
    """The store that `torchrun` keeps, by PyTorch's own client."""

    def __init__(self, place: MeetingPlace, limit_s: float) -> None:
        try:
            from torch.distributed import PrefixStore, TCPStore
        except ImportError:
            raise fail(GroupError, "cluster", "torchrun keeps the store of its ranks, and PyTorch is not here",
                       install("torch"), line="") from None
        from datetime import timedelta

        patience = timedelta(seconds=max(1.0, limit_s - time.monotonic()))
        try:
            store = TCPStore(place.address, place.port, is_master=False, timeout=patience)
        except RuntimeError as error:
            raise fail(GroupError, "cluster", f"torchrun's store is not at {place.address}:{place.port} "
                       f"({str(error).splitlines()[0]})", line="") from None
        self._store = PrefixStore(f"morpho/{place.run}", store)

    def put(self, name: str, text: str) -> None:
        if self._store.add(f"{name}/count", 1) != 1:
            raise _twice(name)
        self._store.set(name, text)

    def get(self, name: str, limit_s: float) -> str | None:
        while not self._store.check([name]):
            if time.monotonic() > limit_s:
                return None
            time.sleep(_LOOK_EVERY_S)
        return bytes(self._store.get(name)).decode()


def _twice(name: str) -> MorphoError:
    return fail(GroupError, "cluster", f"two processes say that they are {name.replace('/', ' ')}: the launcher's "
                "variables must name each rank once", line="")


def _key(place: MeetingPlace, size: int) -> bytes:
    """Key that ranks prove to know: the user's secret, if there is one; otherwise only a description of this job."""
    return secret.read(SECRET.expanduser()) + f" {place.port} {place.run} {size}".encode()


def _meeting(place: MeetingPlace, rank: int, size: int, limit_s: float) -> Meeting:
    if place.is_store:
        return Stored(place, limit_s)
    if rank:
        return Reached(place.address, place.port, _key(place, size), limit_s)
    try:
        return Kept(place.port, _key(place, size))
    except OSError as error:
        raise fail(GroupError, "cluster", f"port {place.port}, at which ranks meet, cannot be opened: {error.strerror}",
                   "set MASTER_PORT to a free port, on all ranks", line="") from None


def join(rank: int, size: int, place: MeetingPlace, launcher: str) -> None:
    """Make this process a rank of MPI: after it `mpi.world()` has all of them."""
    place = replace(place, address=expand(place.address)[0] if "[" in place.address else place.address)
    if rank >= size:
        raise fail(GroupError, "cluster", f"{launcher} says that this is rank {rank} of {size}", line="")
    mpiexec.mpiexec()  # an error where there is no MPI, before anybody waits
    limit_s = time.monotonic() + max(START_S, settings.get().collective_timeout and START_S)
    meeting = _meeting(place, rank, size, limit_s)
    try:
        _meet(meeting, rank, size, place, limit_s)
    finally:
        if rank:
            meeting.close()
    if not rank:
        atexit.register(meeting.close)


def _meet(meeting: Meeting, rank: int, size: int, place: MeetingPlace, limit_s: float) -> None:
    host = platform.node()
    meeting.put(f"rank/{rank}", json.dumps([host, _machine(), size, version()]))
    if not rank:
        try:
            order = _order(meeting, size, limit_s)
        except MorphoError as error:
            meeting.put("plan", json.dumps({"error": str(error)}))
            raise
        meeting.put("plan", json.dumps({"token": secrets.token_hex(8), "hosts": order}))
    text = meeting.get("plan", limit_s + 5.0)
    plan: dict[str, Any] = json.loads(text) if text else {"error": f"rank 0 heard too little within {START_S:g} s"}
    if "error" in plan:
        raise fail(GroupError, "cluster", str(plan["error"]).removeprefix("[cluster] "), line="")
    folder = Path(tempfile.gettempdir()) / f"morpho-join-{plan['token']}"
    folder.mkdir(mode=0o700, exist_ok=True)
    starter = _start(plan["hosts"], folder, size) if not rank else None
    first = plan["hosts"].index(host) == rank
    if first and host != plan["hosts"][0]:
        command = meeting.get(f"daemon of {host}", limit_s)
        if command is None:
            raise fail(GroupError, "cluster", f"mpiexec on {plan['hosts'][0]} asked for no daemon on {host} in time",
                       line="")
        _run_daemon(command)
    try:
        _take_over(folder, rank, limit_s, starter, meeting)
    except MorphoError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _machine() -> str:
    """Text that differs between machines of one name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _order(meeting: Meeting, size: int, limit_s: float) -> list[str]:
    """The host of each rank, once all have come; an error where they are no one job."""
    rows = [meeting.get(f"rank/{rank}", limit_s) for rank in range(size)]
    late = [str(rank) for rank, row in enumerate(rows) if row is None]
    if late:
        raise fail(GroupError, "cluster", f"of {size} ranks {len(late)} did not come within {START_S:g} s: "
                   f"{', '.join(late[:8])}{', ...' if len(late) > 8 else ''}",
                   "start all of them; MASTER_ADDR and MASTER_PORT must be the same on all", line="")
    known = [json.loads(row) for row in rows if row is not None]
    machines: dict[str, str] = {}
    for rank, (host, machine, other, its) in enumerate(known):
        if other != size:
            raise fail(GroupError, "cluster", f"rank {rank} knows of {other} ranks, and rank 0 of {size}", line="")
        if its != known[0][3]:
            raise fail(GroupError, "cluster", f"rank {rank} has Morpho {its} and rank 0 {known[0][3]}",
                       "install the same one everywhere", line="")
        if machines.setdefault(host, machine) != machine:
            raise fail(GroupError, "cluster", f"two machines, or containers, are both called {host}",
                       "give each a hostname of its own", line="")
    return [row[0] for row in known]


def _start(hosts: list[str], folder: Path, size: int) -> subprocess.Popen[Any]:
    """Start mpiexec, with a stand-in for each rank on its host."""
    names = list(dict.fromkeys(hosts))
    slots = tuple((name, hosts.count(name)) for name in names)
    several = len(names) > 1
    agent = ""
    if several:
        agent = shlex.join([sys.executable, "-I", _STANDIN, "ask", str(folder)])
    there = f'"${{TMPDIR:-/tmp}}/{folder.name}"'
    program = ["sh", "-c", f'file=$(mktemp) && env -0 >"$file" && exec {shlex.quote(sys.executable)} -I '
               f'{shlex.quote(_STANDIN)} stand {there} "$file" {START_S:g}']
    where = mpiexec.Hosts(slots, agent) if several else mpiexec.HERE
    command = mpiexec.command(size, program, where)
    if several:
        command[1:1] = ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
    if several and hosts != [name for name, count in slots for _ in range(count)]:
        command = _in_order(command, hosts, folder)
    environment = {name: value for name, value in mpiexec.environment().items() if not name.startswith(_OF_QUEUES)}
    environment["TMPDIR"] = tempfile.gettempdir()
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=None, start_new_session=True)


def _in_order(command: list[str], hosts: list[str], folder: Path) -> list[str]:
    """The command for ranks that do not lie host by host: a line of a file for each."""
    file = folder / "ranks"
    file.write_text("".join(f"{host}\n" for host in hosts))
    at = command.index("--map-by")
    return [*command[:at + 1], f"seq:FILE={file}:OVERSUBSCRIBE", *command[at + 2:]]


def _run_daemon(command: str) -> None:
    """Run mpiexec's daemon on this host with the arguments that a command line has for it, and nothing else of it."""
    words = shlex.split(command)
    at = next((number for number, word in enumerate(words) if os.path.basename(word) == "prted"), None)
    beside = Path(mpiexec.mpiexec()).with_name("prted")
    daemon = str(beside) if beside.exists() else shutil.which("prted")
    if at is None or daemon is None:
        raise fail(GroupError, "cluster", "mpiexec's daemon (prted) is not on this host", install("cluster"), line="")
    environment = {name: value for name, value in mpiexec.environment().items() if not name.startswith(_OF_QUEUES)}
    environment["TMPDIR"] = tempfile.gettempdir()
    subprocess.Popen([daemon, *words[at + 1:]], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=None, start_new_session=True)


def _take_over(folder: Path, rank: int, limit_s: float, starter: subprocess.Popen[Any] | None,
               meeting: Meeting) -> None:
    """Become the rank of MPI that the stand-in is; rank 0 hands commands for daemons on while it waits."""
    file = folder / f"{rank}.json"
    while not file.exists():
        for each in folder.glob("daemon-*.command"):
            host, command = each.read_text().split("\n", 1)
            each.unlink()
            meeting.put(f"daemon of {host}", command)
        if starter is not None and starter.poll() is not None:
            raise fail(GroupError, "cluster", f"mpiexec ended with status {starter.returncode} before ranks had "
                       "joined; its message is above", line="")
        if time.monotonic() > limit_s:
            raise fail(GroupError, "cluster", f"mpiexec started nothing for rank {rank} in {folder} in time",
                       "Morpho and MPI must lie at the same path on all hosts", line="")
        time.sleep(_LOOK_EVERY_S)
    known = json.loads(file.read_text())
    settings.adopt(known["variables"])
    fresh = folder / f"{rank}.mine"
    fresh.write_text(str(os.getpid()))
    fresh.rename(folder / f"{rank}.process")
    ended = threading.Event()
    atexit.register(_leave, folder, rank, ended)  # before MPI's own: runs after it
    threading.Thread(target=_end_with, args=(known["process"], ended), name="morpho-joined", daemon=True).start()


def _leave(folder: Path, rank: int, ended: threading.Event) -> None:
    """Say that this rank has ended by itself."""
    ended.set()
    try:
        (folder / f"{rank}.done").touch()
    except OSError:
        pass  # a full disk: the stand-in ends as that of a killed rank


def _end_with(process: int, ended: threading.Event) -> None:
    """End this rank when its stand-in does: MPI has given it up, or mpiexec was ended."""
    began = started(process)
    while not ended.wait(0.5):
        if began and started(process) != began:
            print("[group] mpiexec ended: this rank ends with it", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
