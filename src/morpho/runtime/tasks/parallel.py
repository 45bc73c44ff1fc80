"""Parallel map, reduce and graphs of tasks on a scheduler.

A map's items are taken in chunks, in order, by whichever worker is free: the chunks grow until one takes about half a
millisecond, and shrink towards the end, so cheap items cost little and costly, uneven ones are spread evenly. A reduce
follows a tree that depends on the number of items alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, ValueFault, fail
from morpho.runtime.tasks.calls import Here
from morpho.runtime.tasks.futures import Future, stripped
from morpho.runtime.tasks.scheduler import Scheduler, current_worker

FAR_CHUNK_S = 20e-3  # in another process
CHUNK_S = 0.5e-3  # a chunk is to take about this long: hundreds of times what taking it costs
BLOCKS_PER_THREAD = 8  # subtrees of a reduction per thread, at least
MISSING: Any = object()


class Gather:
    """One map: where it stands, and its results."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], chunk: int | None, threads: int,
                 pool: Any = None) -> None:
        self.function, self.items, self.chunk, self.threads, self.pool = function, items, chunk, threads, pool
        self.chunk_s = CHUNK_S if pool is None else FAR_CHUNK_S
        self.results: list[Any] = [None] * len(items)
        self.lock = threading.Lock()
        self.next = self.finished = 0
        self.spent_s = 0.0
        self.stopped = False
        self.failure: tuple[int, BaseException, TracebackType | None] | None = None

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to take."""
        return self.stopped or self.next >= len(self.items)

    def _take(self) -> range:
        """The next items; none when all are taken or something failed."""
        with self.lock:
            left = 0 if self.stopped else len(self.items) - self.next
            size = min(self.chunk or self._adapted(left), left)
            start, self.next = self.next, self.next + size
            return range(start, start + size)

    def _adapted(self, left: int) -> int:
        if not self.finished:
            return 1
        fitting = int(self.chunk_s * self.finished / max(self.spent_s, 1e-9))
        return max(1, min(fitting, left // (2 * self.threads)))

    def run(self) -> None:
        """Take chunks and work on them until none is left."""
        while part := self._take():
            began = time.perf_counter()
            done, error = self._apply([self.items[index] for index in part])
            self.results[part.start:part.start + len(done)] = done
            if error is not None:
                self._fail(part.start + len(done), error)
                return
            with self.lock:
                self.spent_s += time.perf_counter() - began
                self.finished += len(part)

    def _apply(self, items: list[Any]) -> tuple[list[Any], BaseException | None]:
        """The results of some items, here or in a process, up to the one that fails."""
        if self.pool is None:
            return apply_all(self.function, items)
        try:
            found: tuple[list[Any], BaseException | None] = self.pool.call(apply_all, (self.function, items))
            return found
        except BaseException as error:
            return [], error

    def _fail(self, index: int, error: BaseException) -> None:
        """Keep the failure of the least index. Chunks are taken in order and finished, so that is always the one a
        plain loop would have met."""
        with self.lock:
            self.stopped = True
            if self.failure is None or index < self.failure[0]:
                self.failure = (index, *stripped(error))

    def outcome(self) -> list[Any]:
        """The results, or what the first failing item raised."""
        if self.failure is None:
            return self.results
        _, error, trace = self.failure
        try:
            raise error.with_traceback(trace)
        finally:
            del self, error, trace


def apply_all(function: Callable[[Any], Any], items: Sequence[Any]) -> tuple[list[Any], BaseException | None]:
    """The results of items in turn, and what the first one to fail raised.

    >>> apply_all(len, ["a", "bc"])
    ([1, 2], None)
    """
    done: list[Any] = []
    for item in items:
        try:
            done.append(function(item))
        except BaseException as error:
            return done, error
    return done, None


def _listed(items: Iterable[Any]) -> Sequence[Any]:
    if not isinstance(items, Iterable) and not hasattr(items, "__getitem__"):
        raise fail(ArgumentError, "tasks", f"{type(items).__name__} is no list of items", "pass a list or an iterator")
    return items if isinstance(items, list | tuple | range) else list(items)


def parallel_map(scheduler: Scheduler, function: Callable[[Any], Any], items: Iterable[Any],
                 chunk: int | None = None) -> list[Any]:
    """`[function(item) for item in items]`, on all threads; inside a task the calling worker takes part."""
    if not callable(function):
        raise fail(ArgumentError, "tasks", f"{type(function).__name__} is not a function")
    chunk = _checked_chunk(chunk)
    taken = _listed(items)
    gather = Gather(function, taken, chunk, scheduler.threads, scheduler.pool)
    name = f"map of {getattr(function, '__name__', 'function')}"
    worker = current_worker()
    inside = worker is not None and worker.scheduler is scheduler
    others = min(scheduler.threads, len(taken)) - inside
    runners = [scheduler.submit(Here(gather.run), name=name) for _ in range(others)]
    try:
        if inside:
            gather.run()
        for runner in runners:
            # Once nothing is left to take, those still queued behind other tasks are not needed.
            if not (gather.exhausted and runner.cancel()):
                runner.result()
    finally:
        gather.stopped = True  # an interrupt: what is running ends with its chunk
    return gather.outcome()


def _checked_chunk(chunk: Any) -> int | None:
    if chunk is None:
        return None
    if isinstance(chunk, Iterable):  # the second sequence that Python's own map would take
        raise fail(ArgumentError, "tasks", "map takes one sequence of items, and was given another one after it",
                   "write map(lambda pair: function(*pair), zip(first, second))")
    number = as_whole(chunk)
    if number is None or number < 1:
        raise fail(ArgumentError, "tasks", f"chunk={chunk!r} is not a positive number of items",
                   "leave it out to have it chosen")
    return number


def parallel_reduce(scheduler: Scheduler, function: Callable[[Any, Any], Any], items: Iterable[Any],
                    initial: Any = MISSING, map: Callable[[Any], Any] | None = None) -> Any:
    """Join neighbours, then neighbours of those, and so on: the same tree, hence the same bits, for any threads."""
    taken = _listed(items)
    if not callable(function):
        raise fail(ArgumentError, "tasks", f"{type(function).__name__} is not a function")
    if not taken:
        if initial is MISSING:
            raise fail(ValueFault, "tasks", "nothing cannot be reduced", "give initial=")
        return initial
    # A block of 2**k items that begins at a multiple of 2**k is a subtree: its size changes no result.
    size = 1
    while size * 2 * BLOCKS_PER_THREAD * scheduler.threads <= len(taken):
        size *= 2

    blocks = [taken[start:start + size] for start in range(0, len(taken), size)]
    values = parallel_map(scheduler, partial(_joined, function, map), blocks)
    while len(values) > 1:
        pairs = [values[i:i + 2] for i in range(0, len(values), 2)]
        values = parallel_map(scheduler, partial(_joined, function, None), pairs)
    return values[0] if initial is MISSING else function(initial, values[0])


def _joined(function: Callable[[Any, Any], Any], map: Callable[[Any], Any] | None, items: Sequence[Any]) -> Any:
    """A subtree of a reduction."""
    values = list(items) if map is None else [map(value) for value in items]
    while len(values) > 1:
        values = [function(*values[i:i + 2]) if i + 1 < len(values) else values[i] for i in range(0, len(values), 2)]
    return values[0]


def submit_graph(scheduler: Scheduler, tasks: Mapping[str, Sequence[Any]]) -> dict[str, Future]:
    """Submit named tasks; an argument that is the name of one stands for its result."""
    if not isinstance(tasks, Mapping):
        raise fail(ArgumentError, "tasks", f"a graph is a dict of tasks by their names, not {type(tasks).__name__}",
                   "write {name: (function, argument, ...)}")
    for name, task in tasks.items():
        if not isinstance(task, tuple | list) or not task or not callable(task[0]):
            raise fail(ArgumentError, "tasks", f"{name!r} is no task", "write name: (function, argument, ...)")
    made: dict[str, Future] = {}
    for name in _ordered(tasks):
        function, *arguments = tasks[name]
        made[name] = scheduler.submit(function, *(made[a] if _names(tasks, a) else a for a in arguments), name=name)
    return {name: made[name] for name in tasks}


def _names(tasks: Mapping[str, Any], argument: Any) -> bool:
    return isinstance(argument, str) and argument in tasks


def _ordered(tasks: Mapping[str, Sequence[Any]]) -> list[str]:
    """Every task after those it needs; a circle is an error that shows it."""
    ordered: dict[str, None] = {}
    for first in tasks:
        path = [first]  # from a task down to one whose needs are all ordered
        while path:
            name = path[-1]
            missing = next((a for a in tasks[name][1:] if _names(tasks, a) and a not in ordered), None)
            if missing is None:
                ordered[name] = None
                path.pop()
            elif missing in path:
                circle = " -> ".join([*path[path.index(missing):], missing])
                raise fail(ArgumentError, "tasks", f"tasks need each other in a circle: {circle}")
            else:
                path.append(missing)
    return list(ordered)
