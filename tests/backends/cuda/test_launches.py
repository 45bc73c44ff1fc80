"""The native loop over launches: what it hands to the driver, played by a function of this process."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from native_device import ENTRY, Native

import morpho as mo
from morpho.backends.cuda.assembly import ptx
from morpho.backends.cuda.codegen.grid import entry
from morpho.backends.cuda.driver.early_launch import launch_function
from morpho.backends.cuda.driver.launch_code import EARLY, MISALIGNED, Kernel, LaunchTable
from morpho.backends.cuda.prepared import _kept_late
from morpho.base.errors import IndexFault, MemoryLimit


def test_launches_get_their_grid_and_addresses() -> None:
    seen: list[tuple[Any, ...]] = []

    def launch(function: int, *rest: Any) -> int:
        words = (ctypes.c_int64 * 11).from_address(rest[8][0])
        seen.append((function, rest[0], rest[3], rest[6], rest[7], list(words)))
        return 0 if function == 5 else 700

    given = ENTRY(launch)
    address = ctypes.cast(given, ctypes.c_void_p).value or 0
    words = [(ctypes.c_int64 * 11)(*range(11)) for _ in range(2)]
    table = LaunchTable([Kernel(5, 3, 64, 100, words[0], [(1, 16, 15), (-1, 0, 0)], -1, 8),
                         Kernel(6, 7, 32, 0, words[1], [(0, 8, 0)], 4, 8)], 2)
    assert [table.entry(number)[:4] for number in (0, 1)] == [[5, 3, 64, 100], [6, 7, 32, 0]]  # what benchmarks read
    assert table.launch([1000, 1600], 99, 500, 42, address) == 700
    assert seen[0] == (5, 3, 64, 100, 42, [0, 1, 2, 3, 99, 5, 0, 7, 1616, 0, 10])
    assert seen[1] == (6, 7, 32, 0, 42, [0, 1, 2, 3, 99, 5, 504, 7, 1008, 9, 10])
    assert table.launch([1000, 1601], 99, 500, 42, address) == MISALIGNED and len(seen) == 2
    assert LaunchTable([], 0).launch([], 0, 0, 42, address) == 0
    seen.clear()  # by the function that older chips and drivers have
    assert table.launch([1000, 1600], 99, 500, 42, launch_function(address, 0)) == 700
    assert [one[:5] for one in seen] == [(5, 3, 64, 100, 42), (6, 7, 32, 0, 42)]


def test_programs_run_from_a_table(native: Native, rng: np.random.Generator) -> None:
    a = rng.standard_normal((6, 64)).astype("f")
    f = mo.compile(lambda x: (mo.softmax(x @ x.T, axis=-1), mo.take(x, mo.argmax(x, axis=0) % 6, axis=0)))
    there, here = f(mo.asarray(a, device="cuda")), f(mo.asarray(a))
    assert native.from_table > 0 and native.launches > 1
    for got, want in zip(there, here, strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    with pytest.raises(IndexFault, match="outside its axis"):
        mo.take(mo.asarray(a, device="cuda"), mo.asarray(np.array([9]), device="cuda"), axis=0).numpy()


def test_the_native_entry_launches_programs_and_replays_graphs(native: Native, rng: np.random.Generator) -> None:
    a = rng.standard_normal((6, 64)).astype("f")
    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1) @ x)
    x, want = mo.asarray(a, device="cuda"), f(mo.asarray(a)).numpy()
    out = mo.empty((6, 64), device="cuda")
    for _ in range(5):
        f(x, out=out)
    assert out.numpy().tobytes() == want.tobytes()
    before = f.native_calls
    results = [f(x) for _ in range(6)]
    assert f.native_calls - before == 6 and native.replays > 0 and native.counter.value > 0
    for result in results:
        assert result.device == "cuda:0" and result.numpy().tobytes() == want.tobytes()
    y = mo.asarray(2 * a, device="cuda")  # another address: no graph, the same program
    assert f(y).numpy().tobytes() == f(mo.asarray(2 * a)).numpy().tobytes()


def test_faults_of_native_calls_are_told_at_the_next_read(native: Native, rng: np.random.Generator) -> None:
    a = mo.asarray(rng.standard_normal((6, 64)).astype("f"), device="cuda")
    right, wrong = (mo.asarray(np.array([n]), device="cuda") for n in (5, 9))
    f = mo.compile(lambda x, i: mo.take(x, i, axis=0) * 2)
    for _ in range(3):
        f(a, right).numpy()
    before = f.native_calls
    result = f(a, wrong)
    assert f.native_calls == before + 1
    with pytest.raises(IndexFault, match="outside its axis"):
        result.numpy()
    assert f(a, right).numpy().shape == (1, 64)


def test_training_steps_run_by_the_native_entry(native: Native, rng: np.random.Generator) -> None:
    from morpho import nn, optim

    x, y = rng.standard_normal((8, 16)).astype("f"), np.arange(8) % 4
    losses: dict[str, list[float]] = {}
    weights: Any = None
    for device in ("cpu", "cuda"):
        model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))
        weights = weights or model.state_dict()
        model.load_state_dict(weights)
        model.to(device)
        optimiser = optim.AdamW(model.parameters(), lr=1e-2)

        def step(a: Any, b: Any, model: Any = model, optimiser: Any = optimiser) -> Any:
            loss = nn.cross_entropy(model(a), b)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = mo.compile(step)
        given = mo.asarray(x, device=device), mo.asarray(y, device=device)
        losses[device] = [float(run(*given)) for _ in range(6)]
        assert device == "cpu" or run.native_calls >= 3
    np.testing.assert_allclose(losses["cuda"], losses["cpu"], rtol=1e-5)


def test_loops_are_written_out_as_launches(native: Native, rng: np.random.Generator) -> None:
    a = rng.standard_normal((6, 6)).astype("f") / 3

    def f(x: Any) -> Any:
        y = x
        for _ in range(12):
            y = mo.softmax(y @ x, axis=-1)
        return y

    there = mo.compile(f)
    x = mo.asarray(a, device="cuda")
    found = [there(x).numpy() for _ in range(4)]
    assert there.native_calls >= 2 and native.counter.value >= 24
    assert all(one.tobytes() == mo.compile(f)(mo.asarray(a)).numpy().tobytes() for one in found)


def test_kernels_wait_for_those_before_them() -> None:
    text = entry("kernel_main", 8, "  store i64 1, ptr %p")
    assert ptx.assembly(text, "sm_90a").count("griddepcontrol.wait") == 1
    assert "griddepcontrol" not in ptx.assembly(text, "sm_80")
    own = text.replace("entry:", "entry:\n  call void @gpu.grid_wait(ptr %ctx)")
    assert ptx.assembly(own, "sm_90a").count("griddepcontrol.wait") == 1


def test_launches_may_come_early_but_the_first() -> None:
    seen: list[tuple[int, ...]] = []

    def launch(config: int, function: int, arguments: int, extra: int) -> int:
        sizes = (ctypes.c_uint * 7).from_address(config)
        words = (ctypes.c_int64 * 7).from_address(config)
        attribute = (ctypes.c_int * 3).from_address(words[5])
        seen.append((function, *sizes, words[4], words[6] & 0xFFFFFFFF, attribute[0], attribute[2]))
        return 0

    kinds = [ctypes.c_void_p] * 4
    extended = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(launch)
    address = launch_function(1, ctypes.cast(extended, ctypes.c_void_p).value or 0)
    table = LaunchTable([Kernel(number, 3, 64, 100, (ctypes.c_int64 * 8)(), [], -1, 8) for number in (5, 6)], 0)
    assert table.launch([], 0, 0, 42, address) == 0
    assert seen == [(5, 3, 1, 1, 64, 1, 1, 100, 42, 0, 6, 1), (6, 3, 1, 1, 64, 1, 1, 100, 42, 1, 6, 1)]


def test_a_recording_sees_every_run_of_a_native_entry(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = mo.ones((8, 8), device="cuda").realise()
    f = mo.compile(lambda a: a * 2 + 1)
    for _ in range(3):
        f(x)
    with mo.profile() as p:
        for _ in range(3):
            f(x).numpy()
    found = [span for span in p.trace.spans if span.detail.get("on_device")]
    assert len(found) == 3 and all(span.detail["clock"] == "device" for span in found)
    launches = native.from_table + native.replays
    with monkeypatch.context() as patch:  # the second call goes by the native entry again, and not through the seam
        f(x)
        patch.setattr("morpho.runtime.plans.on_device.run", None)
        f(x)
    assert native.from_table + native.replays > launches


def test_no_memory_for_a_native_entry_is_the_cpus_run(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = mo.asarray(np.arange(64, dtype="f").reshape(8, 8), device="cuda").realise()
    f = mo.compile(lambda a: mo.sum(mo.cumulative_sum(a.T, axis=0) @ a))
    want = float(f(mo.asarray(x.numpy())))

    def allocate(nbytes: int, plain: Any = native.allocate) -> int:
        if nbytes > 300:
            raise MemoryLimit("no memory is left")
        return int(plain(nbytes))

    monkeypatch.setattr(native, "allocate", allocate)
    with pytest.raises(MemoryLimit):
        f(x).item()
    with mo.settings(fallback=True):
        assert float(f(x)) == want


def test_launches_beside_large_ones_do_not_come_early() -> None:
    def kernel(blocks: int, early: bool = True) -> Kernel:
        return Kernel(1, blocks, 1024, 0, (ctypes.c_int64 * 8)(), [], -1, 8, early=early)

    found = _kept_late([kernel(8), kernel(264), kernel(265), kernel(4), kernel(4), kernel(4, False), kernel(4)], 132)
    assert [one.early for one in found] == [True, True, False, False, True, False, True]
    table = LaunchTable(found, 0)
    assert [table.entry(number)[EARLY] for number in range(7)] == [1, 1, 0, 0, 1, 0, 1]
