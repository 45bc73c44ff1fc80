"""Programs of dynamic sizes by the native entry: their numbers are computed natively, by regions of sizes."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho.backends.cuda.driver.launch_code import Field, Kernel, LaunchTable
from morpho.backends.cuda.driver.regions.dynamic_call import DynamicCall, Region
from morpho.backends.cuda.driver.regions.traced import SizeTrace
from morpho.base.errors import IndexFault


def call_of(function: Any) -> DynamicCall:
    """The native call of a compiled function's only specialisation."""
    (chosen,) = function.specialisations.values()
    call: DynamicCall = chosen.served.executable.call
    return call


def test_new_lengths_need_no_python(native: Native, rng: np.random.Generator) -> None:
    w = rng.standard_normal((16, 16)).astype("f")
    f = mo.compile(lambda x, w: mo.softmax(x @ w, axis=-1) + x[:1], dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    plain = mo.compile(lambda x, w: mo.softmax(x @ w, axis=-1) + x[:1], dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    there = mo.asarray(w, device="cuda")
    lengths = [7, 9, 8, 30, 31, 5, 63, 64, 1, 2]
    for turn, n in enumerate([*lengths, *lengths]):
        a = rng.standard_normal((n, 16)).astype("f")
        found = f(mo.asarray(a, device="cuda"), there)
        assert found.shape == (n, 16) and found.device == "cuda:0"
        assert found.numpy().tobytes() == plain(mo.asarray(a), mo.asarray(w)).numpy().tobytes(), n
        if turn == len(lengths) - 1:
            call = call_of(f)
            regions = len(call.regions)
            calls = f.native_calls
    assert f.native_calls == calls + len(lengths) and call.runs == 0
    assert len(call.regions) == regions < len(lengths)
    assert len(f.specialisations) == 1 and native.counter.value > 0


def test_native_numbers_are_pythons(rng: np.random.Generator) -> None:
    """Every operation and guard, over signs and remainders, against the same arithmetic in Python."""
    trace = SizeTrace({"n": 7, "m": 3})
    n, m = trace.sizes.values()
    numbers = [n + m, n - m * 5, n * m - 40, -(-n // 4), (n - 60) // 7, (n - 60) % 7, (5 - n) // (m - 50), 100 // n,
               (n - 90) % (m - 50), 1 + n, 3 * n, 9 % m]
    assert [number.value for number in numbers] == [10, -8, -19, 2, -8, 3, 0, 14, -36, 8, 21, 0]
    words = (ctypes.c_int64 * 32)()
    kernel = Kernel(0, numbers[0], 32, 0, words, [(0, numbers[1], 0)], -1, 8, (), list(enumerate(numbers)))
    assert m < n + 50 and n != 90 and max(n, 1) is n
    region = Region(trace, LaunchTable([kernel], 1), [numbers[4], 5])
    for _ in range(200):
        sizes = dict(zip("nm", map(int, rng.integers(1, 100, 2)), strict=True))
        assert region.fits(list(sizes.values())) == trace.guards_hold(sizes) == (
            sizes["m"] < sizes["n"] + 50 and sizes["n"] != 90)
        want = [trace.number(number, sizes) for number in numbers]
        if trace.guards_hold(sizes):
            assert words[:len(numbers)] == want and region.table.table[1] == want[0]
            assert region.scratch_bytes == max(5, want[4])
    assert want[:3] == [sizes["n"] + sizes["m"], sizes["n"] - sizes["m"] * 5, sizes["n"] * sizes["m"] - 40]


def test_a_traced_number_as_an_index_is_for_one_size() -> None:
    trace = SizeTrace({"n": 4})
    n = trace.sizes["n"]
    assert [10, 20, 30, 40, 50][n] == 50 and len(range(n)) == 4 and {n * 2: 1}[8] == 1
    assert trace.guards_hold({"n": 4}) and not trace.guards_hold({"n": 5})


def test_operands_that_lie_elsewhere_go_through_python(native: Native, rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: mo.softmax(x[1:], axis=-1) * 2 + x[:-1], dynamic={"x": {0: mo.Dim("n", 2, 64)}})
    plain = mo.compile(lambda x: mo.softmax(x[1:], axis=-1) * 2 + x[:-1], dynamic={"x": {0: mo.Dim("n", 2, 64)}})
    for n in (5, 6, 7, 20, 21):
        a = rng.standard_normal((n, 5)).astype("f")
        assert f(mo.asarray(a, device="cuda")).numpy().tobytes() == plain(mo.asarray(a)).numpy().tobytes()
    assert f.native_calls == 4
    call = call_of(f)
    for region in call.regions:
        region.table.held[0][2] = (1 << 40) - 1  # the first operand is to lie where nothing does
    for n in (8, 22):
        a = rng.standard_normal((n, 5)).astype("f")
        assert f(mo.asarray(a, device="cuda")).numpy().tobytes() == plain(mo.asarray(a)).numpy().tobytes()
    assert f.native_calls == 6 and call.runs == 2


def test_errors_come_back_from_native_calls(native: Native, rng: np.random.Generator,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    table = mo.asarray(rng.standard_normal((6, 8)).astype("f"), device="cuda")
    f = mo.compile(lambda t, i: mo.take(t, i, axis=0) * 2, dynamic={"i": {0: mo.Dim("n", 1, 64)}})
    for n in (3, 4, 5):
        f(table, mo.asarray(np.arange(n) % 6, device="cuda")).numpy()
    assert f.native_calls == 2
    wrong = f(table, mo.asarray(np.array([1, 9]), device="cuda"))
    with pytest.raises(IndexFault, match="outside its axis"):
        wrong.numpy()
    call = call_of(f)

    def refused(sizes: Any) -> Any:
        raise RuntimeError(f"no region for {sizes}")

    call.words[Field.REGIONS] = 0  # none is known any more
    call.region = refused
    with pytest.raises(RuntimeError, match="no region for"):
        f(table, mo.asarray(np.arange(7) % 6, device="cuda"))
    assert not call.errors


def test_runs_through_python_share_a_table_by_regions(native: Native, rng: np.random.Generator) -> None:
    """Where no native entry serves a call, as after a change of a module's mode."""
    from morpho.backends.registry import backend_of
    from morpho.runtime.plans import on_device

    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    plain = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    for n in (40, 41, 50, 51, 52):
        a = rng.standard_normal((n, 8)).astype("f")
        mo.tensor.jit.native.entries.entries.forget()
        assert f(mo.asarray(a, device="cuda")).numpy().tobytes() == plain(mo.asarray(a)).numpy().tobytes()
    assert f.native_calls == 0 and backend_of("cuda:0") is not None
    (chosen,) = f.specialisations.values()
    found: Any = on_device.executable(chosen.plan.graph, "cuda:0")
    assert 1 <= len(found.regions) < 5 and len(found.prepared) <= 1


def test_sizes_and_addresses_that_come_again_are_replayed(native: Native, rng: np.random.Generator) -> None:
    a = rng.standard_normal((40, 8)).astype("f")
    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    whole, part = mo.asarray(a, device="cuda"), mo.asarray(a[:33], device="cuda")
    want = [mo.softmax(mo.asarray(x) @ mo.asarray(x).T, axis=-1).numpy().tobytes() for x in (a, a[:33])]
    for n in range(1, 12):  # new sizes every time: nothing to replay, and no graph is made
        f(mo.asarray(a[:n], device="cuda"))
    assert native.replays == 0 and call_of(f).graphs == 0
    for _ in range(6):  # in turn
        assert f(whole).numpy().tobytes() == want[0]
        assert f(part).numpy().tobytes() == want[1]
    assert call_of(f).graphs >= 2 and native.replays >= 6
    replays, launches = native.replays, native.counter.value
    assert f(whole).numpy().tobytes() == want[0] and native.replays == replays + 1
    assert native.counter.value - launches == call_of(f).regions[0].table.count


def test_an_arena_goes_back_with_its_function(native: Native, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((40, 8)).astype("f"), device="cuda")
    for dynamic in ({}, {"x": {0: mo.Dim("n", 1, 64)}}):
        f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1) @ x, dynamic=dynamic)
        for _ in range(3):
            f(x).numpy()
        (chosen,) = f.specialisations.values()
        arena, used = chosen.served.executable.call.arena[1], native.pool.used_bytes
        call = weakref.ref(chosen.served.executable.call)
        assert f.native_calls == 2 and arena > 0
        del f, chosen
        gc.collect()
        assert call() is None and native.pool.used_bytes <= used - arena
