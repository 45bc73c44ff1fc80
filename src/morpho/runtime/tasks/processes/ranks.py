"""Tasks on the ranks of a group: rank 0 has the scheduler, the others serve it.

A call is three messages: how long it is, its bytes, and the answer's two. Between hosts there is no shared memory, so
arrays travel in the message. A rank that dies is left out, and its call made on another one.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, GroupError, TaskError, fail
from morpho.runtime.groups.group import Group
from morpho.runtime.tasks.futures import function_name
from morpho.runtime.tasks.processes import worker
from morpho.runtime.tasks.processes.message import Message, unpack

CALL, ANSWER = 7101, 7102  # tags


class RankPool:
    """The other ranks of a group, of which each does one call at a time."""

    def __init__(self, group: Group, retries: int = 3) -> None:
        if group.rank or group.size < 2:
            raise fail(ArgumentError, "tasks", f"rank {group.rank} of {group.size} has nobody to give tasks to",
                       "rank 0 makes the scheduler, the others call mo.tasks.serve(group)")
        self.group, self.count, self.retries, self.deaths = group, group.size - 1, retries, 0
        self._lock = threading.Condition()
        self._free = list(range(1, group.size))
        self._alive = len(self._free)

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """`function(*arguments)` on one of the ranks."""
        call = _bytes((function, arguments))
        for _ in range(self.retries + 1):
            rank = self._taken()
            try:
                send(self.group, rank, call, CALL)
                answer = receive(self.group, rank, ANSWER).tobytes()
            except GroupError:
                with self._lock:
                    self.deaths += 1
                    self._alive -= 1
                    self._lock.notify_all()
                continue
            with self._lock:
                self._free.append(rank)
                self._lock.notify()
            well, value = ForkingPickler.loads(answer)  # which may fail: the rank is free again by now
            if well:
                return value
            raise value
        raise fail(TaskError, "tasks", f"task {function_name(function)!r} ended its rank {self.retries + 1} times")

    def _taken(self) -> int:
        with self._lock:
            while not self._free:
                if not self._alive:
                    raise fail(TaskError, "tasks", "every rank that could run tasks has died")
                self._lock.wait()
            return self._free.pop()

    def close(self) -> None:
        """Let the ranks go."""
        for rank in self._free:
            send(self.group, rank, np.zeros(0, np.uint8), CALL)


def serve(group: Group) -> int:
    """Run tasks that rank 0's `Scheduler(group=group)` gives this rank, until it is closed; how many there were."""
    if group.rank == 0:
        raise fail(ArgumentError, "tasks", "rank 0 gives the tasks", "make a Scheduler(group=group) there")
    done = 0
    while True:
        call = receive(group, 0, CALL)
        if not call.size:
            return done
        done += 1
        well, answer = worker.answer((_settings(), Message(call.tobytes())))
        send(group, 0, _bytes(_read(well, answer)), ANSWER)


def _read(well: bool, answer: Message) -> tuple[bool, Any]:
    """An answer as it travels between hosts; one that cannot be read is the task's failure, not this rank's."""
    try:
        return well, unpack(answer)
    except Exception as error:
        return False, unpack(worker.carried(error))
    finally:
        answer.drop()


def _settings() -> Any:
    from morpho.base import settings

    return settings.get()


def _bytes(value: Any) -> np.ndarray:
    """A value with all that belongs to it in one array of bytes."""
    head = io.BytesIO()
    try:
        ForkingPickler(head, 5).dump(value)
    except Exception as error:
        raise fail(ArgumentError, "tasks", f"a task cannot go to another process: {error}",
                   "use functions of a module, not of a function or of the prompt") from None
    return np.frombuffer(head.getvalue(), np.uint8).copy()


def send(group: Group, rank: int, data: np.ndarray, tag: int) -> None:
    """An array of bytes whose length the other side does not know."""
    group.send(np.asarray([data.size], np.int64), rank, tag)
    if data.size:
        group.send(data, rank, tag)


def receive(group: Group, rank: int, tag: int) -> np.ndarray:
    """Receive what `send` sent."""
    length = np.empty(1, np.int64)
    group.recv(length, rank, tag)
    data = np.empty(int(length[0]), np.uint8)
    if data.size:
        group.recv(data, rank, tag)
    return data
