"""Worker processes of a scheduler: each of its threads borrows one for a call. One that dies is replaced, and its call
made again: no task is lost with a worker.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, TaskError, fail
from morpho.runtime.tasks.futures import function_name
from morpho.runtime.tasks.processes import worker
from morpho.runtime.tasks.processes.message import Message, pack, unpack

MOST_PROCESSES = 256


class WorkerProcess:
    """One process and the pipe to it."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker.run, args=(theirs,), daemon=True, name=f"morpho-worker-{number}")
        self.process.start()
        theirs.close()
        self.calls = 0

    def call(self, chosen: settings.Settings, message: Message) -> tuple[bool, Any]:
        """Whether it went well, and the answer; raises EOFError or OSError where the process is gone."""
        self.calls += 1
        self.pipe.send((chosen, message))
        found: tuple[bool, Any] = self.pipe.recv()
        return found

    def end(self) -> None:
        """Close the pipe and wait for the process."""
        try:
            self.pipe.send(None)
        except OSError:
            pass
        self.pipe.close()
        self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ProcessPool:
    """So many processes, started when they are first needed; `retries` is how many deaths a call may cost."""

    def __init__(self, count: int, retries: int = 3) -> None:
        if not isinstance(count, int) or not 1 <= count <= MOST_PROCESSES:
            raise fail(ArgumentError, "tasks", f"processes={count!r} is not a number from 1 to {MOST_PROCESSES}")
        self.count, self.retries, self.deaths = count, retries, 0
        self._lock = threading.Lock()
        self._free: list[WorkerProcess] = []
        self._made = 0
        self._closed = False

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """`function(*arguments)` in one of the processes."""
        try:
            message = pack((function, arguments))
        except Exception as error:
            raise fail(ArgumentError, "tasks", f"{function_name(function)} or its arguments cannot go to another "
                       f"process: {error}", "use functions of a module, not of a function or of the prompt",
                       line="") from None
        try:
            for _ in range(self.retries + 1):
                held = self._taken()
                try:
                    well, answer = held.call(_chosen(self.count), message)
                except (EOFError, OSError):
                    self._replace(held)
                    continue
                self._give_back(held)
                return self._result(well, answer)
        finally:
            message.drop()
        raise fail(TaskError, "tasks", f"task {function_name(function)!r} ended its process {self.retries + 1} times")

    @staticmethod
    def _result(well: bool, answer: Message) -> Any:
        try:
            value = unpack(answer)
        finally:
            answer.drop()
        if well:
            return value
        raise value

    def _taken(self) -> WorkerProcess:
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            return WorkerProcess(self._made - 1)

    def _give_back(self, held: WorkerProcess) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(held)
                return
        held.end()

    def _replace(self, held: WorkerProcess) -> None:
        with self._lock:
            self.deaths += 1
        held.process.join(1.0)
        held.end()

    def close(self) -> None:
        """End all processes; those at work end when they are given back."""
        with self._lock:
            self._closed, ended, self._free = True, self._free, []
        for held in ended:
            held.end()

    def identifiers(self) -> list[int]:
        """The system's numbers of the processes that wait for work."""
        with self._lock:
            return [held.process.pid for held in self._free if held.process.pid is not None]


def _chosen(count: int) -> settings.Settings:
    """The settings in force here; a worker has its share of the cores unless they say otherwise."""
    found = settings.get()
    return found if found.threads else replace(found, threads=1)
