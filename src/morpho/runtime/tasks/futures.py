"""A future: the promised result of a task, and the one place where tasks change state.

A task is pending while it lacks the results of others, then ready, running, and in the end done, failed or cancelled.
Every change happens under one lock of the process, held for a few lines only; so futures of several schedulers may
depend on each other. What must happen at the end (wake who waits, feed or fail who depends, call back) is kept as a
list of links on the future.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextvars import Context
from enum import Enum
from numbers import Real
from types import TracebackType
from typing import Any, Protocol

from morpho.base.errors import ArgumentError, TaskError, TaskTimeout, fail, sentence


class Scheduler(Protocol):
    """Interface of schedulers for futures; `scheduler.py` implements it."""

    _pending: set[Any]

    def _wait_for(self, future: Any, timeout: float | None) -> bool:
        """Work or sleep until a future ends; False where the time is over first."""
        ...

    def _stir(self) -> None:
        """Have somebody look for work."""
        ...

    def _forget(self, future: Any) -> None:
        """A future that waits no more."""
        ...

    def _rise(self, change: int) -> None:
        """So many more of its workers are awake."""
        ...

    def _push(self, task: Any) -> None:
        """Queue a task."""
        ...


log = logging.getLogger("morpho")
PENDING, READY, RUNNING, DONE, FAILED, CANCELLED = range(6)  # from DONE on it is over
WORDS = ("waiting for others", "waiting for a thread", "running", "done", "failed", "cancelled")

lock = threading.RLock()  # re-entrant: a finaliser may submit or cancel wherever memory is allocated
epoch = 0  # counts forks: what another process was to run never ends here


class Link(Enum):
    """Callback of a future's end, run in order; callbacks may take long."""

    WAITER = 1  # wake a thread
    DEPENDENT = 2  # a task lacks one result less, or fails
    CALLBACK = 3


class Waiter:
    """A thread asleep until a future ends; `scheduler` where it is a worker that gave up its place meanwhile."""

    __slots__ = ("gate", "returned", "scheduler")

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.scheduler, self.returned = scheduler, False


def function_name(function: Callable[..., Any]) -> str:
    """Name of a function in messages."""
    return str(getattr(function, "__name__", type(function).__name__))


class Future:
    """The result of a task, once there is one.

    >>> import morpho as mo
    >>> future = mo.tasks.submit(pow, 2, 10)
    >>> future.result(), future.done()
    (1024, True)
    """

    __slots__ = ("_arguments", "_context", "_epoch", "_function", "_links", "_missing", "_name", "_needs",
                 "_scheduler", "_state", "_value", "_waits_for", "__weakref__")

    def __init__(self, scheduler: Scheduler, function: Callable[..., Any], arguments: tuple[Any, ...],
                 context: Context, name: str | None) -> None:
        self._scheduler, self._function, self._arguments, self._context = scheduler, function, arguments, context
        self._name = name
        self._state, self._epoch = READY, epoch
        self._missing = 0
        self._value: Any = None
        self._links: list[tuple[Link, Any]] | None = None
        self._needs: list[Future] | None = None
        self._waits_for: Future | None = None

    @property
    def name(self) -> str:
        """The name given at `submit`, or the function's."""
        return self._name or function_name(self._function)

    def done(self) -> bool:
        """Whether it is over: with a result, failed or cancelled."""
        return self._state >= DONE

    def cancelled(self) -> bool:
        """Whether it was cancelled before it began."""
        return self._state == CANCELLED

    def running(self) -> bool:
        """Whether a worker is at it."""
        return self._state == RUNNING

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result; raises what the task raised, `TaskError` where it could not run, `TaskTimeout` after
        `timeout` seconds. Inside a task this runs the awaited task itself, or lends its worker's place meanwhile."""
        self._await(timeout)
        if self._state == DONE:
            return self._value
        error, trace = self._value
        try:
            raise error.with_traceback(trace)
        finally:
            del self, error, trace  # the traceback holds this frame: no cycle through it

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, then give what `result` would raise, or None."""
        self._await(timeout)
        return None if self._state == DONE else self._value[0]

    def cancel(self) -> bool:
        """Keep it from running, if it has not begun: True, and what depends on it fails. False when it is too late."""
        error = TaskError(sentence("tasks", f"task {self.name!r} was cancelled", line=""))
        return complete(self, CANCELLED, (error, None), only_before=RUNNING)

    def add_done_callback(self, function: Callable[[Future], Any]) -> None:
        """Call `function(future)` at the end, in the thread that brings it about; at once if it is over already."""
        if not callable(function):
            raise fail(ArgumentError, "tasks", f"a callback cannot be {type(function).__name__}", "pass a function")
        with lock:
            if self._state < DONE:
                self._link(Link.CALLBACK, function)
                return
        _call_back(function, self)

    def __repr__(self) -> str:
        return f"<task {self.name} {WORDS[self._state]}>"

    # -- waiting -------------------------------------------------------------------------------------------------------
    def _await(self, timeout: float | None) -> None:
        if timeout is not None:
            timeout = seconds(timeout)
        if self._state < DONE and not self._scheduler._wait_for(self, timeout):
            raise fail(TaskTimeout, "tasks", f"task {self.name!r} is still {WORDS[self._state]} after {timeout:g} s",
                       "it goes on: ask again, or cancel it")

    def _link(self, kind: Link, target: Any) -> None:
        if self._links is None:
            self._links = []
        self._links.append((kind, target))

    def _enlist(self, waiter: Waiter) -> bool:
        """Wake `waiter` at the end; False when it is over already. The caller holds the lock."""
        if self._state >= DONE:
            return False
        if self._epoch != epoch:
            raise fail(TaskError, "tasks", f"task {self.name!r} was submitted before this process was forked",
                       "submit it again here")
        self._link(Link.WAITER, waiter)
        return True

    def _sleep(self, waiter: Waiter, timeout: float | None) -> bool:
        """Sleep until it is over; False after `timeout` seconds. An interrupt leaves nothing behind."""
        try:
            return waiter.gate.acquire(timeout=-1 if timeout is None else max(timeout, 0)) or self._state >= DONE
        finally:
            with lock:
                if self._links and (Link.WAITER, waiter) in self._links:
                    self._links.remove((Link.WAITER, waiter))

    def _block(self, timeout: float | None) -> bool:
        """Wait as a plain thread does."""
        waiter = Waiter()
        with lock:
            if not self._enlist(waiter):
                return True
        return self._sleep(waiter, timeout)


def seconds(timeout: float) -> float:
    """A time to wait that a lock takes."""
    if not isinstance(timeout, Real) or timeout != timeout:
        raise fail(ArgumentError, "tasks", f"timeout={timeout!r} is not a number of seconds", "None waits for ever")
    return min(max(float(timeout), 0.0), threading.TIMEOUT_MAX)


def _call_back(function: Callable[[Future], Any], future: Future) -> None:
    future._scheduler._stir()  # it may take long
    try:
        function(future)
    except (Exception, SystemExit):
        log.exception("a callback of %r failed", future)


# -- changes of state --------------------------------------------------------------------------------------------------
def claim(future: Future) -> bool:
    """Take a ready task to run it; one thread only gets it, and none after a cancel."""
    with lock:
        if future._state != READY:
            return False
        future._state = RUNNING
        return True


def complete(future: Future, state: int, value: Any, only_before: int = DONE) -> bool:
    """End a task and do what its links ask for, and whatever ends by that; False when its state is too late for it."""
    first = _end(future, state, value, only_before)
    if not first:
        return first is not None
    stack = [(future, first)]
    while stack:  # a failure runs down long chains: no recursion
        future, links = stack.pop()
        for kind, target in sorted(links, key=lambda link: link[0].value):
            if kind is Link.WAITER:
                target.gate.release()
            elif kind is Link.CALLBACK:
                _call_back(target, future)
            elif future._state == DONE:
                _feed(target)
            else:
                failed = _end(target, FAILED, (unmet(target, future), None), RUNNING)
                if failed is not None:
                    stack.append((target, failed))
    return True


def _end(future: Future, state: int, value: Any, only_before: int) -> list[tuple[Link, Any]] | None:
    """Write the end; its links, or None when it is too late."""
    with lock:
        if future._state >= only_before:
            return None
        if future._name is None:
            future._name = future.name  # the function it comes from is dropped
        if future._state == PENDING:
            future._scheduler._forget(future)
        future._value = value
        future._state = state  # after the value: `result` looks at the state without the lock
        # In a forked child, whoever waited for or depended on the task that forked is not there.
        links, future._links = future._links or [] if future._epoch == epoch else [], None
        dropped = future._function, future._arguments, future._context, future._needs
        future._function = future._arguments = future._context = future._needs = None  # type: ignore[assignment]
        for kind, waiter in links:
            # A worker that waits gets its place back now, not when it wakes: whoever ends this task then steps aside.
            if kind is Link.WAITER and waiter.scheduler is not None and not waiter.returned:
                waiter.returned = True
                waiter.scheduler._rise(1)
    del dropped  # outside the lock: finalisers may take their time
    return links


def _feed(task: Future) -> None:
    """Give a task one of the results it waits for."""
    with lock:
        if task._state != PENDING:
            return
        task._missing -= 1
        if task._missing:
            return
        task._state = READY
        task._scheduler._push(task)  # queued before it is no longer pending: a scheduler that closes sees it throughout
        task._scheduler._pending.discard(task)


def hold(future: Future, needs: list[Future]) -> bool:
    """Make a new task wait for others; True when it need not, False when it is pending or failed by that."""
    with lock:
        future._needs = needs
        waiting = [need for need in needs if need._state < DONE]
        broken = next((need for need in needs if need._state > DONE), None) or next(
            (need for need in waiting if need._epoch != epoch), None)
        if broken is None:
            future._missing = len(waiting)
            if waiting:
                future._state = PENDING
                future._scheduler._pending.add(future)
                for need in waiting:
                    need._link(Link.DEPENDENT, future)
            return not waiting
        future._missing = 1
    complete(future, FAILED, (unmet(future, broken), None))
    return False


def unmet(task: Future, need: Future) -> TaskError:
    """Why a task did not run: the failure at the beginning of the chain is the cause and is named."""
    if need._state < DONE:
        return TaskError(sentence("tasks", f"task {task.name!r} needs {need.name!r}, which was submitted before this "
                                           "process was forked", "submit it again here", line=""))
    error = need._value[0]
    origin = getattr(error, "task", None) if need._missing else None
    name, cause = (need.name, error) if origin is None else (origin, error.__cause__)
    what = "was cancelled" if need._state == CANCELLED else f"failed with {type(cause).__name__}: {cause}"
    made = TaskError(sentence("tasks", f"task {task.name!r} did not run: {name!r}, which it needs, {what}", line=""))
    made.task = name
    made.__cause__ = cause
    return made


def would_wait_for_itself(task: Future, future: Future) -> bool:
    """Whether `future` cannot end before `task` does. The caller holds the lock."""
    stack, seen = [future], set()
    while stack:
        found = stack.pop()
        if found is task:
            return True
        if found._state >= DONE or found in seen:
            continue
        seen.add(found)
        if found._waits_for is not None:
            stack.append(found._waits_for)
        elif found._state == PENDING and found._needs:
            stack.extend(found._needs)
    return False


def stripped(error: BaseException) -> tuple[BaseException, TracebackType | None]:
    """An error with the traceback from the task's own function on: the scheduler's frame is left out, which would
    also hold the future that holds the error."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return error.with_traceback(trace), trace


def _after_fork() -> None:
    global lock, epoch
    lock = threading.RLock()
    epoch += 1


os.register_at_fork(after_in_child=_after_fork)
