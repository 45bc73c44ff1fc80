"""Groups of threads in one process, for tests: the ranks meet in memory, and any of them can be made to die.

The last rank to come to a collective does it for all, in the order of ranks. Ranks that call different collectives are
told so instead of waiting for ever.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from morpho.base.errors import GroupError, MorphoError, PeerLost, fail
from morpho.runtime.groups.group import DONE, Group, Later, Work
from morpho.runtime.groups.reducing import reduce_into

Result = TypeVar("Result")
WAIT_S = 120.0  # a test that waits longer has a bug


@dataclass
class _Meeting:
    """One collective: what each rank came with, and whether it is over."""

    came: dict[int, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)
    over: bool = False
    error: MorphoError | None = None
    value: Any = None


class _World:
    """State that the threads of a group share."""

    def __init__(self, members: list[int], died: set[int], condition: threading.Condition) -> None:
        self.members, self.died, self.condition = members, died, condition  # members: numbers among all threads
        self.meetings: dict[Any, _Meeting] = {}
        self.mail: dict[tuple[int, int, int], deque[np.ndarray]] = {}
        self.revoked = False

    def lost(self) -> list[int]:
        """Ranks that died."""
        return [rank for rank, member in enumerate(self.members) if member in self.died]


class ThreadGroup(Group):
    """One rank among threads of this process; `run_threads` makes them."""

    kind = "threads"

    def __init__(self, world: _World, rank: int, epoch: int = 0) -> None:
        self.rank, self.size, self.epoch, self._world, self._count = rank, len(world.members), epoch, world, 0
        self.hosts = ("localhost",) * self.size

    def die(self) -> None:
        """Be gone, as a killed process is: nobody hears of this rank again."""
        with self._world.condition:
            self._world.died.add(self._world.members[self.rank])
            self._world.condition.notify_all()

    def split(self, color: int | None, key: int = 0) -> Group | None:
        def worlds(came: dict[int, tuple[str, tuple[Any, ...]]]) -> dict[int, tuple[_World, int]]:
            found: dict[int, tuple[_World, int]] = {}
            for wanted in {arguments[0] for _, arguments in came.values()} - {None}:
                ranks = sorted((arguments[1], rank) for rank, (_, arguments) in came.items() if arguments[0] == wanted)
                world = _World([self._world.members[rank] for _, rank in ranks], self._world.died,
                               self._world.condition)
                found |= {rank: (world, number) for number, (_, rank) in enumerate(ranks)}
            return found

        found = self._meet("split", worlds, color, key)
        if self.rank not in found:
            return None
        world, rank = found[self.rank]
        return ThreadGroup(world, rank, self.epoch)

    def _run(self, operation: str, wait: bool, *arguments: Any) -> Work:
        if operation == "send":
            buffer, to, tag = arguments
            with self._world.condition:
                self._check_alive(to)
                self._world.mail.setdefault((self.rank, to, tag), deque()).append(buffer.copy())
                self._world.condition.notify_all()
            return DONE
        if operation == "recv":
            work: Work = Later(lambda: self._receive(*arguments), lambda: False)
        else:
            meeting, number = self._come(operation, lambda came: _collective(operation, came), arguments)
            work = Later(lambda: self._until_over(meeting, operation, number), lambda: meeting.over)
        if wait:
            work.wait()
        return work

    def _receive(self, buffer: np.ndarray, source: int, tag: int) -> None:
        world, key = self._world, (source, self.rank, tag)
        with world.condition:
            while not world.mail.get(key):
                self._check_alive(source)
                self._sleep("recv")
            message = world.mail[key].popleft()
        if message.nbytes != buffer.nbytes:
            raise fail(GroupError, "recv", f"rank {source} sent {message.nbytes} bytes where {buffer.nbytes} are taken")
        np.copyto(buffer, message.view(buffer.dtype).reshape(buffer.shape))

    # -- meeting -------------------------------------------------------------------------------------------------------
    def _meet(self, operation: str, act: Callable[[Any], Any], *arguments: Any) -> Any:
        meeting, number = self._come(operation, act, arguments)
        self._until_over(meeting, operation, number)
        return meeting.value

    def _come(self, operation: str, act: Callable[[Any], Any], arguments: tuple[Any, ...]) -> tuple[_Meeting, Any]:
        self._count += 1
        number, world = self._count, self._world
        with world.condition:
            meeting = world.meetings.setdefault(number, _Meeting())
            meeting.came[self.rank] = (operation, arguments)
            if len(meeting.came) == self.size and not world.revoked:
                try:
                    _same(meeting.came)
                    meeting.value = act(meeting.came)
                except MorphoError as error:
                    meeting.error = error
                meeting.over = True
                del world.meetings[number]
                world.condition.notify_all()
        return meeting, number

    def _until_over(self, meeting: _Meeting, operation: str, number: Any) -> None:
        with self._world.condition:
            while not meeting.over:
                self._check_alive()
                self._sleep(operation)
        if meeting.error is not None:
            raise meeting.error

    def _check_alive(self, *ranks: int) -> None:
        world = self._world
        if world.revoked:
            raise fail(PeerLost, "group", "the group was revoked", "shrink() returns the group of living ranks")
        lost = [rank for rank in world.lost() if not ranks or rank in ranks]
        if lost:
            raise fail(PeerLost, "group", f"rank {lost[0]} died", "shrink() returns the group of living ranks")

    def _sleep(self, operation: str) -> None:
        if not self._world.condition.wait(WAIT_S):
            raise fail(GroupError, operation, f"rank {self.rank} waited {WAIT_S:.0f} s for the others")

    # -- survival ------------------------------------------------------------------------------------------------------
    def revoke(self) -> None:
        with self._world.condition:
            self._world.revoked = True
            self._world.condition.notify_all()

    def shrink(self) -> Group:
        world = self._world
        living = self._consensus("shrink", None, lambda came: _World(
            [world.members[rank] for rank in sorted(came)], world.died, world.condition))
        return ThreadGroup(living, living.members.index(world.members[self.rank]), self.epoch + 1)

    def agree(self, flag: bool) -> bool:
        return bool(self._consensus("agree", flag, lambda came: all(said for _, (said,) in came.values())))

    def _consensus(self, operation: str, said: Any, act: Callable[[Any], Any]) -> Any:
        """All living ranks meet, whoever is dead and whatever was revoked."""
        world, key = self._world, (operation, self._consented())
        with world.condition:
            meeting = world.meetings.setdefault(key, _Meeting())
            meeting.came[self.rank] = (operation, (said,))
            while not meeting.over:
                if {*range(self.size)} - {*world.lost()} <= meeting.came.keys():
                    meeting.value, meeting.over = act(meeting.came), True
                    world.condition.notify_all()
                else:
                    self._sleep(operation)
        return meeting.value

    def _consented(self) -> int:
        self._agreements = getattr(self, "_agreements", 0) + 1
        return self._agreements


def _same(came: dict[int, tuple[str, tuple[Any, ...]]]) -> None:
    """That all ranks are at the same collective with buffers of one size and kind."""
    def look(operation: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        plain = operation in ("split", "barrier")
        return (operation, *([] if plain else [(a.size, a.dtype) if isinstance(a, np.ndarray) else a
                                                for a in arguments]))

    looks = {rank: look(*what) for rank, what in came.items()}
    for rank in sorted(looks):
        if looks[rank] != looks[0]:
            raise fail(GroupError, came[0][0], f"rank {rank} calls {looks[rank]} where rank 0 calls {looks[0]}",
                       "every rank of a group calls the same collectives in the same order")


def _collective(operation: str, came: dict[int, tuple[str, tuple[Any, ...]]]) -> None:
    """One collective, done for all ranks."""
    given = [came[rank][1] for rank in range(len(came))]
    if operation == "broadcast":
        for arguments in given:
            np.copyto(arguments[0], given[arguments[1]][0])
    elif operation == "all_reduce":
        _, op, dtype = given[0]
        total = np.empty_like(given[0][0])
        reduce_into(total, [arguments[0] for arguments in given], op, dtype)
        for arguments in given:
            np.copyto(arguments[0], total)
    elif operation == "all_gather":
        whole = np.concatenate([arguments[0].ravel() for arguments in given])
        for arguments in given:
            np.copyto(arguments[1], whole.reshape(arguments[1].shape))
    elif operation == "reduce_scatter":
        _, _, op, dtype = given[0]
        total = np.empty_like(given[0][0])
        reduce_into(total, [arguments[0] for arguments in given], op, dtype)
        for arguments, part in zip(given, np.split(total.ravel(), len(given))):
            np.copyto(arguments[1], part.reshape(arguments[1].shape))
    elif operation == "all_to_all":
        parts = [np.split(arguments[0].ravel(), len(given)) for arguments in given]
        for rank, arguments in enumerate(given):
            np.copyto(arguments[1], np.concatenate([part[rank] for part in parts]).reshape(arguments[1].shape))


def run_threads(size: int, function: Callable[[Group], Result]) -> list[Result]:
    """Run `function(group)` on `size` ranks and return their results. One that raises is dead for the others; the first
    error that is not about a lost rank is raised here.

    >>> def share(group):
    ...     x = np.full(2, group.rank, np.float32)
    ...     group.all_reduce(x)
    ...     return x.tolist()
    >>> run_threads(3, share)
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """
    world = _World([*range(size)], set(), threading.Condition())
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        group = ThreadGroup(world, number)
        try:
            results[number] = function(group)
        except BaseException as error:
            errors.append(error)
            group.die()

    contexts = [contextvars.copy_context() for _ in range(size)]
    threads = [threading.Thread(target=contexts[number].run, args=(rank, number)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerLost)), errors[0])
    return results
