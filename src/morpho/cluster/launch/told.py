"""Reports of the ranks of this machine to their launcher, each in a file of its own: mpiexec's status does not say it.

mpiexec ends with 0 where all ranks were killed, and ranks that have come to MPI's start wait there for ever for one
that ended before. Ranks of other hosts do not see the folder and tell nothing: of those mpiexec's status is all
there is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

BEGUN, JOINING, JOINED = range(3)  # how far a rank has come: started, in MPI's start, past it
KILLED = 137  # the status of a process that SIGKILL ended, as shells say it
AGAIN = 75  # the status of ranks that saved what they know, to be started anew with more: sysexits' "try again later"


@dataclass(frozen=True)
class Rank:
    """How far a rank has come, and its exit status once it has one; its number, and after ranks were lost the numbers
    of those it ended with."""

    process: int
    began: int
    came: int
    status: int | None
    number: int = -1
    left: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is gone."""
        return self.status is not None or bool(self.began and started(self.process) != self.began)


def started(number: int) -> int:
    """When a process began, in the system's ticks; 0 where the system does not say: another one may have its number.

    >>> started(-1)
    0
    """
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(words[19]) if len(words) > 19 and words[0] not in "ZX" else 0


class Telling:
    """A rank's own file; without a folder nothing is written."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._came = BEGUN
        self._number = -1

    @property
    def is_heard(self) -> bool:
        """Whether the launcher reads what this rank tells: it does not where it runs on another host."""
        return self._file is not None

    def begin(self, folder: str, number: int = -1) -> None:
        """This rank has started."""
        if os.path.isdir(folder):
            self._file, self._number = Path(folder) / str(os.getpid()), number
            self.tell()

    def tell(self, came: int | None = None, status: int | None = None, left: tuple[int, ...] = ()) -> None:
        """How far this rank is; a launcher that is gone, or a full disk, is no reason to fail."""
        if came == self._came and status is None:
            return
        self._came = self._came if came is None else came
        if self._file is None or int(self._file.name) != os.getpid():  # a child of a rank is none
            return
        words = [self._came, started(os.getpid()), "-" if status is None else status, self._number, *left]
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_text(" ".join(map(str, words)))
            fresh.replace(self._file)
        except OSError:
            pass


telling = Telling()


def read(folder: Path) -> list[Rank]:
    """The reports so far.

    >>> read(Path("nowhere"))
    []
    """
    found = []
    for file in folder.glob("*"):
        try:
            words = file.read_text().split()
        except OSError:
            continue
        if file.name.isdigit() and len(words) >= 2:
            status, *numbers = words[2:] or ["-"]
            number, *left = map(int, numbers or ["-1"])
            found.append(Rank(int(file.name), int(words[1]), int(words[0]), None if status == "-" else int(status),
                              number, tuple(left)))
    return found


def is_stuck(ranks: list[Rank]) -> bool:
    """Whether a rank waits in MPI's start for one that is gone.

    >>> is_stuck([Rank(-1, 0, JOINING, None), Rank(-1, 0, BEGUN, 1)]), is_stuck([Rank(-1, 0, JOINED, 1)])
    (True, False)
    """
    waits = any(rank.came == JOINING and rank.status is None for rank in ranks)
    return waits and any(rank.came < JOINED and rank.is_over for rank in ranks)


def has_left(ranks: list[Rank]) -> bool:
    """Whether ranks went on without others, and those of them that are heard have all ended, one at least well.

    >>> has_left([Rank(-1, 0, JOINED, 0, 0, (0, 2)), Rank(-1, 0, JOINED, None, 1)])
    True
    >>> has_left([Rank(-1, 0, JOINED, 0, 0, (0, 2)), Rank(-1, 0, JOINED, None, 2)])
    False
    """
    living = {number for rank in ranks if rank.status == 0 for number in rank.left}
    return bool(living) and all(rank.is_over for rank in ranks if rank.number in living)


def verdict(status: int, ranks: list[Rank], count: int) -> int:
    """The status of a job: well where mpiexec and one rank at least ended well, otherwise what a rank that failed said.
    `AGAIN` where one rank says it, which ranks do when all that live have agreed.

    >>> verdict(0, [Rank(-1, 0, JOINED, 3), Rank(-1, 0, JOINED, None)], 2)
    3
    """
    said = [rank.status for rank in ranks if rank.status is not None]
    if AGAIN in (*said, status):
        return AGAIN
    if status not in (0, KILLED) or (status == 0 and (len(ranks) < count or 0 in said)):
        return status
    return next((each for each in said if each), status or KILLED)
