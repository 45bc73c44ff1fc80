"""The hosts file: which machines there are, how they are reached, and the cluster file with their figures.

    cluster = "office.toml"            # nodes and links for the planner; `morpho cluster measure` writes it
    interfaces = ["eth0"]              # what MPI speaks over; its ports carry no token: a private network
    secret = "~/.config/morpho/cluster-secret"     # a file that every host has, owner-only
    agent = "ssh"                      # what starts processes elsewhere

    [[host]]
    name = "desk"                      # as in the cluster file
    address = "192.168.1.5"            # default: the name
    model = "/data/my-model"           # where the model lies there; default: the same path as here

Inside a job of Slurm or PBS `queue = true` takes the place of the [[host]] tables; without a file, `--hosts queue`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.cluster.hosts.queue import queue_hosts
from morpho.cluster.launch.mpiexec import Hosts

NAME = re.compile(r"[\w.-]+")
ADDRESS = re.compile(r"[\w.@:-]+")
_TOP = ("cluster", "interfaces", "secret", "agent", "host", "queue", "ship")
QUEUE = "queue"  # in the place of a file: the hosts of this job
OWN_SECRET = "~/.config/morpho/cluster-secret"
_HOST = ("name", "address", "model")


@dataclass(frozen=True)
class Host:
    """One machine."""

    name: str
    address: str
    model: str = ""


@dataclass(frozen=True)
class HostFile:
    """Contents of a hosts file."""

    path: Path
    hosts: tuple[Host, ...]
    cluster: Path
    interfaces: tuple[str, ...] = ()
    secret: Path | None = None
    agent: str = ""
    ship: bool = True  # weights to hosts that lack them

    def launch(self) -> Hosts:
        """As the launcher wants it."""
        return Hosts(tuple((host.address, 1) for host in self.hosts), self.agent, self.interfaces,
                     str(self.secret or ""))


def read_hosts(path: Path) -> HostFile:
    """The hosts of a TOML file; every fault names file and field.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "hosts.toml"
    >>> _ = file.write_text('[[host]]\\nname = "desk"\\n')
    >>> read_hosts(file).hosts[0].address
    'desk'
    """
    if str(path) == QUEUE:
        hosts = tuple(Host(name, name) for name in queue_hosts())
        return HostFile(path, hosts, Path("cluster.toml"), secret=Path(OWN_SECRET).expanduser())
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise fail(ArgumentError, "hosts", f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fail(ArgumentError, "hosts", f"{path} is not TOML: {error}") from None
    _only(path, "the file", data, _TOP)
    for key in ("queue", "ship"):
        if not isinstance(data.get(key, True), bool):
            raise fail(ArgumentError, "hosts", f"{path}: {key} = {data[key]!r} is neither true nor false")
    rows = data.get("host")
    if data.get("queue") and rows is None:
        rows = [{"name": name} for name in queue_hosts()]
    if not isinstance(rows, list) or not rows:
        raise fail(ArgumentError, "hosts", f"{path} has no [[host]]", "name at least one machine")
    hosts = tuple(_host(path, number, row) for number, row in enumerate(rows, 1))
    names = [host.name for host in hosts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise fail(ArgumentError, "hosts", f"{path} names {twice!r} twice", "one worker runs on each host")
    secret = _text(path, data, "secret", "")
    interfaces = data.get("interfaces", [])
    if not isinstance(interfaces, list) or not all(isinstance(each, str) for each in interfaces):
        raise fail(ArgumentError, "hosts", f"{path}: interfaces = {interfaces!r} is not a list of names")
    cluster = path.parent / _text(path, data, "cluster", "cluster.toml")
    return HostFile(path, hosts, cluster, tuple(interfaces), Path(secret).expanduser() if secret else None,
                    _text(path, data, "agent", ""), data.get("ship", True))


def _host(path: Path, number: int, row: Any) -> Host:
    if not isinstance(row, dict):
        raise fail(ArgumentError, "hosts", f"{path}: host {number} is not a table")
    _only(path, f"host {number}", row, _HOST)
    name = _text(path, row, "name", "")
    if not NAME.fullmatch(name):
        raise fail(ArgumentError, "hosts", f"{path}: host {number} has name = {name!r}",
                   "use letters, digits, hyphens, dots and underscores")
    address = _text(path, row, "address", name)
    if not ADDRESS.fullmatch(address):
        raise fail(ArgumentError, "hosts", f"{path}: {name} has address = {address!r}", "give a host name or number")
    return Host(name, address, _text(path, row, "model", ""))


def _text(path: Path, table: dict[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise fail(ArgumentError, "hosts", f"{path}: {key} = {value!r} is not a text")
    return value


def _only(path: Path, what: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = next((key for key in table if key not in known), None)
    if unknown is not None:
        raise fail(ArgumentError, "hosts", f"{path}: {what} has the unknown key {unknown!r}", f"use {', '.join(known)}")
