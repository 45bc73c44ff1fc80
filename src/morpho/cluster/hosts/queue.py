"""The machines that a queue gave the job this process is a part of: Slurm's list of nodes, PBS's file of them.

>>> expand("fat[01-03,7],login,thin[9-10]-ib")
['fat01', 'fat02', 'fat03', 'fat7', 'login', 'thin9-ib', 'thin10-ib']
"""

from __future__ import annotations

import re
from pathlib import Path

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail

MOST_HOSTS = 1024
_WORD = re.compile(r"((?:[^,\[\]]|\[[^\[\]]*\])+)(?:,|$)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> list[str]:
    """The hosts of a list as Slurm writes it: names with ranges in brackets, by commas."""
    if "".join(match[0] for match in _WORD.finditer(text)) != text:
        raise fail(ArgumentError, "hosts", f"SLURM_JOB_NODELIST={text!r} is no list of nodes", line="")
    return [name for match in _WORD.finditer(text) for name in _expanded(match[1], text)]


def _expanded(word: str, whole: str) -> list[str]:
    """One name with its first range in all its values; the rest is expanded after it."""
    before, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, after = rest.partition("]")
    found: list[str] = []
    for part in inside.split(","):
        ends = _RANGE.fullmatch(part)
        if ends is None:
            raise fail(ArgumentError, "hosts", f"SLURM_JOB_NODELIST={whole!r} has the range {part!r}", line="")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first or last - first >= MOST_HOSTS:
            raise fail(ArgumentError, "hosts", f"SLURM_JOB_NODELIST={whole!r} has the range {part!r}", line="")
        found += [f"{before}{number:0{len(ends[1])}}" for number in range(first, last + 1)]
    return [name for each in found for name in _expanded(each + after, whole)]


def queue_hosts() -> tuple[str, ...]:
    """The hosts of the job, each once, in the queue's order; outside of a job an error."""
    kind, said = settings.job_hosts()
    if kind == "pbs":
        try:
            names = Path(said).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise fail(ArgumentError, "hosts", f"PBS_NODEFILE={said} cannot be read: {error}", line="") from None
    else:
        names = expand(said) if kind else []
    found = tuple(dict.fromkeys(names))
    if not found:
        raise fail(ArgumentError, "hosts", "this is no job of a queue: neither SLURM_JOB_NODELIST nor PBS_NODEFILE is "
                                           "set", "name the machines in a hosts file", line="")
    if len(found) > MOST_HOSTS:
        raise fail(ArgumentError, "hosts", f"the queue gave {len(found)} hosts, more than {MOST_HOSTS}", line="")
    return found
