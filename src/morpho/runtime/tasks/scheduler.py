"""The scheduler of Python tasks: workers, each with its own deque, that steal from each other and sleep when idle.

A task submitted from outside goes to a common inbox, first come first served. One that a task submits, or that a
finished task makes ready, goes to the deque of the worker at hand: it takes from the end it puts to, and thieves from
the other end, where the oldest and so largest pieces of work lie. `_awake` counts workers that neither sleep nor wait,
and never rises above `threads` by a submit; it is also what the engine's budget sees (`threads.py`).

A worker whose task waits for another task runs that one itself if nobody has begun it. Otherwise it gives up its place
and a further worker takes it, so that waiting can never stop the others; when the wait is over, the worker that ended
it steps aside.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any

from morpho.backends.driver import threads
from morpho.base.checks import as_whole
from morpho.base.errors import ArgumentError, TaskError, fail
from morpho.runtime.groups.group import Group
from morpho.runtime.tasks import futures
from morpho.runtime.tasks.calls import Here, Named
from morpho.runtime.tasks.futures import DONE, FAILED, RUNNING, Future, Waiter, claim, complete, hold

if TYPE_CHECKING:
    from morpho.runtime.tasks.processes.pool import ProcessPool
    from morpho.runtime.tasks.processes.ranks import RankPool

MOST_THREADS = 1024
MOST_WAITING = 1000  # workers of one scheduler that may wait with another thread in their place
_local = threading.local()
_live: weakref.WeakSet[Scheduler] = weakref.WeakSet()
inline_allowed: Callable[[], bool] = lambda: True  # the tensor floor says no while this thread traces a function


class Worker:
    """One thread, the tasks it has put aside, and what it did."""

    def __init__(self, scheduler: Scheduler, number: int) -> None:
        self.scheduler, self.number, self.epoch = scheduler, number, futures.epoch
        self.deque: deque[Future] = deque()
        self.gate = threading.Lock()  # asleep while it waits for this one
        self.gate.acquire()
        self.task: Future | None = None
        self.ending = False  # its task is over: it looks for another one next
        self.executed = self.stolen = self.inlined = 0
        self.busy_s = 0.0
        self.since: float | None = time.perf_counter()
        self.thread = threading.Thread(target=scheduler._work, args=(self,), daemon=True,
                                       name=f"morpho-task-{number}")

    def rest(self) -> None:
        """No longer awake."""
        if self.since is not None:
            self.busy_s += time.perf_counter() - self.since
            self.since = None

    @property
    def busy_now_s(self) -> float:
        """Seconds awake so far."""
        since = self.since
        return self.busy_s + (0.0 if since is None else time.perf_counter() - since)


def current_worker() -> Worker | None:
    """The worker this thread is, if any; a forked child's thread is none."""
    worker: Worker | None = getattr(_local, "worker", None)
    return worker if worker is not None and worker.epoch == futures.epoch else None


class Scheduler:
    """Runs tasks on at most `threads` threads at a time (default: the setting, or every core this process really has).

    >>> import morpho as mo
    >>> with mo.tasks.Scheduler(threads=2) as scheduler:
    ...     a = scheduler.submit(sum, [1, 2, 3])
    ...     b = scheduler.submit(lambda x, y: x * y, a, 7)   # waits for a, takes its result
    ...     b.result()
    42

    With `processes` tasks run in so many processes instead, each with its own interpreter, for work that holds the
    interpreter's lock: functions of modules, arrays and tensors in shared memory. With a `group` they run on its other
    ranks, which call `mo.tasks.serve(group)`. A process that dies is replaced and its task run again, `retries` times.

    Threads start when they are first needed. Leaving the block waits for everything submitted, or cancels what has not
    begun when the block is left by an exception.
    """

    def __init__(self, threads: int | None = None, *, processes: int | None = None, group: Group | None = None,
                 retries: int = 3) -> None:
        if sum(given is not None for given in (threads, processes, group)) > 1:
            raise fail(ArgumentError, "tasks", "threads, processes and group are three ways to run tasks", "give one")
        self.pool: ProcessPool | RankPool | None = None
        if processes is not None:
            from morpho.runtime.tasks.processes.pool import ProcessPool

            self.pool = ProcessPool(processes, retries)
        elif group is not None:
            from morpho.runtime.tasks.processes.ranks import RankPool

            self.pool = RankPool(group, retries)
        self.threads = _thread_count(threads if self.pool is None else self.pool.count)
        self._closed = False
        self._begin()
        _live.add(self)

    def _begin(self) -> None:
        """Nothing submitted, no thread: at first, and in a forked child."""
        self._inbox: deque[Future] = deque()
        self._workers: list[Worker] = []
        self._parked: list[Worker] = []
        self._pending: set[Future] = set()
        self._closers: list[threading.Lock] = []
        self._awake = self._most_awake = self._blocked = 0
        self._closing = self._closed

    # -- submitting ----------------------------------------------------------------------------------------------------
    def submit(self, function: Callable[..., Any], /, *arguments: Any, after: Iterable[Future] = (),
               name: str | None = None, **named: Any) -> Future:
        """Run `function(*arguments, **named)` when the futures among the arguments, and those of `after`, are done.

        Futures among the arguments are replaced by their results. The task sees the context variables of this moment,
        `mo.settings` among them. If something it needs fails, it does not run and fails with `TaskError`.
        """
        if not callable(function):
            raise fail(ArgumentError, "tasks", f"{type(function).__name__} is not a function")
        if named:
            name = name or futures.function_name(function)
            function, arguments = Named(function, tuple(named)), (*arguments, *named.values())
        needs = [argument for argument in arguments if type(argument) is Future]
        if after:
            needs += _checked_futures(after)
        if self._closing:
            self._refuse()
        future = Future(self, function, arguments, copy_context(), name)
        if not needs or hold(future, needs):
            self._push(future)
        return future

    def _refuse(self) -> None:
        """While closing, only the tasks that are still to run may add others."""
        worker = current_worker()
        if self._closed or worker is None or worker.scheduler is not self:
            raise fail(ArgumentError, "tasks", "the scheduler is closed", "submit inside its with block")

    def _push(self, task: Future) -> None:
        """A ready task; the queue first, then a look at who sleeps: see `_park`."""
        worker = current_worker()
        if worker is not None and worker.scheduler is self:
            worker.deque.append(task)
            if worker.ending and len(worker.deque) == 1:
                return  # what this worker will do next: a chain of tasks wakes nobody
        else:
            self._inbox.append(task)
        if self._awake < self.threads:
            self._wake()

    def _forget(self, task: Future) -> None:
        """A pending task ended without running. The caller holds the lock."""
        self._pending.discard(task)
        self._look_whether_drained()

    # -- workers -------------------------------------------------------------------------------------------------------
    def _rise(self, change: int) -> None:
        """So many more workers are awake. The caller holds the lock."""
        self._awake += change
        self._most_awake = max(self._most_awake, self._awake)
        threads.count_running(change)

    def _wake(self) -> None:
        """One more worker, if there is a place: a sleeping one, or a new one."""
        with futures.lock:
            if self._closed:  # by another thread, while this one was submitting
                self._cancel_queued()
                return
            if self._awake >= self.threads:
                return
            self._rise(1)
            if self._parked:
                self._parked.pop().gate.release()
                return
            worker = Worker(self, len(self._workers))
            self._workers.append(worker)
            try:
                worker.thread.start()
            except BaseException as error:
                self._workers.remove(worker)
                self._rise(-1)
                # The system has no thread left to give: one worker is enough to go on, later.
                if not isinstance(error, RuntimeError) or not self._awake:
                    raise

    def _has_work(self) -> bool:
        return bool(self._inbox) or any(worker.deque for worker in self._workers)

    def _stir(self) -> None:
        """Wake a worker if there is work for one."""
        if self._awake < self.threads and self._has_work():
            self._wake()

    def _work(self, worker: Worker) -> None:
        """A worker's life."""
        _local.worker = worker
        with futures.lock:
            row = threads.enter_task_worker()
        try:
            while worker.epoch == futures.epoch:
                task = self._next(worker) if self._awake <= self.threads else None
                if task is not None:
                    self._run(worker, task)
                elif not self._park(worker):
                    return
                task = None  # keeps nothing alive while asleep
        finally:
            if worker.epoch == futures.epoch:
                with futures.lock:
                    threads.leave_task_worker(row)

    def _park(self, worker: Worker) -> bool:
        """Sleep until woken; False when the scheduler is closed. Counted as asleep first, then one more look: whoever
        queues a task and still sees this worker awake has queued it before that look."""
        with futures.lock:
            self._rise(-1)
            if self._awake < self.threads and self._has_work():
                self._rise(1)
                return True
            worker.rest()
            self._parked.append(worker)
            self._look_whether_drained()
        worker.gate.acquire()
        worker.since = time.perf_counter()
        return not self._closed

    def _next(self, worker: Worker) -> Future | None:
        """A task of its own, the newest; else the oldest from outside; else the oldest of another worker."""
        own, inbox = worker.deque, self._inbox
        while True:
            try:
                task = own.pop() if own else inbox.popleft()
            except IndexError:  # nothing there, or another thread was faster
                return self._steal(worker)
            if claim(task):  # cancelled ones, and those a waiter took, are still in the queues
                return task

    def _steal(self, worker: Worker) -> Future | None:
        workers = self._workers
        for distance in range(1, len(workers)):
            victim = workers[(worker.number + distance) % len(workers)].deque
            while victim:
                try:
                    task = victim.popleft()
                except IndexError:
                    break
                if claim(task):
                    worker.stolen += 1
                    return task
        return None

    def _run(self, worker: Worker, task: Future) -> None:
        """Run a claimed task in the context of its submitter."""
        outer, worker.task = worker.task, task
        worker.executed += 1
        arguments = task._arguments
        if task._needs:
            arguments = tuple(a._value if type(a) is Future else a for a in arguments)
        try:
            here = self.pool is None or type(task._function) is Here
            value = (task._context.run(task._function, *arguments) if here else
                     task._context.run(self.pool.call, task._function, arguments))  # type: ignore[union-attr]
        except BaseException as error:  # whatever it is belongs to who asks for the result
            worker.ending = outer is None
            complete(task, FAILED, futures.stripped(error))
        else:
            worker.ending = outer is None
            complete(task, DONE, value)
        finally:
            worker.ending = False
            worker.task = outer
            del task, arguments  # an error's traceback may hold this frame: no cycle through the future

    # -- waiting -------------------------------------------------------------------------------------------------------
    def _wait_for(self, future: Future, timeout: float | None) -> bool:
        """Wait for a future from any thread; False after `timeout` seconds."""
        worker = current_worker()
        if worker is None or worker.task is None:
            return future._block(timeout)
        task = worker.task
        with futures.lock:
            if future._state < DONE and futures.would_wait_for_itself(task, future):
                if task is future:
                    raise fail(TaskError, "tasks", f"task {task.name!r} waits for itself")
                raise fail(TaskError, "tasks", f"task {task.name!r} waits for {future.name!r}, which waits for "
                                               f"{task.name!r}", "let one of them depend on the other's result")
            task._waits_for = future
        try:
            mine = timeout is None and future._scheduler is worker.scheduler and inline_allowed()
            if mine and claim(future):  # in this thread, or in the process that it borrows
                worker.inlined += 1
                worker.scheduler._run(worker, future)
                return True
            return worker.scheduler._lend(worker, future, timeout)
        finally:
            task._waits_for = None

    def _lend(self, worker: Worker, future: Future, timeout: float | None) -> bool:
        """Sleep until a future ends; another worker may take the place meanwhile, up to a limit: each is a thread."""
        waiter = Waiter(self)
        with futures.lock:
            crowded = self._blocked >= MOST_WAITING
            if crowded and future._state < RUNNING:  # nobody might begin it; who has begun goes on without this place
                raise fail(TaskError, "tasks", f"{MOST_WAITING} tasks wait for others inside their functions",
                           "pass futures as arguments or in after=, instead of asking for their results")
            if not crowded:
                if not future._enlist(waiter):
                    return True
                self._rise(-1)
                self._blocked += 1
                worker.rest()
        if crowded:
            return future._block(timeout)
        try:
            self._stir()
            return future._sleep(waiter, timeout)
        finally:
            with futures.lock:
                self._blocked -= 1
                worker.since = time.perf_counter()
                if not waiter.returned:
                    waiter.returned = True
                    self._rise(1)

    # -- closing -------------------------------------------------------------------------------------------------------
    def close(self, cancel: bool = False) -> None:
        """Wait for all tasks, or with `cancel` only for those that have begun, and end the threads."""
        worker = current_worker()
        if worker is not None and worker.scheduler is self:
            raise fail(ArgumentError, "tasks", "a task cannot close the scheduler that runs it")
        self._closing = True
        if cancel:
            self._cancel_queued()
        gate = threading.Lock()
        gate.acquire()
        with futures.lock:
            self._closers.append(gate)
            self._look_whether_drained()
        self._stir()
        gate.acquire()
        with futures.lock:
            self._closed = True
            ended, self._parked = self._parked, []
            for worker in ended:
                worker.gate.release()
        self._cancel_queued()
        for worker in ended:
            worker.thread.join()
        if self.pool is not None:
            self.pool.close()

    def _cancel_queued(self) -> None:
        for queue in (self._inbox, *(worker.deque for worker in list(self._workers))):
            for task in queue.copy():
                task.cancel()
        with futures.lock:
            pending = list(self._pending)
        for task in pending:
            task.cancel()

    def _look_whether_drained(self) -> None:
        """Tell who closes that nothing is left to do. The caller holds the lock."""
        if not self._closers or self._awake or self._blocked or self._pending or self._has_work():
            return
        for gate in self._closers:
            gate.release()
        self._closers.clear()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(cancel=kind is not None)

    def __repr__(self) -> str:
        return f"<scheduler of {self.threads} threads, {'closed' if self._closed else f'{self._awake} awake'}>"

    # -- looking inside ------------------------------------------------------------------------------------------------
    def stats(self) -> dict[str, Any]:
        """Plain numbers, see docs/tasks.md: tasks executed and stolen, seconds per worker, imbalance, the engine's."""
        workers = list(self._workers)
        busy_s = [worker.busy_now_s for worker in workers]
        return {
            "threads": self.threads,
            "executed": sum(worker.executed for worker in workers),
            "stolen": sum(worker.stolen for worker in workers),
            "run_by_waiter": sum(worker.inlined for worker in workers),
            "executed_per_worker": [worker.executed for worker in workers],
            "busy_s": busy_s,
            "imbalance": imbalance(busy_s, self.threads),
            "processes_died": 0 if self.pool is None else self.pool.deaths,
            "awake": self._awake,
            "most_awake": self._most_awake,
            "waiting": self._blocked,
            "engine": threads.engine_statistics(),
        }


def imbalance(busy_s: list[float], threads: int) -> float:
    """By how much the busiest of `threads` workers was busier than the mean of them: 0 is even.

    >>> imbalance([3.0, 1.0], 2)
    0.5
    """
    busiest = sorted(busy_s, reverse=True)[:threads]
    total = sum(busiest)
    return busiest[0] * threads / total - 1 if total else 0.0


def _thread_count(count: int | None) -> int:
    if count is None:
        return min(threads.wanted_threads(), MOST_THREADS)
    number = as_whole(count)
    if number is None or not 1 <= number <= MOST_THREADS:
        raise fail(ArgumentError, "tasks", f"threads={count!r} is not a number from 1 to {MOST_THREADS}")
    return number


def _checked_futures(items: Any) -> list[Future]:
    if not isinstance(items, Future | Iterable):
        raise fail(ArgumentError, "tasks", f"{type(items).__name__} is not a list of futures",
                   "pass what submit returned")
    found = [items] if isinstance(items, Future) else list(items)
    for item in found:
        if not isinstance(item, Future):
            raise fail(ArgumentError, "tasks", f"{type(item).__name__} is not a future", "pass what submit returned")
    return found


def wait(items: Iterable[Future], timeout: float | None = None) -> bool:
    """Wait until all are over, however they end; False if they are not after `timeout` seconds.

    >>> import morpho as mo
    >>> mo.tasks.wait([mo.tasks.submit(abs, -1), mo.tasks.submit(len, "ab")])
    True
    """
    end = None if timeout is None else time.monotonic() + futures.seconds(timeout)
    for future in _checked_futures(items):
        left = None if end is None else end - time.monotonic()
        if not future.done() and not future._scheduler._wait_for(future, left):
            return False
    return True


# -- the scheduler at hand ---------------------------------------------------------------------------------------------
_defaults: dict[int, Scheduler] = {}


def default() -> Scheduler:
    """Inside a task its own scheduler; elsewhere the process's one for the number of threads in force here."""
    worker = current_worker()
    if worker is not None:
        return worker.scheduler
    count = _thread_count(None)
    found = _defaults.get(count)
    if found is None:
        with futures.lock:
            found = _defaults.setdefault(count, Scheduler(count))
    return found


def _after_fork() -> None:
    """A child has none of its parent's threads and runs none of its tasks: every scheduler starts anew."""
    for scheduler in list(_live):
        scheduler._begin()


os.register_at_fork(after_in_child=_after_fork)
