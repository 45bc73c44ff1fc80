"""The scheduler of tasks: results, order, failures, cancelling, callbacks. Counters, no clocks."""

from __future__ import annotations

import gc
import logging
import operator
import threading
import traceback
import weakref

import numpy as np
import pytest
from schedulers import LIMIT_S, divide, held

import morpho as mo
from morpho.backends.driver import threads
from morpho.base.errors import ArgumentError, TaskError, TaskTimeout
from morpho.runtime.tasks import scheduler
from morpho.tensor.tools.tasks import Future, Scheduler


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


def test_arguments_by_name_may_be_futures(two: Scheduler) -> None:
    flag = two.submit(bool, 1)
    made = two.submit(sorted, [1, 3, 2], reverse=flag)
    assert made.result(LIMIT_S) == [3, 2, 1] and made.name == "sorted"
    assert mo.tasks.submit(dict, function=1, self=2, scheduler=two).result(LIMIT_S) == {"function": 1, "self": 2}
    with pytest.raises(TypeError, match="speed"):
        two.submit(sorted, [], speed=1).result(LIMIT_S)


def test_waiting_inside_tasks_is_fine_to_the_depth_that_docs_say(one: Scheduler) -> None:
    def down(n: int) -> int:
        return 0 if n == 0 else 1 + mo.tasks.submit(down, n - 1).result()

    assert one.submit(down, 150).result(LIMIT_S) == 150


def test_the_default_number_of_threads_is_the_engines() -> None:
    assert Scheduler().threads == threads.wanted_threads()
    with mo.settings(threads=3):
        assert Scheduler().threads == 3
        assert scheduler.default().threads == 3 and mo.tasks.stats()["threads"] == 3
        assert mo.tasks.submit(lambda: scheduler.default().threads).result(LIMIT_S) == 3
    assert scheduler.default() is scheduler.default()


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
    with pytest.raises(TimeoutError, match="'int' is still waiting for a thread after 0 s"):
        one.submit(int).result(timeout=0)
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
