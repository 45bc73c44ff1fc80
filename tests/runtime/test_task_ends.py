"""The scheduler of tasks: closing, settings, the budget shared with the engine, interrupts, forks, ends."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from schedulers import LIMIT_S, held
from subprograms import run

import morpho as mo
from morpho.backends.driver import threads
from morpho.backends.driver.abi import BudgetField
from morpho.base import settings
from morpho.base.errors import ArgumentError, TaskError
from morpho.runtime.tasks import futures, scheduler
from morpho.tensor.tools.tasks import Scheduler


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
    assert after[1] - before[1] in (6, 7, 8)  # the first times `exp` and `+` are programs of their own
    assert after == (before[0], after[1], before[2])
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
    from morpho.backends.driver import threads
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
                                "imbalance", "processes_died", "awake", "most_awake", "waiting", "engine"}
    assert [scheduler.imbalance(times, 2) for times in ([2.0, 2.0], [4.0], [])] == [0, 1, 0]
    assert scheduler.imbalance([2.0, 2.0, 0.1], 2) == 0  # a third worker stood in for one that waited


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
        assert threads.budget[BudgetField.RUNNING] == sum(s._awake for s in scheduler._live)
