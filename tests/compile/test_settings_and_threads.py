"""Settings belong to a thread or task, the native entry to the process: nobody is served by code that others chose."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.abi import ContextField, Enabled
from morpho.base import settings as base_settings
from morpho.tensor.jit.native.entries import entries


def function() -> tuple[Any, mo.Tensor, mo.Tensor]:
    f = mo.compile(lambda x: mo.exp(x) * 3 + 1)
    return f, mo.asarray(np.linspace(0, 1, 200, dtype=np.float32)), mo.empty(200)


class Turns:
    """Two threads that take turns: `yours()` hands over and waits until the other does the same."""

    def __init__(self, other) -> None:
        self.mine, self.theirs, self.errors = threading.Semaphore(0), threading.Semaphore(0), []

        def body() -> None:
            self.theirs.acquire()
            try:
                for _ in other():
                    self.mine.release()
                    self.theirs.acquire()
            except BaseException as error:
                self.errors.append(error)
            self.mine.release()

        self.thread = threading.Thread(target=body)
        self.thread.start()

    def yours(self) -> None:
        self.theirs.release()
        assert self.mine.acquire(timeout=60), "the other thread hangs"
        if self.errors:
            raise self.errors[0]

    def end(self) -> None:
        self.theirs.release()
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.errors:
            raise self.errors[0]


def test_a_block_is_not_served_by_another_threads_code() -> None:
    f, x, target = function()
    f(x, out=target)
    native: list[int] = []

    def inside():
        own = mo.empty(200)
        with mo.settings(device="reference"):
            yield
            for _ in range(3):
                before = f.native_calls
                f(x, out=own)
                f(x)
                native.append(f.native_calls - before)
                yield

    turns = Turns(inside)
    turns.yours()
    for _ in range(3):
        f(x, out=target)  # brings the native entry back, for callers without a block
        before = f.native_calls
        f(x, out=target)
        assert f.native_calls == before + 1
        turns.yours()
    turns.end()
    assert native == [0, 0, 0]


def test_tasks_of_one_thread() -> None:
    f, x, target = function()
    native: list[int] = []

    async def inside() -> None:
        with mo.settings(device="reference"):
            for _ in range(3):
                await asyncio.sleep(0)
                before = f.native_calls
                f(x)
                native.append(f.native_calls - before)

    async def outside() -> None:
        for _ in range(6):
            f(x, out=target)
            f(x, out=target)
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(inside(), outside())

    asyncio.run(both())
    assert native == [0, 0, 0] and f.native_calls > 0


def test_a_block_has_its_own_fast_calls() -> None:
    f, x, target = function()
    for level in (3, 1, 1, 0):
        with mo.settings(level=level):
            f(x, out=target)
            before = f.native_calls
            for _ in range(5):
                f(x, out=target)
            assert f.native_calls == before + 5
            assert Enabled.MATCHING in enabled(f) and Enabled.ALL not in enabled(f)
    f(x, out=target)
    assert enabled(f).count(Enabled.ALL) == 1 and Enabled.MATCHING not in enabled(f)  # no look at the settings now
    assert base_settings.blocks() == 0


def enabled(f: Any) -> list[int]:
    return [served.words[ContextField.ENABLED] for served in f.served]


def test_a_block_elsewhere_costs_other_callers_nothing() -> None:
    """Functions that were not called in a block go on as they were, in it and after it; so do those that were."""
    f, x, target = function()
    f(x, out=target)
    before = f.slow_calls
    for _ in range(3):
        with mo.settings(device="reference"):
            mo.exp(x).numpy()
        f(x, out=target)
    assert f.slow_calls == before
    for _ in range(3):
        with mo.settings(level=1):
            f(x, out=target)
        f(x, out=target)
    assert f.slow_calls == before + 1


def test_equal_settings_are_one_object() -> None:
    """So that threads in blocks of equal settings share the entry."""
    with mo.settings(level=2, threads=1) as one, mo.settings(threads=1, level=2) as two:
        assert one is two
    f, x, target = function()
    served: list[int] = []

    def inside():
        own = mo.empty(200)
        with mo.settings(level=2):
            f(x, out=own)
            yield
            before = f.native_calls
            f(x, out=own)
            served.append(f.native_calls - before)

    with mo.settings(level=2):
        turns = Turns(inside)
        turns.yours()
        f(x, out=target)
        turns.end()
    assert served == [1]


def test_the_caller_takes_over_an_entry_of_equal_code() -> None:
    """Settings that mean the same code: the entry serves whoever called last, not only who came first."""
    f, x, target = function()

    def inside():
        own = mo.empty(200)
        with mo.settings(pool_bytes=1 << 40):
            f(x, out=own)
            yield

    turns = Turns(inside)
    turns.yours()
    f(x, out=target)
    before = f.native_calls
    f(x, out=target)
    assert f.native_calls == before + 1
    turns.end()
    assert len(f.served) == 1  # for one arena there is one word that says whether a call runs in it


def test_an_error_ends_the_block() -> None:
    with pytest.raises(KeyError), mo.settings(level=1):
        raise KeyError
    assert base_settings.blocks() == 0


def test_a_choice_made_before_a_change_is_not_installed_after_it() -> None:
    """A call that looked up its code before another thread changed a pass or a mode must not switch the entry on."""
    f, x, target = function()
    f(x, out=target)
    chosen, before = f.current, entries.generation
    entries.forget()
    f.serve(chosen, before)
    assert enabled(f) == [Enabled.NONE]


def test_entries_stay_off_while_any_thread_traces() -> None:
    """One thread's trace ends while another's goes on: functions called in it are traced, not run."""
    inner, x, target = function()
    inner(x, out=target)
    start, go_on = threading.Event(), threading.Event()

    def slow(x: mo.Tensor) -> mo.Tensor:
        start.set()
        assert go_on.wait(60)
        return inner(x) + inner(constant)

    constant = mo.asarray(np.zeros(200, np.float32), copy=True)
    outer = mo.compile(slow)
    found: list[mo.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(outer(x)))
    thread.start()
    assert start.wait(60)
    mo.compile(lambda x: x + 2)(x)  # another trace, begun and ended
    inner(x, out=target)
    calls = inner.calls
    go_on.set()
    thread.join()
    assert inner.calls == calls
    first = found[0].numpy()[0]
    constant[:] = 1.0
    assert outer(x).numpy()[0] != first  # read anew: it is an input of the trace, not a value of it
