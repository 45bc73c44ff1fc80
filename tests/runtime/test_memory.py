"""What is dropped is freed, what is looked at is kept, and memory stays flat."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from subprograms import run

import morpho as mo
from morpho.ir.node import live_nodes
from morpho.runtime.memory import pool

N = 100_000


@mo.settings(record=False)  # programs as nodes
def test_a_dropped_result_frees_its_inputs() -> None:
    array = np.ones(N, np.float32)
    alive = weakref.ref(array)
    before = live_nodes()
    x = mo.asarray(array, copy=False)
    y = mo.exp(x * 2) + x
    del array, x
    assert alive() is not None and live_nodes() > before
    del y
    assert alive() is None and live_nodes() == before


def test_a_computed_result_frees_its_inputs() -> None:
    array = np.ones(N, np.float32)
    alive = weakref.ref(array)
    y = mo.exp(mo.asarray(array, copy=False) * 2) + 1
    y.numpy()
    del array
    assert alive() is None
    assert y.is_realised and y.numpy()[0] > 8


def test_a_compiled_function_keeps_no_argument() -> None:
    f = mo.compile(lambda x: mo.exp(x) + 1)
    array = np.ones(N, np.float32)
    alive = weakref.ref(array)
    f(mo.asarray(array, copy=False))
    f(mo.asarray(array, copy=False), out=mo.empty(N))
    f(mo.asarray(array, copy=False), out=mo.empty(N))
    del array
    assert alive() is None


def test_blocks_return_to_the_pool() -> None:
    gc.collect()
    x = mo.asarray(np.ones(N, np.float32))
    for number in range(6):  # until the operation has a function of its own, which keeps a little
        (x + number).numpy()
    before = pool.stats()["live_bytes"]
    y = (x + 2).realise()
    assert pool.stats()["live_bytes"] >= before + 4 * N
    view = y[10:20].realise()
    assert view.numpy().ctypes.data == y.numpy().ctypes.data + 40  # no bytes moved
    exported = view.numpy()
    del y, view
    assert pool.stats()["live_bytes"] >= before + 4 * N  # the export holds the whole block
    others = [(x + 3).numpy() for _ in range(3)]
    assert (exported == 3).all()
    del exported, others
    assert pool.stats()["live_bytes"] == before


def test_views_are_free() -> None:
    x = mo.asarray(np.arange(N, dtype=np.float32), copy=True)
    before, base = pool.stats()["live_bytes"], x.numpy().ctypes.data
    for view in (x[5:], x[::-1], x.reshape(100, 1000).T, x[7], mo.broadcast_to(x[:3], (4, 3))):
        view.realise()
        assert base <= view.numpy().ctypes.data < base + 4 * N
        assert pool.stats()["live_bytes"] == before


def test_a_faulting_call_frees_its_memory() -> None:
    f = mo.compile(lambda x, i: mo.exp(x[i]))
    x, bad = mo.asarray(np.ones(N, np.float32)), mo.asarray(np.full(N, N))
    for _ in range(2):
        before = pool.stats()["live_bytes"]
        for _ in range(3):
            try:
                f(x, bad)
            except IndexError as error:
                del error
            gc.collect()
    assert pool.stats()["live_bytes"] == before


def test_a_dropped_compiled_function_is_freed() -> None:
    def make() -> tuple[weakref.ref, weakref.ref]:
        big = mo.asarray(np.ones(N, np.float32))
        f = mo.compile(lambda x: mo.softmax(x + big))
        f(mo.asarray(np.ones(N, np.float32)))
        return weakref.ref(f), weakref.ref(big)

    alive, captured = make()
    gc.collect()
    assert alive() is None and captured() is None


def test_memory_stays_flat() -> None:
    """A hundred thousand compiled calls, and two thousand lazy evaluations."""
    printed, _ = run("""
    import gc, resource
    from morpho.ir.node import live_nodes
    x = mo.asarray(np.ones(300, np.float32)); target = mo.empty(300)
    f = mo.compile(lambda a, b: mo.softmax(a * b) @ mo.ones((300, 2)) + 1)
    g = mo.compile(lambda a, b: a + b)
    state = mo.State(mo.zeros(300))
    h = mo.compile(lambda a: setattr(state, "value", state.value + a))
    def work(calls, lazily):
        for i in range(calls):
            g(x, x, out=target)
            if i % 20 == 0:
                f(x, x); g(x, x); h(x)
        for i in range(lazily):
            (mo.gelu(mo.asarray(np.full(300, i, np.float32))) + x).sum().item()
    def used():
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, mo.pool.stats()["live_bytes"], live_nodes()
    work(2000, 200)
    before = used()
    work(100_000, 2000)
    after = used()
    assert g.native_calls > 99_000, g.native_calls
    print(after[0] - before[0], after[1] - before[1], after[2] - before[2])
    """, timeout_s=100)
    kilobytes, live_bytes, nodes = map(int, printed.split())
    assert kilobytes < 8_000 and live_bytes == 0 and nodes <= 0, printed
