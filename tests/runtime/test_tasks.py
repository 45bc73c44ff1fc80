"""The scheduler of tasks: order, results, failures, waiting, stealing, closing, forks. Counters, no clocks."""

from __future__ import annotations

import gc
import logging
import operator
import os
import threading
import time
import traceback
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from subprograms import run

import morpho as mo
from morpho.base import settings
from morpho.base.errors import ArgumentError, TaskError, TaskTimeout, ValueFault
from morpho.runtime import futures, tasks, threads
from morpho.runtime.tables import BudgetField
from morpho.tensor.tasks import Future, Scheduler

LIMIT_S = 60  # of a wait that should be short: a hang becomes a failure


@pytest.fixture(params=[1, 2, 4])
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with Scheduler(request.param) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Scheduler]:
    with Scheduler(2) as made:
        yield made


@pytest.fixture
def one() -> Iterator[Scheduler]:
    with Scheduler(1) as made:
        yield made


def held(scheduler: Scheduler) -> tuple[threading.Event, Future]:
    """A worker kept busy until the event is set."""
    begun, gate = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert gate.wait(LIMIT_S)

    future = scheduler.submit(hold, name="holder")
    assert begun.wait(LIMIT_S)
    return gate, future


# -- results -----------------------------------------------------------------------------------------------------------
def test_results_arrive(scheduler: Scheduler) -> None:
    found = [scheduler.submit(pow, n, 2) for n in range(200)]
    assert [future.result(LIMIT_S) for future in found] == [n * n for n in range(200)]
    assert all(future.done() and not future.cancelled() and future.exception() is None for future in found)
    assert scheduler.stats()["executed"] == 200


def test_threads_start_when_needed_and_end_with_the_block() -> None:
    before = threading.active_count()
    with Scheduler(3) as made:
        assert threading.active_count() == before
        made.submit(int).result(LIMIT_S)
        assert threading.active_count() == before + 1
    assert threading.active_count() == before and made.stats()["awake"] == 0


def test_arguments_and_names(two: Scheduler) -> None:
    for wrong in (lambda: Scheduler(0), lambda: Scheduler(True), lambda: Scheduler(10**6), lambda: two.submit(3),
                  lambda: two.submit(int, after=[3]), lambda: mo.tasks.map(3, [1]), lambda: mo.tasks.reduce(3, [1]),
                  lambda: mo.tasks.map(int, [1], chunk=0), lambda: mo.tasks.wait([1]),
                  lambda: two.submit(int).add_done_callback(3), lambda: mo.tasks.graph({"a": 3})):
        with pytest.raises(ArgumentError, match=r"^\[tasks\] "):
            wrong()
    assert two.submit(int).name == "int" and two.submit(int, name="zero").name == "zero"
    assert "zero" in repr(two.submit(int, name="zero"))
    done = two.submit(int)
    done.result(LIMIT_S)
    assert repr(done) == "<task int done>" and "2 threads" in repr(two)


def test_the_default_number_of_threads_is_the_engines() -> None:
    assert Scheduler().threads == threads.wanted_threads()
    with mo.settings(threads=3):
        assert Scheduler().threads == 3
        assert tasks.default().threads == 3 and mo.tasks.stats()["threads"] == 3
        assert mo.tasks.submit(lambda: tasks.default().threads).result(LIMIT_S) == 3
    assert tasks.default() is tasks.default()


def test_outer_tasks_run_in_order(one: Scheduler) -> None:
    gate, _ = held(one)
    order: list[int] = []
    found = [one.submit(order.append, n) for n in range(20)]
    gate.set()
    assert mo.tasks.wait(found, LIMIT_S)
    assert order == list(range(20))


def test_the_module_functions_use_a_common_scheduler() -> None:
    before = mo.tasks.stats()["executed"]
    assert mo.tasks.submit(operator.add, mo.tasks.submit(int, "4"), 5).result(LIMIT_S) == 9
    assert mo.tasks.stats()["executed"] == before + 2
    assert dir(mo.tasks) == sorted(mo.tasks.__all__)


# -- dependencies ------------------------------------------------------------------------------------------------------
def test_futures_among_the_arguments_are_replaced(scheduler: Scheduler) -> None:
    a, b = scheduler.submit(int, "20"), scheduler.submit(int, "1")
    total = scheduler.submit(lambda x, y, z: (x, y, z), a, b, a)
    assert total.result(LIMIT_S) == (20, 1, 20)
    assert scheduler.submit(operator.neg, a).result(LIMIT_S) == -20  # of one that is done


def test_after_orders_without_passing(scheduler: Scheduler) -> None:
    order: list[str] = []
    gate, holder = held(scheduler)
    last = scheduler.submit(order.append, "last", after=[scheduler.submit(order.append, "first", after=holder), holder])
    assert not last.done()
    gate.set()
    last.result(LIMIT_S)
    assert order == ["first", "last"]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_random_graphs(count: int, seed: int) -> None:
    """Every task sees the finished results of what it needs, whatever the shape."""
    rng = np.random.default_rng(seed)
    with Scheduler(count) as made:
        for _ in range(5):
            expected: list[int] = []
            found: list[Future] = []
            for n in range(150):
                needs = rng.integers(0, n, rng.integers(0, min(n, 4) + 1)) if n else []
                expected.append((n + sum(expected[i] for i in needs)) % 9973)
                found.append(made.submit(lambda n, *values: (n + sum(values)) % 9973, n, *(found[i] for i in needs)))
            assert [future.result(LIMIT_S) for future in found] == expected


def test_a_long_chain(scheduler: Scheduler) -> None:
    """No recursion, whether it is run or failed."""
    for first, end in ((lambda: 0, 5000), (lambda: 1 // 0, None)):
        gate, holder = held(scheduler)
        future = scheduler.submit(first, after=holder)
        for _ in range(5000):
            future = scheduler.submit(lambda x: x + 1, future)
        gate.set()
        if end is None:
            assert isinstance(future.exception(LIMIT_S).__cause__, ZeroDivisionError)
        else:
            assert future.result(LIMIT_S) == end


def test_a_chain_wakes_nobody() -> None:
    """What a finished task makes ready is done next by the same worker."""
    with Scheduler(4) as made:
        gate, holder = held(made)
        future = made.submit(threading.get_ident, after=holder)
        idents = [future]
        for _ in range(50):
            idents.append(future := made.submit(threading.get_ident, after=future))
        gate.set()
        assert mo.tasks.wait(idents, LIMIT_S)
        assert len({future.result() for future in idents}) == 1 and made.stats()["stolen"] == 0


def test_futures_of_two_schedulers(one: Scheduler, two: Scheduler) -> None:
    a = one.submit(int, "3")
    b = two.submit(operator.mul, a, 2)
    c = one.submit(lambda x: x + two.submit(operator.neg, b).result(LIMIT_S), b)
    assert c.result(LIMIT_S) == 0


def test_graph(scheduler: Scheduler) -> None:
    found = mo.tasks.graph({"mean": (operator.truediv, "total", "count"), "total": (sum, "numbers"),
                            "count": (len, "numbers"), "numbers": (list, (1, 2, 3))}, scheduler=scheduler)
    assert list(found) == ["mean", "total", "count", "numbers"] and found["total"].name == "total"
    assert found["mean"].result(LIMIT_S) == 2
    with pytest.raises(ArgumentError, match="circle: a -> b -> c -> a"):
        mo.tasks.graph({"x": (len, "a"), "a": (len, "b"), "b": (len, "c"), "c": (len, "a")}, scheduler=scheduler)
    with pytest.raises(ArgumentError, match="circle: a -> a"):
        mo.tasks.graph({"a": (len, "a")}, scheduler=scheduler)


# -- failures ----------------------------------------------------------------------------------------------------------
def divide(a: float, b: float) -> float:
    return a / b


def test_an_exception_arrives_with_its_traceback(scheduler: Scheduler) -> None:
    future = scheduler.submit(divide, 1, 0)
    for _ in range(3):  # it does not grow from one question to the next
        with pytest.raises(ZeroDivisionError) as caught:
            future.result(LIMIT_S)
        names = [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert names[-1] == "divide" and "_run" not in names
        assert names.count("result") == 1
    assert future.exception() is caught.value
    with pytest.raises(TypeError):
        scheduler.submit(divide, 1).result(LIMIT_S)


def test_any_exception_is_carried(two: Scheduler) -> None:
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        def fail(kind: type[BaseException] = kind) -> None:
            raise kind("out")

        with pytest.raises(kind, match="out"):
            two.submit(fail).result(LIMIT_S)
    assert two.submit(int).result(LIMIT_S) == 0


def test_what_depends_on_a_failure_fails(scheduler: Scheduler) -> None:
    gate, holder = held(scheduler)
    ran: list[int] = []
    bad = scheduler.submit(divide, 1, 0, after=holder, name="bad")
    middle = scheduler.submit(ran.append, bad, name="middle")
    last = scheduler.submit(ran.append, 1, after=[middle, holder], name="last")
    good = scheduler.submit(int, after=holder)
    gate.set()
    for future, name in ((middle, "middle"), (last, "last")):
        with pytest.raises(TaskError, match=rf"task '{name}' did not run: 'bad', which it needs, failed") as caught:
            future.result(LIMIT_S)
        assert caught.value.task == "bad" and caught.value.__cause__ is bad.exception()
    late = scheduler.submit(ran.append, last, name="late")
    assert late.done() and late.exception().__cause__ is bad.exception() and late.exception().task == "bad"
    assert good.result(LIMIT_S) == 0 and not ran


def test_a_failed_task_leaves_no_cycle(two: Scheduler) -> None:
    class Big:
        pass

    big = Big()
    kept = weakref.ref(big)
    future = two.submit(lambda big: 1 // 0, big)
    assert isinstance(future.exception(LIMIT_S), ZeroDivisionError)
    mo.tasks.wait([two.submit(int) for _ in range(4)])  # no worker's frame holds it
    gc.disable()
    try:
        del big, future
        assert kept() is None
    finally:
        gc.enable()


# -- cancelling --------------------------------------------------------------------------------------------------------
def test_cancel_before_it_begins(one: Scheduler) -> None:
    gate, holder = held(one)
    ran: list[int] = []
    ready, pending = one.submit(ran.append, 1, name="ready"), one.submit(ran.append, 2, after=holder)
    dependent = one.submit(ran.append, ready, name="dependent")
    assert not holder.cancel() and holder.running()
    assert ready.cancel() and pending.cancel() and not ready.cancel()
    assert ready.cancelled() and ready.done()
    with pytest.raises(TaskError, match="task 'ready' was cancelled"):
        ready.result()
    with pytest.raises(TaskError, match="'dependent' did not run: 'ready', which it needs, was cancelled"):
        dependent.result()
    gate.set()
    holder.result(LIMIT_S)
    assert not holder.cancel() and not ran


def test_timeouts(one: Scheduler) -> None:
    gate, holder = held(one)
    for call in (holder.result, holder.exception):
        with pytest.raises(TaskTimeout, match=r"'holder' is still running after 0\.01 s"):
            call(timeout=0.01)
    with pytest.raises(TimeoutError):
        holder.result(timeout=0)
    for timeout in ("1", float("nan"), [1]):
        with pytest.raises(ArgumentError, match="not a number of seconds"):
            holder.result(timeout)
        with pytest.raises(ArgumentError, match="not a number of seconds"):
            mo.tasks.wait([holder], timeout)
    assert not mo.tasks.wait([holder], timeout=-1)
    assert not mo.tasks.wait([holder], timeout=0.01) and not holder._links
    gate.set()
    assert mo.tasks.wait([holder], timeout=LIMIT_S) and holder.result(1e300) is None


def test_a_timeout_inside_a_task(one: Scheduler) -> None:
    """Its worker lends its place, so that what it waits for can run, and takes it back."""
    gate = threading.Event()

    def outer() -> str:
        inner = one.submit(gate.wait, LIMIT_S)
        try:
            inner.result(timeout=0.01)
        except TaskTimeout:
            gate.set()
            return f"timeout, then {inner.result(LIMIT_S)}"
        return "early"

    assert one.submit(outer).result(LIMIT_S) == "timeout, then True"
    assert one.submit(int).result(LIMIT_S) == 0 and one.stats()["waiting"] == 0


# -- callbacks ---------------------------------------------------------------------------------------------------------
def test_callbacks(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    gate, holder = held(scheduler)
    seen: list[object] = []
    future = scheduler.submit(divide, 1, 0, after=holder)
    cancelled = scheduler.submit(int, after=holder)
    for each in (future, cancelled):
        each.add_done_callback(lambda f: seen.append(type(f.exception()).__name__))
        each.add_done_callback(lambda f: 1 // 0)
        each.add_done_callback(lambda f: seen.append("second"))
    with caplog.at_level(logging.CRITICAL, "morpho"):
        cancelled.cancel()
        assert seen == ["TaskError", "second"]
        gate.set()
        future.exception(LIMIT_S)
        scheduler.close()
        assert seen == ["TaskError", "second", "ZeroDivisionError", "second"]
    future.add_done_callback(seen.append)
    assert seen[-1] is future


def test_a_callback_that_waits_for_a_dependent(one: Scheduler) -> None:
    gate, holder = held(one)
    first = one.submit(int, after=holder)
    last = one.submit(operator.add, first, 1)
    seen: list[int] = []
    first.add_done_callback(lambda _: seen.append(last.result(LIMIT_S)))
    gate.set()
    assert last.result(LIMIT_S) == 1
    one.close()
    assert seen == [1]


def test_a_callback_that_waits_for_what_a_dependent_does(two: Scheduler) -> None:
    """Dependents are queued before callbacks are called, and another worker is woken for them."""
    gate, holder = held(two)
    event, seen = threading.Event(), []
    holder.add_done_callback(lambda _: seen.append(event.wait(LIMIT_S)))
    last = two.submit(lambda _: event.set(), holder)
    gate.set()
    last.result(LIMIT_S)
    two.close()
    assert seen == [True]


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
    with pytest.raises(TaskError, match="'narcissus' waits for 'narcissus'"):
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
    monkeypatch.setattr(tasks, "MOST_WAITING", 3)

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

    def racing(worker: tasks.Worker) -> Future | None:
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


# -- map and reduce ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [None, 1, 7, 10**6])
def test_map(scheduler: Scheduler, chunk: int | None) -> None:
    for items in ([], [3], range(1000), (n for n in range(50)), np.arange(5)):
        expected = [n * 2 for n in (range(50) if not hasattr(items, "__len__") else items)]
        assert mo.tasks.map(lambda n: n * 2, items, chunk, scheduler=scheduler) == expected


def test_map_takes_chunks_that_suit() -> None:
    """A chunk is one item at first, grows while items are cheap, and leaves enough for the others at the end."""
    from morpho.runtime.parallel import CHUNK_S, Gather

    gather = Gather(abs, range(1000), None, 2)
    assert len(gather._take()) == 1
    gather.finished, gather.spent_s = 1, CHUNK_S / 100
    assert len(gather._take()) == 100
    gather.spent_s = CHUNK_S / 1000
    assert len(gather._take()) == (1000 - 101) // 4
    gather.finished, gather.spent_s = 1, CHUNK_S * 3
    assert len(gather._take()) == 1
    gather.next = 998
    gather.spent_s = CHUNK_S / 100
    assert len(gather._take()) == 1 and len(gather._take()) == 1 and len(gather._take()) == 0 and gather.exhausted


def test_map_spreads_uneven_items(two: Scheduler) -> None:
    """While one worker is at the costly first item, the other one does all the rest."""
    rest = threading.Semaphore(0)

    def work(n: int) -> int:
        if n:
            rest.release()
        else:
            assert all(rest.acquire(timeout=LIMIT_S) for _ in range(99))
        return threading.get_ident()

    found = mo.tasks.map(work, range(100), 1, scheduler=two)
    assert found[0] not in found[1:] and len(set(found)) == 2


def test_map_raises_what_a_loop_would(scheduler: Scheduler, seed: int) -> None:
    bad = set(np.random.default_rng(seed).integers(0, 300, 5).tolist())

    def work(n: int) -> None:
        if n in bad:
            raise ValueError(n)

    for _ in range(10):
        with pytest.raises(ValueError, match=rf"^{min(bad)}$") as caught:
            mo.tasks.map(work, range(300), scheduler=scheduler)
        assert traceback.extract_tb(caught.tb)[-1].name == "work"


def test_the_first_failure_counts_whichever_comes_first() -> None:
    from morpho.runtime.parallel import Gather

    gather = Gather(abs, range(9), 1, 2)
    for index in (5, 3, 7):
        gather._fail(index, ValueError(index))
    with pytest.raises(ValueError, match=r"^3$"):
        gather.outcome()
    assert gather.exhausted and not gather._take()


def test_map_does_not_wait_for_workers_it_does_not_need(two: Scheduler) -> None:
    gate, holder = held(two)
    assert mo.tasks.map(abs, range(-5, 0), scheduler=two) == [5, 4, 3, 2, 1]
    assert not holder.done()
    gate.set()


def test_map_inside_a_task_and_inside_a_map(scheduler: Scheduler) -> None:
    def row(n: int) -> int:
        return sum(mo.tasks.map(lambda m: n * m, range(20)))

    expected = [190 * n for n in range(20)]
    assert mo.tasks.map(row, range(20), scheduler=scheduler) == expected
    assert scheduler.submit(lambda: mo.tasks.map(row, range(20))).result(LIMIT_S) == expected


def test_reduce_is_one_tree_for_any_number_of_threads(rng: np.random.Generator) -> None:
    def expected(values: list[str]) -> str:
        while len(values) > 1:
            values = ["".join(["(", *values[i:i + 2], ")"]) if i + 1 < len(values) else values[i]
                      for i in range(0, len(values), 2)]
        return values[0]

    numbers = (rng.standard_normal(999) * 10.0 ** rng.integers(-8, 8, 999)).astype(np.float32).tolist()
    sums = set()
    for count in (1, 2, 3, 4):
        with Scheduler(count) as made:
            for length in (1, 2, 3, 7, 8, 100, 333):
                items = [chr(97 + n % 26) for n in range(length)]
                found = mo.tasks.reduce(lambda a, b: f"({a}{b})", items, scheduler=made)
                assert found == expected(items)
            sums.add(mo.tasks.reduce(lambda a, b: np.float32(a) + np.float32(b), numbers, scheduler=made).tobytes())
            mapped = mo.tasks.reduce(operator.add, range(500), 1000, map=lambda n: 2 * n, scheduler=made)
            assert mapped == 1000 + 499 * 500
    assert len(sums) == 1
    assert mo.tasks.reduce(lambda a, b: a + b, "bc", "a") == "abc"
    assert mo.tasks.reduce(operator.add, [], 3) == 3
    with pytest.raises(ValueFault, match="initial"):
        mo.tasks.reduce(operator.add, [])
    with pytest.raises(ZeroDivisionError):
        mo.tasks.reduce(divide, [1, 0, 0, 0])


# -- closing -----------------------------------------------------------------------------------------------------------
def test_closing_waits() -> None:
    ran: list[int] = []
    with Scheduler(2) as made:
        gate, holder = held(made)
        for n in range(50):
            made.submit(ran.append, n, after=holder)
        made.submit(lambda: made.submit(lambda: made.submit(ran.append, 50)))  # tasks may add tasks to the end
        threading.Timer(0.02, gate.set).start()
    assert sorted(ran) == list(range(51))
    with pytest.raises(ArgumentError, match="closed"):
        made.submit(int)
    made.close()


def test_closing_cancels() -> None:
    made = Scheduler(1)
    gate, holder = held(made)
    ready, pending = made.submit(int), made.submit(int, after=holder)
    closer = threading.Thread(target=made.close, kwargs={"cancel": True})
    closer.start()
    assert mo.tasks.wait([ready, pending], LIMIT_S) and ready.cancelled() and pending.cancelled()
    assert not holder.done()
    gate.set()
    closer.join(LIMIT_S)
    assert holder.result(LIMIT_S) is None and not closer.is_alive()


def test_leaving_by_an_exception_cancels() -> None:
    with pytest.raises(ValueError, match="out"), Scheduler(1) as made:
        gate, holder = held(made)
        never = made.submit(int)
        threading.Timer(0.02, gate.set).start()
        raise ValueError("out")
    assert holder.result() is None and never.cancelled()


def test_closing_waits_for_what_hangs_on_another_scheduler(two: Scheduler) -> None:
    gate, holder = held(two)
    made = Scheduler(1)
    last = made.submit(lambda _: 3, holder)
    closer = threading.Thread(target=made.close)
    closer.start()
    gate.set()
    closer.join(LIMIT_S)
    assert not closer.is_alive() and last.result(0) == 3


def test_a_submit_that_a_close_overtakes_is_cancelled() -> None:
    made = Scheduler(1)
    gate, holder = held(made)
    gate.set()
    made.close()
    made._closing = False  # as a thread saw it that submits meanwhile
    assert made.submit(int).cancelled()
    with Scheduler(1) as other:
        gate, holder = held(other)
        late = made.submit(int, after=holder)
        gate.set()
        assert isinstance(late.exception(LIMIT_S), TaskError) and late.cancelled()


def test_a_system_without_threads_left(two: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker is enough to go on; without any, the submit says so."""
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate, _ = held(two)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        waiting = two.submit(int, "3")
        with pytest.raises(RuntimeError, match="new thread"):
            Scheduler(1).submit(int)
        assert not waiting.done() and two.stats()["awake"] == 1
    gate.set()
    assert waiting.result(LIMIT_S) == 3


def test_a_task_cannot_close_its_scheduler(two: Scheduler) -> None:
    with pytest.raises(ArgumentError, match="cannot close"):
        two.submit(two.close).result(LIMIT_S)


# -- settings ----------------------------------------------------------------------------------------------------------
def test_settings_of_the_submitter_hold(scheduler: Scheduler) -> None:
    def look(*_: object) -> int:
        return settings.get().level

    gate, holder = held(scheduler)
    with mo.settings(level=1):
        inner = scheduler.submit(look, after=holder)
        with mo.settings(level=0):
            innermost = scheduler.submit(look)
            mapped = scheduler.submit(lambda: mo.tasks.map(look, range(3)) + [mo.tasks.submit(look).result()])
    plain = scheduler.submit(look)
    gate.set()
    assert [f.result(LIMIT_S) for f in (inner, innermost, plain)] == [1, 0, 3]
    assert mapped.result(LIMIT_S) == [0] * 4


def test_a_traced_function_waits_without_recording(one: Scheduler) -> None:
    """What another task computes is no part of the function being compiled, whoever waits for it."""
    state = mo.State(mo.ones(3) * 2)

    @mo.compile
    def f(x: mo.Tensor) -> mo.Tensor:
        return x + one.submit(lambda: float(state.value.sum())).result()  # a value, not an input of f

    assert one.submit(lambda: f(mo.ones(2)).tolist()).result(LIMIT_S) == [7.0, 7.0]


# -- one budget with the engine ----------------------------------------------------------------------------------------
@pytest.fixture
def kernel() -> Iterator[tuple[object, object, bytes]]:
    """A compiled function of enough work for two threads, warm at two threads."""
    x = mo.asarray(np.linspace(0, 1, 2_000_000, dtype=np.float32))
    f = mo.compile(lambda x: mo.exp(x) + 1)
    while threads.budget[BudgetField.RUNNING]:  # a worker of another test has not gone to sleep yet
        time.sleep(0.001)
    with mo.settings(threads=2):
        expected = f(x).numpy().tobytes()
        yield f, x, expected


def counted() -> tuple[int, int, int]:
    """Kernels shared, kernels left to their caller, pieces taken by others than callers."""
    stats = threads.engine_statistics()
    return stats["shared_kernels"], stats["alone_kernels"], sum(sum(p[1:]) for p in stats["pieces"].values())


def test_a_single_task_has_the_engines_threads(two: Scheduler, kernel: tuple) -> None:
    f, x, expected = kernel
    before = counted()
    assert two.submit(lambda: f(x).numpy().tobytes() == expected).result(LIMIT_S)
    after = counted()
    assert after[0] == before[0] + 1 and after[1] == before[1]


def test_tasks_side_by_side_leave_the_engine_one_thread_each(two: Scheduler, kernel: tuple) -> None:
    """Two tasks on a budget of two: no engine thread joins, through the native entry or not."""
    f, x, expected = kernel
    barrier = threading.Barrier(2)

    def work(out: mo.Tensor) -> bool:
        barrier.wait(LIMIT_S)
        f(x, out=out)
        good = out.numpy().tobytes() == expected and f(x).numpy().tobytes() == expected
        good &= (mo.exp(x) + 1).numpy().tobytes() == expected
        barrier.wait(LIMIT_S)
        return good

    before = counted()
    assert all(f.result(LIMIT_S) for f in [two.submit(work, mo.empty(2_000_000)) for _ in range(2)])
    after = counted()
    assert after == (before[0], before[1] + 6, before[2])
    assert threads.budget[BudgetField.HELPERS] == 0


def test_the_main_thread_counts_too(kernel: tuple) -> None:
    """One task runs and the main thread computes: together they are the budget of two."""
    f, x, expected = kernel
    with Scheduler(1) as made:
        gate, _ = held(made)
        before = counted()
        assert f(x).numpy().tobytes() == expected
        assert counted() == (before[0], before[1] + 1, before[2])
        gate.set()
    before = counted()
    assert f(x).numpy().tobytes() == expected
    assert counted()[0] == before[0] + 1


def test_a_task_that_waits_does_not_count(kernel: tuple) -> None:
    """One task waits for another, which has the engine's threads to itself."""
    f, x, expected = kernel
    waiting: list[int] = []

    def inner(_: int) -> bool:
        waiting.append(made.stats()["waiting"])
        return f(x).numpy().tobytes() == expected

    with Scheduler(1) as made:
        before = counted()
        assert made.submit(lambda: made.submit(inner, made.submit(int)).result()).result(LIMIT_S)
        assert counted()[:2] == (before[0] + 1, before[1]) and waiting == [1]


# -- interrupts, forks, ends -------------------------------------------------------------------------------------------
def test_an_interrupt_stops_the_wait_only() -> None:
    printed, _ = run("""
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit it ignored
    s = mo.tasks.Scheduler(2)
    gate = threading.Event()
    future = s.submit(gate.wait, 60)
    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
    for wait in (future.result, lambda: mo.tasks.wait([future]),
                 lambda: mo.tasks.map(gate.wait, [60] * 9, 1, scheduler=s)):
        threading.Thread(target=interrupt).start()
        try:
            wait()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", future.running(), not future._links, s.submit(int).done())
    gate.set()
    print(future.result(), s.submit(pow, 2, 3).result())
    s.close()
    """)
    assert printed.splitlines() == ["interrupted True True False"] * 3 + ["True 8"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_starts_anew() -> None:
    printed, _ = run("""
    import warnings; warnings.simplefilter("ignore", DeprecationWarning)
    from morpho.runtime import threads
    gate = threading.Event()
    s = mo.tasks.Scheduler(2)
    done, running = s.submit(pow, 2, 3), s.submit(gate.wait, 60)
    pending = s.submit(abs, running)
    done.result()
    mo.tasks.map(abs, range(10))
    child = os.fork()
    if child == 0:
        assert list(threads.budget[:5]) == [0] * 5
        assert done.result() == 8
        for future in (running, pending):
            try:
                future.result(5)
            except mo.errors.TaskError as error:
                assert "forked" in str(error), error
        assert isinstance(s.submit(abs, running).exception(5), mo.errors.TaskError)
        assert s.submit(abs, done).result(20) == 8
        assert mo.tasks.map(abs, range(-100, 0)) == list(range(100, 0, -1))
        s.close()
        assert threading.active_count() <= 3
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    def forks():
        child = os.fork()
        if child == 0:
            good = mo.tasks.map(abs, [-1, -2]) == [1, 2] and s.submit(pow, 2, 2).result(20) == 4
            os._exit(0 if good else 1)
        return os.waitpid(child, 0)[1]
    print(s.submit(forks).result(40))
    reader, writer = os.pipe()
    first = s.submit(os.fork)  # the child comes back from its task too, and leaves what depends on it to the parent
    second = s.submit(lambda child: (os.write(writer, b"once"), child)[1], first)
    assert os.waitpid(second.result(20), 0)[1] == 0 and os.read(reader, 100) == b"once"
    gate.set()
    print(running.result(), pending.result())
    s.close()
    """, timeout_s=60, MORPHO_THREADS="2")
    assert printed.splitlines() == ["0", "True 1"]


def test_a_process_ends_with_tasks_in_the_queue() -> None:
    printed, said = run("""
    for n in range(100):
        mo.tasks.submit(time.sleep, 0.01)
    print("end")
    """, MORPHO_THREADS="2")
    assert printed == "end" and not said


def test_stats_are_plain_numbers(two: Scheduler) -> None:
    two.submit(int).result(LIMIT_S)
    assert set(two.stats()) == {"threads", "executed", "stolen", "run_by_waiter", "executed_per_worker", "busy_s",
                                "imbalance", "awake", "most_awake", "waiting", "engine"}
    assert tasks.imbalance([2.0, 2.0], 2) == 0 and tasks.imbalance([4.0], 2) == 1 and tasks.imbalance([], 2) == 0
    assert tasks.imbalance([2.0, 2.0, 0.1], 2) == 0  # a third worker stood in for one that waited


def test_nothing_is_left_behind() -> None:
    """After all of this: no worker counted awake, no row taken by an ended thread's scheduler, no lock held."""
    gc.collect()
    alive = {thread.ident for thread in threading.enumerate()}
    rows = threads.budget[BudgetField.TABLE:]
    assert {row for row in rows if row} <= alive
    assert futures.lock.acquire(blocking=False)
    futures.lock.release()
    with Scheduler(2) as made:
        made.submit(int).result(LIMIT_S)
    with futures.lock:
        assert threads.budget[BudgetField.RUNNING] == sum(s._awake for s in tasks._live)
