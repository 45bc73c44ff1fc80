"""The scheduler of tasks: waiting inside tasks, and stealing. Counters, no clocks."""

from __future__ import annotations

import operator
import threading
import time

import numpy as np
import pytest
from schedulers import LIMIT_S, held
from subprograms import run

import morpho as mo
from morpho.base.errors import TaskError
from morpho.runtime.tasks import scheduler
from morpho.tensor.tools.tasks import Future, Scheduler


# -- waiting inside tasks ----------------------------------------------------------------------------------------------
def fibonacci(n: int) -> int:
    if n < 2:
        return n
    left, right = mo.tasks.submit(fibonacci, n - 1), mo.tasks.submit(fibonacci, n - 2)
    return left.result() + right.result()


def test_nested_waits(scheduler: Scheduler) -> None:
    assert scheduler.submit(fibonacci, 12).result(LIMIT_S) == 144
    stats = scheduler.stats()
    assert stats["executed"] == 465 and stats["waiting"] == 0
    assert stats["run_by_waiter"] + stats["stolen"] <= 464
    if scheduler.threads == 1:
        assert stats["run_by_waiter"] == 464 and len(stats["busy_s"]) == 1  # no thread but the one


def test_a_waiting_worker_lends_its_place(one: Scheduler) -> None:
    """One thread, and a task that waits for one it cannot run in place, because that one lacks a result."""
    gate, holder = held(one)
    inner = one.submit(int, "7", after=holder)
    outer = one.submit(lambda: inner.result() + 1)
    gate.set()
    assert outer.result(LIMIT_S) == 8

    def waits_for_pending() -> int:
        return one.submit(operator.add, one.submit(int, "1"), 1).result()

    assert one.submit(waits_for_pending).result(LIMIT_S) == 2
    stats = one.stats()
    assert stats["waiting"] == 0 and len(stats["busy_s"]) >= 2


def test_the_one_below_is_not_needed_by_the_one_above(one: Scheduler) -> None:
    """A worker that waits runs only what it waits for: another task might wait for the one underneath it."""
    gate, holder = held(one)
    first: list[Future] = []

    def a() -> int:
        return one.submit(int, "5").result() + 1

    def b() -> int:
        return first[0].result() + 1

    first.append(one.submit(a))
    second = one.submit(b)
    gate.set()
    assert second.result(LIMIT_S) == 7


def test_waiting_for_oneself_is_an_error(scheduler: Scheduler) -> None:
    mine: list[Future] = []
    ready = threading.Event()

    def narcissus() -> None:
        assert ready.wait(LIMIT_S)
        mine[0].result()

    mine.append(scheduler.submit(narcissus, name="narcissus"))
    ready.set()
    with pytest.raises(TaskError, match="'narcissus' waits for itself"):
        mine[0].result(LIMIT_S)


def test_a_circle_of_waits_is_an_error(scheduler: Scheduler) -> None:
    """a waits for c, which depends on b, which waits for a: whoever comes last is told, nobody hangs."""
    found: dict[str, Future] = {}
    ready = threading.Event()

    def waits_for(name: str) -> object:
        assert ready.wait(LIMIT_S)
        return found[name].result()

    found["a"] = scheduler.submit(waits_for, "c", name="a")
    found["b"] = scheduler.submit(waits_for, "a", name="b")
    found["c"] = scheduler.submit(repr, found["b"], name="c")
    ready.set()
    errors = [found[name].exception(LIMIT_S) for name in "abc"]
    assert all(isinstance(error, TaskError) for error in errors)
    assert sum("waits for" in str(error) and "did not run" not in str(error) for error in errors) >= 1


def test_who_ends_a_wait_steps_aside(one: Scheduler) -> None:
    """A task comes back from a wait: the worker that stood in for it begins nothing new."""
    def outer() -> tuple[bool, Future]:
        inner = one.submit(operator.neg, one.submit(int))
        other = one.submit(int)
        inner.result()
        while not one._parked:
            time.sleep(0.001)
        return other.done(), other

    begun, other = one.submit(outer).result(LIMIT_S)
    assert not begun and other.result(LIMIT_S) == 0 and len(one.stats()["busy_s"]) == 2


def test_many_waiters_of_one_future(two: Scheduler) -> None:
    gate, holder = held(two)
    waiting = [two.submit(lambda: holder.result(LIMIT_S)) for _ in range(20)]
    threads_outside = [threading.Thread(target=holder.result) for _ in range(5)]
    for thread in threads_outside:
        thread.start()
    while two.stats()["waiting"] < 20:  # each lends its place to the next
        two.submit(int).result(LIMIT_S)
    gate.set()
    assert mo.tasks.wait(waiting, LIMIT_S)
    for thread in threads_outside:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert two.submit(int).result(LIMIT_S) == 0 and two.stats()["waiting"] == 0


def test_too_many_waits_are_an_error_not_a_hang(one: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waiting worker is a thread, so there is a limit; who waits for a running task may still keep its place."""
    monkeypatch.setattr(scheduler, "MOST_WAITING", 3)

    def deeper(n: int) -> int:
        if n == 6:
            return n
        return one.submit(lambda _: deeper(n + 1), one.submit(int)).result()  # pending: cannot be run in place

    with pytest.raises(TaskError, match="3 tasks wait for others inside their functions"):
        one.submit(deeper, 0).result(LIMIT_S)
    assert one.submit(int).result(LIMIT_S) == 0
    with Scheduler(2) as made:
        gate, holder = held(made)
        waiting = [made.submit(holder.result) for _ in range(8)]
        while made.stats()["waiting"] < 3:
            time.sleep(0.001)
        gate.set()
        assert [future.result(LIMIT_S) for future in waiting] == [None] * 8


# -- stealing ----------------------------------------------------------------------------------------------------------
def test_stealing(two: Scheduler) -> None:
    """A task's own tasks lie in its worker's deque; the other worker takes them from the far end, oldest first."""
    order: list[int] = []
    stolen = threading.Event()

    def parent() -> list[Future]:
        made = []
        for n in range(10):
            made.append(two.submit(lambda n=n: (order.append(n), stolen.set() if n == 9 else None)))
        assert stolen.wait(LIMIT_S)  # this worker is busy: all ten go to the other one
        return made

    assert mo.tasks.wait(two.submit(parent).result(LIMIT_S), LIMIT_S)
    stats = two.stats()
    assert stats["stolen"] == 10 and order == list(range(10))
    assert sorted(stats["executed_per_worker"]) == [1, 10] and stats["most_awake"] == 2


def test_own_tasks_newest_first(one: Scheduler) -> None:
    order: list[int] = []
    future = one.submit(lambda: [one.submit(order.append, n) for n in range(5)])
    assert mo.tasks.wait(future.result(LIMIT_S), LIMIT_S)
    assert order == [4, 3, 2, 1, 0] and one.stats()["stolen"] == 0


def test_never_more_at_once_than_threads(scheduler: Scheduler) -> None:
    lock, inside, most = threading.Lock(), 0, 0

    def work(n: int) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        np.sqrt(np.ones(1000 * (n % 5)))
        with lock:
            inside -= 1

    assert mo.tasks.wait([scheduler.submit(work, n) for n in range(300)], LIMIT_S)
    assert most <= scheduler.threads and scheduler.stats()["most_awake"] <= scheduler.threads


def test_a_task_queued_just_before_its_worker_sleeps(one: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who queues it sees the worker awake and wakes nobody: the worker looks once more."""
    look, queued = one._next, []

    def racing(worker: scheduler.Worker) -> Future | None:
        found = look(worker)
        if found is None and not queued:
            queued.append(one.submit(int, "6"))
        return found

    monkeypatch.setattr(one, "_next", racing)
    one.submit(int).result(LIMIT_S)
    while not queued:
        time.sleep(0.001)
    assert queued[0].result(LIMIT_S) == 6


def test_submitting_from_many_threads(scheduler: Scheduler) -> None:
    results: list[int] = []

    def submit(number: int) -> None:
        mine = [scheduler.submit(operator.add, number, n) for n in range(100)]
        results.append(scheduler.submit(lambda *values: sum(values), *mine).result(LIMIT_S))

    callers = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(LIMIT_S)
        assert not caller.is_alive()
    assert sorted(results) == [100 * number + 4950 for number in range(8)]
    assert scheduler.stats()["executed"] == 808


def test_idle_workers_sleep() -> None:
    printed, _ = run("""
    with mo.tasks.Scheduler(4) as s:
        mo.tasks.wait([s.submit(time.sleep, 0.001) for _ in range(40)])
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(1)
        print(time.process_time() - before, s.stats()["awake"], len(s.stats()["busy_s"]))
    """)
    used_s, awake, workers = printed.split()
    assert float(used_s) < 0.05 and awake == "0" and workers == "4"
