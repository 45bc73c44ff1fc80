"""How long a compiled function keeps what it compiled: weak references and counters, no measure of memory."""

from __future__ import annotations

import functools
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor.jit import lifetimes
from morpho.tensor.jit.lifetimes import MOST_SPECIALISATIONS


def alive(references: list[Any]) -> int:
    gc.collect()
    return sum(reference() is not None for reference in references)


def value_of(state: mo.State, x: mo.Tensor) -> mo.Tensor:
    state.value = state.value + x
    return state.value.sum()


class Holder:
    """An object of the user's that is known by its identity."""

    def __init__(self) -> None:
        self.state = mo.State(mo.zeros(3))

    def add(self, x: mo.Tensor) -> mo.Tensor:
        return value_of(self.state, x)


MAKERS: dict[str, tuple[Callable[[], Any], Callable[[Any, mo.Tensor], mo.Tensor]]] = {
    "state": (lambda: mo.State(mo.zeros(3)), value_of),
    "states in a list": (lambda: mo.State(mo.zeros(3)), lambda s, x: value_of(s[0], x)),
    "module": (lambda: mo.nn.Linear(3, 3), lambda m, x: m(x)),
    "dropout": (lambda: mo.nn.Dropout(0.5), lambda m, x: m(x)),
    "object": (Holder, lambda holder, x: holder.add(x)),
    "function": (lambda: (lambda x: x * 3), lambda function, x: function(x)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_arguments_are_held_weakly(name: str) -> None:
    """Each new object is compiled for; when it is gone so is what was compiled, and the last one can be explained."""
    make, body = MAKERS[name]
    f, x = mo.compile(body), mo.ones(3)
    things, programs = [], []
    for _ in range(5):
        thing = make()
        for _ in range(3):  # the first through Python, the others natively
            f([thing] if "list" in name else thing, x)
        things.append(weakref.ref(thing))
        programs.append(weakref.ref(f.current))
        del thing
    assert alive(things) == 0 and alive(programs[:-1]) == 0
    assert not f.specialisations and not f.signatures and not f.assumed and not f.is_enabled
    assert f.stats["dropped"] == 5 and "kernel" in f.explain()


def test_by_keyword_and_as_a_method() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = mo.State(mo.ones(3))

        @mo.compile
        def apply(self, x: mo.Tensor) -> mo.Tensor:
            return x * self.weight.value

    f = mo.compile(lambda x, state: value_of(state, x))
    things = []
    for _ in range(4):
        model, state = Model(), mo.State(mo.zeros(3))
        for _ in range(3):
            assert model.apply(mo.ones(3)).tolist() == [1, 1, 1]
            f(mo.ones(3), state=state)
        assert state.value.tolist() == [3, 3, 3]
        things += [weakref.ref(model), weakref.ref(model.weight), weakref.ref(state)]
        del model, state
    assert alive(things) == 0 and not f.specialisations and not Model.apply.specialisations


def test_living_arguments_keep_their_programs() -> None:
    f, x = mo.compile(value_of), mo.ones(3)
    states = [mo.State(mo.zeros(3)) for _ in range(4)]
    for _ in range(3):
        for state in states:
            f(state, x)
    assert f.slow_calls == 4 and f.recompiles == 3 and len(f.specialisations) == 4
    del state
    states.pop(1)
    gc.collect()
    assert len(f.specialisations) == 3
    for state in states:
        f(state, x)
    assert f.slow_calls == 4 and [state.value.tolist() for state in states] == [[4.0] * 3] * 3


def test_an_object_at_the_address_of_a_dead_one_is_another() -> None:
    """The system gives the memory of the last object to the next: native code, which compares addresses, must not take
    it for the same. Many of them, one after another."""
    f, x = mo.compile(lambda holder, x: x * holder.factor), mo.ones(2)

    class Factor:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    addresses = set()
    for factor in range(25):
        thing = Factor(float(factor))
        addresses.add(id(thing))
        assert f(thing, x).tolist() == [factor] * 2 == f(thing, x).tolist()
        del thing
    assert len(addresses) < 25  # it did happen


def test_a_death_while_locks_are_held_is_seen_later() -> None:
    """Garbage is collected at any moment: with the function's lock held by another thread, or the table's by this one,
    the program stays until the next call, and serves nobody."""
    f, x = mo.compile(value_of), mo.ones(3)

    def dies(others: Any) -> None:
        state = mo.State(mo.zeros(3))
        f(state, x)
        f(state, x)
        with others:
            del state
            gc.collect()
            assert len(f.dead) == 1 and len(f.specialisations) == 1
            assert (f.served[0].chosen.given_table == lifetimes.NOBODY).all()

    dies(lifetimes.entries.lock)
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with f.lock:
            taken.set()
            done.wait(20)

    f(mo.State(mo.zeros(3)), x)
    assert not f.dead and not f.specialisations
    thread = threading.Thread(target=hold)
    state = mo.State(mo.zeros(3))
    f(state, x)
    thread.start()
    taken.wait(20)
    del state
    gc.collect()
    assert len(f.dead) == 1
    done.set()
    thread.join()
    f(mo.State(mo.zeros(3)), x)
    assert not f.dead and not f.specialisations


def test_threads_with_objects_of_their_own() -> None:
    """Objects die in all of them at once, while others are compiled for."""
    f, failures = mo.compile(lambda holder, x: x * holder.factor + holder.factor), []

    class Factor:
        def __init__(self, factor: float) -> None:
            self.factor = factor
            self.circle = self  # it lives until the collector comes

    def body(number: int) -> None:
        for turn in range(12):
            thing, x = Factor(float(number * 100 + turn)), mo.ones(2)
            for _ in range(3):
                if f(thing, x).tolist() != [2 * thing.factor] * 2:
                    failures.append((number, turn))

    threads = [threading.Thread(target=body, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    f(Factor(1.0), mo.ones(2))
    gc.collect()
    assert not failures and len(f.specialisations) <= 1


# -- the least recently used go first ----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["shape", "number"])
def test_programs_are_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "MOST_SPECIALISATIONS", 8)
    monkeypatch.setattr("morpho.tensor.jit.native.native_entry.MOST_SIGNATURES", 3)
    f = mo.compile(lambda x, k=1: x + int(k))
    programs, plans = [], []
    for n in range(1, 41):
        given, first = ((mo.ones(n),), 2) if kind == "shape" else ((mo.ones(2), n), n + 1)
        assert f(*given).tolist()[0] == first
        programs.append(weakref.ref(f.current))
        plans.append(weakref.ref(f.current.plan))
    assert len(f.specialisations) == 8 == len(f.signatures) and f.stats["dropped"] == 32 and f.recompiles == 39
    assert alive(programs) == 8 == alive(plans)
    assert MOST_SPECIALISATIONS > 32


def test_what_is_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that every other call uses is compiled once, natively served or not."""
    monkeypatch.setattr(lifetimes, "MOST_SPECIALISATIONS", 6)
    monkeypatch.setattr("morpho.tensor.jit.native.native_entry.MOST_SIGNATURES", 2)
    f = mo.compile(lambda x: x + 1)
    for n in range(2, 30):
        assert f(mo.ones(1)).tolist() == [2] and f(mo.ones(n)).tolist() == [2] * n
    assert f.recompiles == 28 and len(f.specialisations) == 6


def test_one_that_comes_back_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "MOST_SPECIALISATIONS", 4)
    monkeypatch.setattr("morpho.tensor.jit.native.native_entry.MOST_SIGNATURES", 1)
    total = mo.State(mo.zeros(()))
    weight = mo.asarray(np.full((4, 4), 2, "f"), copy=True)

    @mo.compile
    def f(x: mo.Tensor) -> mo.Tensor:
        total.value = total.value + 1
        return x @ weight

    for _ in range(3):
        for n in range(1, 9):
            assert f(mo.ones((n, 4))).tolist() == [[8.0] * 4] * n
    assert total.value.item() == 24 and f.recompiles == 23


# -- what changes, by name ---------------------------------------------------------------------------------------------
SHARED = mo.ones(3)
CHANGES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], str]] = {
    "size": (lambda w, x: w + x.sum(), lambda n: (SHARED, mo.ones((2, n + 1))), "axis 1 of x changes"),
    "size in a tree": (lambda p: p["a"][0] + 1, lambda n: ({"a": [mo.ones(n + 1)]},), "axis 0 of p['a'][0] changes"),
    "number": (lambda x, k: x * float(k), lambda n: (SHARED, 0.5 * n), "the number k changes"),
    "number in a tree": (lambda x, o: x * int(o["k"]), lambda n: (SHARED, {"k": n}), "the number o['k'] changes"),
    "scalar of NumPy": (lambda x, k: x * float(k), lambda n: (SHARED, np.float32(n)), "the number k changes"),
    "text": (lambda x, k: x + len(k), lambda n: (SHARED, "a" * n), "the value of k (str) changes"),
    "object": (lambda x, s: x + s.value, lambda n: (SHARED, mo.State(mo.ones(3))), "the object s (State) changes"),
    "length": (lambda parts: sum(parts), lambda n: ([SHARED] * (n + 1),), "the arrangement of parts changes"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_warning_names_what_changes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    body, arguments, wanted = CHANGES[name]
    f = mo.compile(body)
    with caplog.at_level(logging.WARNING, "morpho"):
        for n in range(12):
            f(*arguments(n))
    said = [record.getMessage() for record in caplog.records if "was compiled 9 times" in record.getMessage()]
    assert len(said) == 1 and wanted in said[0] and ";" in said[0]


def test_the_most_frequent_change_is_named(caplog: pytest.LogCaptureFixture) -> None:
    f = functools.partial(mo.compile(lambda x, k: x * int(k)))
    with caplog.at_level(logging.WARNING, "morpho"):
        for n in range(10):
            f(mo.ones(2 + (n == 3)), n)
    assert "the number k changes" in caplog.text


# -- weights that are packed while they are written --------------------------------------------------------------------
def test_a_weight_packed_while_another_thread_writes_it() -> None:
    """One thread writes a weight through the native out=, which takes a while; meanwhile another calls, for the first
    time, a function that packs it. What it then keeps is not what it saw: the next call has the finished weight."""
    rng = np.random.default_rng(0)
    x = mo.asarray(rng.standard_normal((384, 384)).astype("f") / 20, copy=True)
    y = mo.asarray(rng.standard_normal((8, 384)).astype("f"), copy=True)

    @mo.compile
    def slow(x: mo.Tensor) -> mo.Tensor:
        for _ in range(40):
            x = mo.tanh(x @ x)
        return x + 1

    weight = mo.zeros((384, 384)).realise()
    slow(x, out=weight)
    slow(x, out=weight)  # natively
    assert slow.native_calls == 1
    met = 0
    for turn in range(20):
        weight[...] = float(turn)
        weight.realise()
        slow(x, out=weight)
        weight[...] = float(turn)
        weight.realise()
        uses = mo.compile(lambda y: y @ weight)
        writer = threading.Thread(target=lambda: slow(x, out=weight))
        writer.start()
        while not slow.is_busy and writer.is_alive():
            pass
        uses(y)
        met += slow.is_busy  # it was packed before the weight was there
        writer.join()
        again = uses(y)
        assert (again.numpy() == mo.compile(lambda y, w: y @ w)(y, weight).numpy()).all()
        if met == 2:
            break
    assert met
