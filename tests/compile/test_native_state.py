"""Functions that use states are served by the native entry, with everything `test_state.py` promises."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

import numpy as np
import pytest
from callers import together
from test_state import ORDERS, accumulate, address

import morpho as mo
from morpho.base.errors import IndexFault
from morpho.ops.algebra import constant_like
from morpho.tensor.autodiff.gradient import pull_back

LONG = 60_000  # elements whose sum is work for which the interpreter lock is given up


def served(function: object, *args: object, **kwargs: object) -> tuple[object, bool]:
    """The result of a call, and whether the native entry served it."""
    before = function.native_calls  # type: ignore[attr-defined]
    result = function(*args, **kwargs)  # type: ignore[operator]
    return result, function.native_calls == before + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [5, LONG])
def test_a_step_is_one_native_call(size: int) -> None:
    total = mo.State(np.zeros(size, np.float32))
    step, x = accumulate(total), mo.ones(size)
    step(x)
    where = address(total)
    for count in range(2, 6):
        result, native = served(step, x)
        assert native and result.item() == size * count  # type: ignore[attr-defined]
        assert total.version == count and address(total) == where
    out = mo.empty(())
    assert served(step, x, out=out) == (out, True) and out.item() == size * 6
    assert total.version == 6


def test_nothing_returned() -> None:
    total = mo.State(mo.zeros(3))
    step = mo.compile(lambda x: setattr(total, "value", total.value + x))
    step(mo.ones(3))
    assert served(step, mo.ones(3).realise()) == (None, True)
    assert total.value.tolist() == [2, 2, 2] and total.version == 2


def test_several_results() -> None:
    total = mo.State(mo.zeros(3))

    @mo.compile
    def step(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        total.value = total.value + x
        return total.value, total.value.sum()

    x = mo.ones(3).realise()
    first = step(x)
    second, native = served(step, x)
    assert native and [t.tolist() for t in second] == [[2, 2, 2], 6]  # type: ignore[attr-defined]
    assert [t.tolist() for t in first] == [[1, 1, 1], 3] and isinstance(second, tuple)


@pytest.mark.parametrize("size", [3, LONG])
def test_values_that_were_read_stay(size: int) -> None:
    total = mo.State(np.zeros(size, np.float32))
    step, x = accumulate(total), mo.ones(size).realise()
    step(x)
    held = total.value
    assert served(step, x)[1] is False  # someone holds the memory: Python finds other
    array = total.value.numpy()
    assert served(step, x)[1] is False
    assert served(step, x)[1]
    assert held.numpy().max() == 1 and array.max() == 2 and total.value.numpy().min() == 4
    assert step(total.value).item() == 8 * size  # its own value as argument


@pytest.mark.parametrize("name", ORDERS)
def test_updates_that_cannot_be_written_in_place(name: str) -> None:
    start = np.random.default_rng(1).random(64, np.float32)
    state = mo.State(start)

    @mo.compile
    def step() -> mo.Tensor:
        state.value = ORDERS[name](state.value)
        return state.value.sum()

    value, values, native = mo.asarray(start), [], 0
    for _ in range(6):
        value = mo.asarray(ORDERS[name](value).numpy(copy=True))
        result, by_entry = served(step)
        native += by_entry
        assert result.item() == value.sum().item()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(state.value.numpy(), value.numpy())
    values = []
    for _ in range(4):  # all old values held
        values.append((state.value, state.value.numpy(copy=True)))
        native += served(step)[1]
    for tensor, copy in values:
        np.testing.assert_array_equal(tensor.numpy(), copy)
    del tensor, values
    assert state.version == 10
    if name != "sorted":  # that one runs on the host
        step()
        assert native > 4 and served(step)[1] and served(step)[1]


def test_exchanged() -> None:
    a, b = mo.State(mo.zeros(7)), mo.State(mo.ones(7))

    @mo.compile
    def swap() -> None:
        a.value, b.value = b.value, a.value

    swap()
    for count in range(1, 7):
        assert served(swap)[1]
        assert (a.value.tolist()[0], b.value.tolist()[0]) == ((0, 1) if count % 2 else (1, 0))
    assert a.version == b.version == 7


def test_assigned_between_calls() -> None:
    total = mo.State(mo.zeros(3))
    step, x = accumulate(total), mo.ones(3).realise()
    step(x)
    total.value = [5.0, 6.0, 7.0]
    assert served(step, x)[1] and total.value.tolist() == [6, 7, 8] and total.version == 3
    kept = mo.asarray([1.0, 2.0, 3.0])
    total.value = kept
    assert served(step, x)[1] and total.value.tolist() == [2, 3, 4] and kept.tolist() == [1, 2, 3]


def test_two_functions_take_turns_natively() -> None:
    total = mo.State(mo.zeros(3))
    step, other = accumulate(total), mo.compile(lambda: setattr(total, "value", total.value[::-1] * 2))
    x = mo.asarray([1.0, 2.0, 3.0])
    step(x), other()
    for _ in range(3):
        assert served(step, x)[1] and served(other)[1]
    expected = np.zeros(3)
    for _ in range(4):
        expected = (expected + [1, 2, 3])[::-1] * 2
    assert total.value.tolist() == expected.tolist() and total.version == 8


def test_a_fault_leaves_everything() -> None:
    total, other = mo.State(np.zeros(50, np.float32)), mo.State(np.ones(3, np.float32))
    table = mo.asarray(np.arange(100, dtype=np.float32))

    @mo.compile
    def step(index: mo.Tensor) -> mo.Tensor:
        total.value = total.value + 1
        other.value = other.value * 2
        return (table + total.value.sum())[index].sum()

    good, bad = mo.asarray([0, 1, 2]), mo.asarray([0, 1, 100])
    step(good), step(good)  # the entry serves functions with tensors of the surroundings from the third call on
    assert served(step, good)[1]
    calls = step.native_calls
    for _ in range(3):
        with pytest.raises(IndexFault, match=r"test_native_state.py:"):
            step(bad)
        assert total.value.tolist() == [3] * 50 and other.value.tolist() == [8] * 3
        assert total.version == other.version == 3
    assert step.native_calls == calls + 3
    assert served(step, good)[1] and other.value.tolist() == [16] * 3


@pytest.mark.parametrize("size", [64, LONG])
def test_threads_take_turns(size: int) -> None:
    total = mo.State(np.zeros(size, np.float32))
    step, other = accumulate(total), mo.compile(lambda x: setattr(total, "value", (total.value + x)[::-1]))
    count = 200 if size == 64 else 10
    x = mo.ones(size).realise()
    step(x), other(x)
    seen: list[np.ndarray] = []

    def work(caller: int) -> None:
        for number in range(count):
            (step, other)[caller % 2](x)
            if number % 5 == 0:
                seen.append(total.value.numpy())

    together(work, 4, switch_s=1e-5)
    assert total.value.numpy().min() == total.value.numpy().max() == total.version == 4 * count + 2
    assert all(array.min() == array.max() for array in seen)


def test_a_held_lock_is_waited_for() -> None:
    total = mo.State(mo.zeros(3))
    step, x = accumulate(total), mo.ones(3).realise()
    step(x)
    started, done = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        step(x)
        done.set()

    with total.lock:
        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        assert not done.wait(0.05) and total.version == 1
        assert served(step, x)[1] is False and total.version == 2  # who holds the lock may call
    thread.join()
    assert total.version == 3 and served(step, x)[1]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_an_interrupt_leaves_no_lock_held() -> None:
    """Ctrl-C while a long step runs is raised after it: its states are whole, counted and free."""
    total = mo.State(np.zeros(LONG * 20, np.float32))
    step, x = accumulate(total), mo.ones(LONG * 20).realise()
    step(x), step(x)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(20):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + number))
                while True:
                    step(x)
            assert total._words[0] == 0, "held"
    finally:
        signal.signal(signal.SIGALRM, old)
    assert served(step, x)[1]
    assert total.value.numpy().min() == total.value.numpy().max() == total.version


def mlp(batch: int, lr: float = 0.01) -> tuple[list[mo.State], list[np.ndarray], object]:
    """A training step of two layers: its states, their first values in float64, and the function."""
    rng = np.random.default_rng(3)
    first = [(rng.standard_normal(shape) * 0.5).astype(np.float32) for shape in ((6, 9), (9,), (9, 4), (4,))]
    states = [mo.State(array) for array in first]

    @mo.compile
    def step(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        w1, b1, w2, b2 = values = [state.value for state in states]
        loss = ((mo.relu(x @ w1 + b1) @ w2 + b2 - y) ** 2).sum()
        nodes = pull_back([loss.node], [constant_like(loss.node, 1)], [value.node for value in values])
        for state, value, node in zip(states, values, nodes, strict=True):
            state.value = value - lr / batch * mo.Tensor.of_node(node)
        return loss

    return states, [array.astype(np.float64) for array in first], step


@pytest.mark.parametrize("batch", [1, 5])
def test_a_training_step(batch: int, rng: np.random.Generator) -> None:
    states, (w1, b1, w2, b2), step = mlp(batch)
    addresses: list[list[int]] = []
    for number in range(8):
        x, y = rng.standard_normal((batch, 6)).astype(np.float32), rng.standard_normal((batch, 4)).astype(np.float32)
        loss, native = served(step, mo.asarray(x), mo.asarray(y))
        before = x @ w1 + b1
        error = np.maximum(before, 0) @ w2 + b2 - y
        assert native == (number > 0) and abs(loss.item() - (error**2).sum()) < 1e-4  # type: ignore[attr-defined]
        back = (2 * error @ w2.T) * (before > 0)
        w2, b2 = w2 - 0.01 / batch * np.maximum(before, 0).T @ (2 * error), b2 - 0.01 / batch * 2 * error.sum(0)
        w1, b1 = w1 - 0.01 / batch * x.T @ back, b1 - 0.01 / batch * back.sum(0)
        for state, expected in zip(states, (w1, b1, w2, b2), strict=True):
            np.testing.assert_allclose(state.value.numpy(), expected, rtol=1e-3, atol=1e-4)
        addresses.append([address(state) for state in states])
    kept = sum(first == last for first, last in zip(addresses[0], addresses[-1], strict=True))
    assert kept >= (4 if batch == 1 else 3)  # in place, but for one where the order that needs least memory forbids it
    assert [state.version for state in states] == [8] * 4


def test_settings_of_a_thread() -> None:
    total = mo.State(mo.zeros(3))
    step, x = accumulate(total), mo.ones(3).realise()
    step(x)
    with mo.settings(level=0):
        step(x)
        assert served(step, x)[1]
    step(x)
    assert served(step, x)[1] and total.value.tolist() == [5, 5, 5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork() -> None:
    total = mo.State(mo.zeros(3))
    step, x = accumulate(total), mo.ones(3).realise()
    step(x)
    with total.lock:  # held by a thread that the child does not have
        child = os.fork()
        if child == 0:
            step(x)
            good = served(step, x)[1] and total.value.tolist() == [3, 3, 3] and total.version == 3
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert served(step, x)[1] and total.version == 2


def reversing() -> tuple[mo.State, object]:
    """A state, and a function that cannot write it in place."""
    total = mo.State(mo.zeros(300))
    return total, mo.compile(lambda: setattr(total, "value", total.value[::-1] + 1))


def test_memory_is_let_go() -> None:
    """A function, its states and its spare memory go with the last reference."""
    pair = reversing()
    for _ in range(4):
        assert pair[1]() is None  # type: ignore[operator]
    storages = [pair[0]._tensor._storage, next(iter(pair[1].current.states.spares.values()))._tensor._storage]
    assert [sys.getrefcount(storage) for storage in storages] == [4, 4]  # list, name, argument, and its tensor
    del pair
    gc.collect()
    assert [sys.getrefcount(storage) for storage in storages] == [3, 3]


def test_new_results_are_tensors_like_others() -> None:
    """Results that the entry makes itself: own memory, writable, alone."""
    f = mo.compile(lambda x: (x * 2, x.sum()))
    x = mo.asarray([1.0, 2.0, 3.0])
    f(x)
    (first, total), native = served(f, x)  # type: ignore[misc]
    assert native
    (again, other), _ = served(f, x)  # type: ignore[misc]
    assert first.tolist() == again.tolist() == [2, 4, 6] and total.item() == 12 / 2
    assert first.elements().address != again.elements().address and first.elements().address % 64 == 0
    assert first.shape == (3,) and first.dtype is mo.float32 and total.shape == ()
    view = first.numpy()
    pair = (again, other)
    assert served(f, mo.ones(3).realise(), out=pair)[0] is pair and again.tolist() == [2, 2, 2]
    again[0] = 7.0
    assert again.tolist() == [7, 2, 2] and view.tolist() == [2, 4, 6]
    del first
    gc.collect()
    assert view.tolist() == [2, 4, 6]
    for _ in range(100):
        result = f(x)[0]
    assert (result + 1).tolist() == [3, 5, 7]
