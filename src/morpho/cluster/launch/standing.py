"""Where the ranks of `morpho launch` stand, for `morpho cluster status` and `doctor`: each rank of this machine writes,
once a second, its line and the collective it is in; who hangs, and who waits for whom, is read from all of them.

Ranks of other hosts do not see the launcher's folder: of them it is only known who waits for them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.cluster.hosts.reaching import is_reachable
from morpho.cluster.launch import told
from morpho.cluster.launch.mpiexec import HERE, Hosts
from morpho.cluster.workers.reports import is_running, is_stopped
from morpho.runtime.groups import waiting

EVERY_S = 1.0
HANG_S = 5.0  # who waits for longer is named
ENDING = ".where"
STOPPED = "is stopped by a signal"


def folder() -> Path:
    """Where launchers say that they run."""
    return settings.get().cache_path / "cluster" / "launched"


@contextmanager
def listed(program: Sequence[str], count: int, ranks: Path, hosts: Hosts = HERE) -> Iterator[None]:
    """While the block runs, this process's launch is among those that `running` finds. Where the cache
    is off, or its folder cannot be written, it is not: that is no reason to start nothing."""
    file = folder() / f"{os.getpid()}.json"
    if not settings.get().cache:
        yield
        return
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"launcher": os.getpid(), "began": told.started(os.getpid()), "ranks": str(ranks),
                                    "program": list(program), "count": count, "hosts": hosts.slots,
                                    "agent": hosts.agent}))
        part.replace(file)
    except OSError:
        pass
    try:
        yield
    finally:
        try:
            file.unlink(missing_ok=True)
        except OSError:
            pass


def report(place: str, rank: int, every_s: float = EVERY_S) -> None:
    """Have a thread of its own tell a folder where this process stands, as long as it lives and the folder is there."""
    def say() -> None:
        while write(Path(place), rank):
            time.sleep(every_s)

    waiting.others = lambda: {row["rank"]: row for row in _rows(Path(place))}
    if not write(Path(place), rank):  # before MPI's start, in which no other thread of this process runs
        return
    threading.Thread(target=say, name="morpho-standing", daemon=True).start()


def write(place: Path, rank: int) -> bool:
    """Tell a folder where this process stands, now; whether the folder is there."""
    file = place / f"{os.getpid()}{ENDING}"
    part = file.with_suffix(".part")
    try:
        part.write_text(json.dumps({"rank": rank, "process": os.getpid(), "time": time.time(), **waiting.row()}))
        part.replace(file)
    except OSError:  # a full disk may have room later
        return place.is_dir()
    return True


def running() -> list[dict[str, Any]]:
    """Launches that run on this machine, with the last report of each rank; files of dead launchers are removed."""
    found = []
    for file in sorted(folder().glob("*.json")) if folder().exists() else ():
        try:
            run = json.loads(file.read_text())
            if is_running(int(run["launcher"])) and told.started(run["launcher"]) == run["began"]:
                found.append({**run, "rows": _rows(Path(run["ranks"]))})
            else:
                file.unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _rows(place: Path) -> list[dict[str, Any]]:
    ranks = {each.process: each for each in told.read(place)}
    found = []
    for file in place.glob(f"*{ENDING}"):
        try:
            row = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        each = ranks.get(row["process"])
        row["joining"] = each is not None and each.came == told.JOINING
        row["state"] = _state(each, row["process"])
        found.append(row)
    return sorted(found, key=lambda row: row["rank"])


def _state(rank: told.Rank | None, process: int) -> str:
    """Reason that keeps a rank from arriving, if there is one."""
    if rank is not None and rank.status is not None:
        return f"has ended with status {rank.status}"
    if not is_running(process) or (rank is not None and rank.began and told.started(process) != rank.began):
        return "is gone"
    return STOPPED if is_stopped(process) else ""


def sentence(row: Mapping[str, Any], now: float) -> str:
    """One sentence on a rank's state, for `status`.

    >>> sentence({"rank": 1, "process": 7, "state": "", "joining": False, "line": "a.py:3", "calls": []}, 0.0)
    'rank 1: process 7, at a.py:3'
    """
    calls = [f"in {_name(call)} at {call['line']} since {now - call['since']:.1f} s" for call in row["calls"]]
    does = row["state"] or ("in MPI's start" if row["joining"] else ", ".join(calls) or f"at {row['line']}")
    return f"rank {row['rank']}: process {row['process']}, {does}"


def diagnosis(run: Mapping[str, Any], now: float | None = None) -> list[str]:
    """Sentences that say who hangs and who waits for whom; none where all is well.

    >>> call = {"operation": "barrier", "ranks": [0, 1], "number": 3, "peer": None, "since": 0.0, "line": "a.py:9"}
    >>> late = {"rank": 1, "process": 6, "state": "", "joining": False, "time": 20.0, "line": "a.py:4", "calls": [],
    ...         "counts": [[0, 1, 2]]}
    >>> waits = {**late, "rank": 0, "process": 5, "calls": [call], "counts": [[0, 1, 3]]}
    >>> for line in diagnosis({"count": 2, "rows": [waits, late]}, now=20.0):
    ...     print(line)
    rank 0 (process 5) waits in barrier at a.py:9 since 20 s for rank 1
    rank 1 (process 6), for which others wait, is at a.py:4
    """
    now = time.time() if now is None else now
    rows = {row["rank"]: row for row in run["rows"]}
    found, wanted = [], set()
    for row in rows.values():
        if row["state"]:
            continue
        for waits, since, others, why in _waits(row, rows, run["count"]):
            if now - since > HANG_S:
                wanted |= set(others)
                found.append(f"{_who(row)} waits in {waits} since {now - since:.0f} s {why}")
    named = {row["rank"] for row in rows.values() if row["calls"] and not row["state"]}
    for rank, row in rows.items():
        if row["state"] == STOPPED or (rank in wanted and row["state"]):
            found.append(f"{_who(row)} {row['state']}; it was at {row['line']}")
        elif rank in wanted - named:
            silent = f", and has said nothing for {now - row['time']:.0f} s" if now - row["time"] > HANG_S else ""
            found.append(f"{_who(row)}, for which others wait, is at {row['line']}{silent}")
    return found


def lines_down(run: Mapping[str, Any]) -> list[str]:
    """Hosts of a launch that do not answer, a sentence each: asked where ranks wait.

    >>> lines_down({"hosts": [["localhost", 1], ["far.example", 2]], "agent": "false"})
    ['far.example, the host of ranks 1, 2, does not answer: it is off, or the line to it is down']
    """
    down, first = [], 0
    for host, count in run.get("hosts", ()):
        ranks = range(first, first + count)
        first += count
        if not is_reachable(host, run.get("agent", "")):
            numbers = ("rank " if count == 1 else "ranks ") + ", ".join(map(str, ranks))
            down.append(f"{host}, the host of {numbers}, does not answer: it is off, or the line to it is down")
    return down


def _waits(row: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]], count: int
           ) -> Iterator[tuple[str, float, list[int], str]]:
    """In what a rank waits, since when, for whom, and that as words."""
    if row["joining"]:
        late = [rank for rank in range(count) if rank not in rows or not (rows[rank]["joining"] or rows[rank]["calls"])]
        yield "MPI's start", row["time"], late, _for(late, rows)
    for call in row["calls"]:
        where = f"{_name(call)} at {call['line']}"
        if call["peer"] is not None:
            yield where, call["since"], [call["peer"]], _for([call["peer"]], rows)
            continue
        late = [rank for rank in call["ranks"] if rank != row["rank"] and (
            rank not in rows or rows[rank]["state"] or _came(rows[rank], call["ranks"]) < call["number"])]
        others = [f"rank {rank} in {_name(other)} at {other['line']}" for rank in call["ranks"] if rank in rows
                  for other in rows[rank]["calls"] if other["ranks"] == call["ranks"]
                  and other["number"] == call["number"] and other["operation"] != call["operation"]]
        if others:
            yield where, call["since"], late, f"while the others are elsewhere: {', '.join(others)}"
        else:
            unheard = ", ".join(map(str, call.get("silent", ())))
            ranks = f"{'ranks' if ',' in unheard else 'rank'} {unheard}"
            why = f", and hears nothing of {ranks}: the line between their hosts is down" if unheard else ""
            yield where, call["since"], late, _for(late, rows) if late else f"though all ranks have come to it{why}"


def _came(row: Mapping[str, Any], ranks: Sequence[int]) -> int:
    """How many collectives of these ranks a rank has come to."""
    return next((int(each[-1]) for each in row["counts"] if each[:-1] == [*ranks]), 0)


def _for(ranks: Sequence[int], rows: Mapping[int, Any]) -> str:
    words = [str(rank) if rank in rows else f"{rank} (not seen from this machine)" for rank in ranks]
    return "for " + ("rank " if len(words) == 1 else "ranks ") + ", ".join(words)


def _name(call: Mapping[str, Any]) -> str:
    if call["peer"] is None:
        return str(call["operation"])
    return f"{call['operation']} {'to' if call['operation'] == 'send' else 'from'} rank {call['peer']}"


def _who(row: Mapping[str, Any]) -> str:
    return f"rank {row['rank']} (process {row['process']})"
