"""A compiled function called with several signatures by turns: each is served by the native entry."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor.jit.native import native_entry


def ones(*shape: int, dtype: Any = "float32") -> mo.Tensor:
    return mo.asarray(np.ones(shape, dtype))


def slow_calls(f: Any, calls: Any) -> int:
    """How many of some calls went through Python."""
    before = f.slow_calls
    calls()
    return int(f.slow_calls - before)


def test_shapes_and_dtypes_by_turns() -> None:
    f = mo.compile(lambda a, b: a * 2 + b)
    kinds = [ones(3), ones(4), ones(2, 3), ones(3, dtype="float64")]

    def round_trip() -> None:
        for x in kinds:
            found = f(x, x)
            assert found.dtype is x.dtype and found.shape == x.shape and (found.numpy() == 3).all()
            target = mo.empty(x.shape, dtype=x.dtype)
            assert f(x, x, out=target) is target and (target.numpy() == 3).all()

    assert slow_calls(f, round_trip) == len(kinds)
    assert slow_calls(f, round_trip) == 0 and f.recompiles == 3


def test_the_last_one_is_the_one_explained() -> None:
    f = mo.compile(lambda x: x.sum(axis=-1))
    small, large = ones(2, 3), ones(64, 8)
    for x in (small, large, small, large):
        f(x)
        assert f.current.plan.graph.parameters[0].shape == x.shape
    f(small)
    assert f.current.plan.graph.parameters[0].shape == (2, 3) and "calls\n  5 (3 through" in f.explain()


def test_more_signatures_than_are_served_side_by_side() -> None:
    f = mo.compile(lambda x: x + 1)
    most = native_entry.MOST_SIGNATURES
    for size in range(1, 2 * most + 1):
        assert f(ones(size)).tolist() == [2.0] * size
    assert len(f.served) == most
    assert slow_calls(f, lambda: [f(ones(size)) for size in range(most + 1, 2 * most + 1)]) == 0
    assert slow_calls(f, lambda: [f(ones(1)), f(ones(1))]) == 1


def test_static_arguments_and_containers_by_turns() -> None:
    f = mo.compile(lambda pair, kind="a": pair[0] + pair[-1] if kind == "a" else pair[0] - pair[-1])
    x, y = ones(3), ones(5)

    def turn() -> None:
        assert f([x, x]).tolist() == [2, 2, 2] and f([y, y, y]).tolist() == [2] * 5
        assert f((x, x), "b").tolist() == [0, 0, 0] and f([x, x], kind="b").tolist() == [0, 0, 0]

    turn()
    assert slow_calls(f, turn) == 0


def test_large_arenas_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batch sizes of a large program do not hold two arenas."""
    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1) @ x)
    large, other, small = ones(256, 32), ones(200, 32), ones(8, 4)
    f(small)
    monkeypatch.setattr(native_entry, "SMALL_BYTES", f.current.kept_bytes)
    for x in (large, small, other, small):
        np.testing.assert_allclose(f(x).numpy(), 1, rtol=1e-5)
    blocks = {one.chosen.plan.graph.parameters[0].shape[0]: one.chosen.block for one in f.served}
    assert [size for size, block in blocks.items() if block is not None] == [8, 200]  # the last of the large
    assert slow_calls(f, lambda: [f(small), f(other), f(small)]) == 0


def test_states_are_shared_by_all_signatures() -> None:
    total = mo.State(mo.zeros(()))

    @mo.compile
    def add(x: mo.Tensor) -> mo.Tensor:
        total.value = total.value + x.sum()
        return x * total.value

    for count in range(1, 5):
        for size in (2, 3):
            add(ones(size))
        assert total.value.item() == 5 * count
    assert add.slow_calls == 2


def test_weights_that_change_are_seen_by_all_signatures() -> None:
    x, y = ones(1, 3), ones(64, 3)
    captured = mo.asarray(np.ones((3, 2), "f"), copy=True)
    g = mo.compile(lambda x: x @ captured)
    for value in (1, 5):
        captured[...] = value
        assert g(x).tolist() == [[3 * value] * 2] and (g(y).numpy() == 3 * value).all()
        assert slow_calls(g, lambda: [g(x), g(y), g(x)]) == 0


def test_a_mode_holds_for_all_signatures() -> None:
    drop = mo.nn.Dropout(0.5)
    f = mo.compile(lambda x: drop(x))
    x, y = ones(100), ones(200)
    drop.eval()
    for _ in range(2):
        assert (f(x).numpy() == 1).all() and (f(y).numpy() == 1).all()
    drop.train()
    for _ in range(2):
        assert (f(x).numpy() != 1).all() and (f(y).numpy() != 1).all()
    drop.eval()
    assert (f(x).numpy() == 1).all() and (f(y).numpy() == 1).all()


def test_threads_with_signatures_of_their_own() -> None:
    f = mo.compile(lambda x: mo.exp(x * 0) + x)
    failures: list[int] = []

    def body(size: int) -> None:
        x = ones(size)
        for _ in range(500):
            if f(x).tolist() != [2.0] * size:
                failures.append(size)

    threads = [threading.Thread(target=body, args=(size,)) for size in (3, 50, 700)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and f.calls == 1500


def test_tables_of_a_running_call_are_taken_by_other_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arena stays its own: a call of the same program meanwhile does not run in it."""
    monkeypatch.setattr(native_entry, "MOST_SIGNATURES", 3)

    @partial(mo.compile, dynamic={"x": {0: mo.Dim("n", 1, 400)}})
    def body(x: mo.Tensor, w: mo.Tensor, k: int = 0) -> mo.Tensor:
        for _ in range(40 if k == 0 else 1):
            x = mo.tanh(x @ w)
        return x + k

    rng = np.random.default_rng(0)
    w = mo.asarray((0.08 * rng.standard_normal((256, 256))).astype(np.float32))
    large, small = (mo.asarray(rng.standard_normal((n, 256)).astype(np.float32)) for n in (400, 3))
    wanted = [body(x, w).numpy().copy() for x in (large, small, large)]
    for _ in range(3):
        body(large, w)
        found: list[np.ndarray] = []
        thread = threading.Thread(target=lambda found=found: found.append(body(large, w).numpy().copy()))
        thread.start()
        while not body.is_busy and thread.is_alive():
            pass
        for k in range(1, 5):
            body(small, w, k)
        for _ in range(3):
            np.testing.assert_array_equal(body(small, w).numpy(), wanted[1])
        thread.join()
        np.testing.assert_array_equal(found[0], wanted[0])


def test_a_program_that_is_replaced_while_it_runs_is_held() -> None:
    """A captured tensor that is laid out anew means another program; the old one's memory stays until its call ends."""
    rng = np.random.default_rng(0)
    w = mo.asarray((0.08 * rng.standard_normal((256, 256))).astype(np.float32))
    x = mo.asarray(rng.standard_normal((400, 256)).astype(np.float32))
    for _ in range(3):
        bias = mo.asarray(np.ones(256, np.float32))  # borrowed, until it is written

        def function(x: mo.Tensor, bias: mo.Tensor = bias) -> mo.Tensor:
            for _ in range(60):
                x = mo.tanh(x @ w)
            return x + bias

        captures = mo.compile(lambda x, function=function: function(x))
        wanted = [captures(x).numpy().copy() for _ in range(3)][-1]
        old, found = weakref.ref(captures.current), []
        thread = threading.Thread(target=lambda found=found, f=captures: found.append(f(x).numpy().copy()))
        thread.start()
        while not captures.is_busy and thread.is_alive():
            pass
        was_busy = captures.is_busy
        bias[...] = 1
        captures(x)
        assert not was_busy or not thread.is_alive() or old() is not None
        thread.join()
        np.testing.assert_array_equal(found[0], wanted)


def test_a_block_that_looks_at_every_result_takes_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_entry, "MOST_SIGNATURES", 3)
    f = mo.compile(lambda x: x + 1)
    sizes = (1, 2, 3)
    for size in sizes:
        f(ones(size))
    with mo.settings(nans="results"):
        for size in sizes:
            f(ones(size))
    assert slow_calls(f, lambda: [f(ones(size)) for size in sizes]) == 0


def test_a_dropped_function_lets_everything_go() -> None:
    f = mo.compile(lambda x: x + 1)
    for size in range(1, 5):
        f(ones(size))
    seen = [weakref.ref(one) for one in f.served]
    del f
    gc.collect()
    assert len(seen) == 4 and all(one() is None for one in seen)
