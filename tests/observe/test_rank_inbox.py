"""Ranks of other machines report to whoever started them, without a folder that both see."""

from __future__ import annotations

import hashlib
import hmac
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from morpho.base import settings
from morpho.base.errors import ArgumentError
from morpho.cli.server import dashboard
from morpho.observe.monitor import inbox as module
from morpho.observe.monitor.inbox import Inbox, Line, own_addresses
from morpho.observe.monitor.ranks import MOST_BYTES, RankReport, read_ranks


def test_a_report_is_kept_with_the_time_of_the_one_who_takes_it(tmp_path: Path) -> None:
    with Inbox(tmp_path, ["127.0.0.1"]) as inbox:
        line = Line(f"127.0.0.1:1,{inbox.address}", inbox.secret)  # nobody listens at the first
        with RankReport(line, rank=5, every_s=3600.0, clock=lambda: 12.0):
            (row,) = read_ranks(tmp_path)
            assert row["rank"] == 5 and row["rss_bytes"] > 1 << 20 and abs(row["time"] - time.time()) < 600
        assert line.places[0][1] != 1  # who answered is asked first
    RankReport(line, rank=5).write()  # nobody is there any more: the rank goes on
    assert [row["rank"] for row in read_ranks(tmp_path)] == [5]


def test_what_is_no_report_of_this_launchers_ranks_is_dropped(tmp_path: Path) -> None:
    def coded(secret: str, payload: bytes) -> bytes:
        return hmac.new(secret.encode(), payload, hashlib.sha256).digest() + payload

    with Inbox(tmp_path, ["127.0.0.1"]) as inbox:
        with pytest.raises(OSError, match="nobody takes reports"):
            Line(inbox.address, "another secret").tell({"rank": 0})
        for payload in (b"{", b"[1]", b"null", b'{"rank": "0"}', b'{"rank": true}', b'{"rank": -1}', b'{"rank": 99999}',
                        b"[" * 30_000, b'{"rank": "../../x"}'):
            assert not inbox.take(coded(inbox.secret, payload)), payload[:20]
        assert not inbox.take(b"") and not inbox.take(coded("", b'{"rank": 0}'))
        place = inbox.address.split(":")
        for sent in (b"", b"\0" * 40, coded(inbox.secret, b" " * (2 * MOST_BYTES) + b'{"rank": 0}')):
            with socket.create_connection((place[0], int(place[1])), 10) as raw:
                try:
                    raw.sendall(sent)
                    raw.shutdown(socket.SHUT_WR)
                    assert raw.recv(1) == b""
                except OSError:  # it need not read all of it
                    pass
        assert list(tmp_path.iterdir()) == []
        silent = [socket.create_connection((place[0], int(place[1])), 10) for _ in range(20)]
        Line(inbox.address, inbox.secret).tell({"rank": 0, "loss": 1.5})  # those keep nobody waiting
        for one in silent:
            one.close()
        assert [row["loss"] for row in read_ranks(tmp_path)] == [1.5]


def test_addresses_that_others_see(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_addresses(["127.0.0.1", "127.0.0.1"]) == ["127.0.0.1"]
    monkeypatch.setattr(module.socket, "getaddrinfo", _unknown)
    assert own_addresses(["a"]) == []
    with pytest.raises(ArgumentError, match="no address of this machine is known that a could"), \
            dashboard.watching_ranks(hosts=["a"]):
        pass


def _unknown(*place: object, **more: object) -> None:
    raise socket.gaierror("no such name")


def test_ranks_that_do_not_see_the_launchers_folder_are_on_its_page(tmp_path: Path) -> None:
    """Two hosts, played by an agent, in a launch with a page; the ranks end when it shows both."""
    pytest.importorskip("mpi4py", reason="ranks are MPI processes: pip install 'morpho-tensor[cluster]'")
    agent, script, done = tmp_path / "agent", tmp_path / "script.py", tmp_path / "done"
    agent.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nshift\n'
                     f'exec env -i HOME={tmp_path} PATH="$PATH" PYTHONPATH="$PYTHONPATH" sh -c "$*"\n')
    agent.chmod(0o755)
    script.write_text("import pathlib, sys, time\nfrom morpho.observe.runs.log import count_step\n"
                      "count_step(2.5, 100, 0.25)\n"
                      "while not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.05)\n")
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(f'agent = "{agent}"\n[[host]]\nname = "near"\n[[host]]\nname = "far"\n')
    (tmp_path / "own").mkdir()
    with subprocess.Popen([sys.executable, "-m", "morpho", "launch", "-n", "2", "--hosts", str(hosts), "--dashboard",
                           str(script), str(done)], stderr=subprocess.PIPE, text=True,
                          env=settings.environment(TMPDIR=str(tmp_path / "own"))) as process:
        assert process.stderr is not None
        try:
            address = next(line for line in process.stderr if "dashboard at" in line).split()[2]
            url, _, token = address.partition("/#token=")
            until, rows = time.monotonic() + 120, []
            while time.monotonic() < until and [row["rank"] for row in rows if "loss" in row] != [0, 1]:
                time.sleep(0.1)
                rows = httpx.get(f"{url}/api/ranks", headers={"Authorization": f"Bearer {token}"}, timeout=60,
                                 trust_env=False).json()["ranks"]
        finally:
            done.touch()
            rest = process.stderr.read()
        assert [(row["rank"], row["loss"], row["tokens"]) for row in rows] == [(0, 2.5, 100), (1, 2.5, 100)], rest
        assert process.wait(120) == 0, rest
