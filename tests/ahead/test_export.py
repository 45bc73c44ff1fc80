"""`mo.export`: libraries with the bits of Python, called from C, and what they refuse."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import Caller, compiled, in_node, needs

import morpho as mo
from morpho.ahead.export import Part, export_library

WEIGHTS = np.random.default_rng(0).standard_normal((64, 32)).astype("f")
KIND, MEMBER = 255, 8


def dense(x: Any) -> Any:
    return mo.softmax(mo.gelu(x @ mo.asarray(WEIGHTS)), axis=-1)


def example(rows: int = 5) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((rows, 64)).astype("f")


MAIN = """
#include <stdio.h>
#include "dense.h"
static _Alignas(64) unsigned char workspace[DENSE_WORKSPACE_BYTES + 64];
int main(int count, char **words) {
    static float x[5 * 64], out[5 * 32];
    FILE *file = fopen(words[count - 2], "rb");
    if (!file || fread(x, sizeof x, 1, file) != 1) return 100;
    fclose(file);
    int32_t status = dense_call(x, out, workspace);
    if (status) return status;
    file = fopen(words[count - 1], "wb");
    if (!file || fwrite(out, sizeof out, 1, file) != 1) return 101;
    return fclose(file);
}
"""


def from_c(tmp_path: Path, target: str, compiler: str = "cc", runner: tuple[str, ...] = ()) -> np.ndarray:
    written = mo.export(dense, example(), path=tmp_path / "library", target=target)
    (tmp_path / "main.c").write_text(MAIN)
    example().tofile(tmp_path / "x")
    assert written.object is not None
    compiled([tmp_path / "main.c", written.object], tmp_path / "program", tmp_path / "library", compiler)
    done = subprocess.run([*runner, tmp_path / "program", tmp_path / "x", tmp_path / "out"], timeout=60)
    assert done.returncode == 0
    return np.fromfile(tmp_path / "out", "f").reshape(5, 32)


@pytest.mark.parametrize("target", ["native", "x86_64-avx2", "x86_64"])
def test_a_c_program_has_the_bits_of_python(tmp_path: Path, target: str) -> None:
    needs("cc")
    if target != "native" and "avx2" not in _isas():
        pytest.skip("this processor has no AVX2")
    assert np.array_equal(from_c(tmp_path, target), mo.compile(dense)(example()).numpy())


def _isas() -> tuple[str, ...]:
    from morpho.base.machine import available_isas, machine

    return available_isas(machine())


def test_arm_has_them_under_qemu(tmp_path: Path) -> None:
    needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
    runner = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
    found = from_c(tmp_path, "aarch64-neon", "aarch64-linux-gnu-gcc", runner)
    assert np.array_equal(found, mo.compile(dense)(example()).numpy())


def test_webassembly_has_them_in_node(tmp_path: Path) -> None:
    needs("node")
    want = mo.compile(dense)(example()).numpy()
    exact = mo.export(dense, example(), path=tmp_path / "exact", target="wasm32-simd128")
    out = np.zeros((5, 32), "f")
    assert in_node(exact, {"x": example(), "out": out}, tmp_path / "job") == 0
    assert np.array_equal(out, want)
    fast = mo.export(dense, example(), path=tmp_path / "fast", target="wasm32-fast")
    assert in_node(fast, {"x": example(), "out": out}, tmp_path / "job") == 0
    assert np.allclose(out, want, rtol=1e-4)


def test_half_floats_are_computed_by_integers_in_webassembly(tmp_path: Path) -> None:
    needs("node")

    def half(x: Any) -> Any:
        return mo.softmax(x.astype(mo.float16) * 3).astype(mo.float32)

    x, out = example(), np.zeros((5, 64), "f")
    written = mo.export(half, x, path=tmp_path / "half", target="wasm32-simd128")
    assert in_node(written, {"x": x, "out": out}, tmp_path / "job") == 0
    assert np.array_equal(out, mo.compile(half)(x).numpy())
    with pytest.raises(mo.errors.CompileError, match="float64's fused multiply-add"):
        mo.export(lambda x: mo.exp(x), x.astype("d"), path=tmp_path / "wide", target="wasm32-simd128")
    assert not (tmp_path / "wide").exists()


def test_the_exact_fused_form_rounds_once(tmp_path: Path) -> None:
    """Sums whose product alone would round: subnormal, cancelling, overflowing and infinite ones among them."""
    needs("node")
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 1 << 32, (3, 1 << 14), dtype=np.uint64).astype(np.uint32).view("f")
    with np.errstate(all="ignore"):
        c[::2] = -(a[::2] * b[::2])  # what is left is the product's error
    left = np.stack([c, a], axis=-1)[:, None, :]
    right = np.stack([np.ones_like(b), b], axis=-1)[:, :, None]

    def fused(left: Any, right: Any) -> Any:
        return left @ right

    written = mo.export(fused, left, right, path=tmp_path / "fused", target="wasm32-simd128")
    out = np.zeros((1 << 14, 1, 1), "f")
    assert in_node(written, {"left": left, "right": right, "out": out}, tmp_path / "job") == 0
    want = mo.compile(fused)(left, right).numpy()
    assert np.array_equal(out, want, equal_nan=True)
    with np.errstate(all="ignore"):
        plain = c + (a.astype("d") * b.astype("d")).astype("f")
    assert (want[:, 0, 0] != plain)[::2].mean() > 0.2  # rounding the product too would show


@pytest.mark.parametrize("target", ["x86_64-avx512-macos", "aarch64-neon-macos", "x86_64-windows",
                                    "aarch64-neon-windows"])
def test_objects_of_other_systems_are_of_their_format(tmp_path: Path, target: str) -> None:
    """They are compiled here and run elsewhere."""
    written = mo.export(lambda x: mo.exp(x) + 1, np.ones(9, "f"), path=tmp_path, target=target, name="plus")
    assert written.object is not None and written.shared is None
    head = written.object.read_bytes()[:4]
    machine = {"macos": b"\xcf\xfa\xed\xfe", "windows": b"\x64\x86" if "x86" in target else b"\x64\xaa"}
    assert head.startswith(machine[target.rpartition("-")[2]])


def test_sizes_within_bounds_and_states_of_the_caller(tmp_path: Path) -> None:
    needs("cc")
    total = mo.State(mo.asarray(np.arange(64, dtype="f")))

    def step(x: Any) -> Any:
        total.value = total.value * 0.5 + mo.sum(x, axis=0)
        return dense(x) + mo.max(total.value), mo.max(x)

    dynamic = {"x": {0: mo.Dim("n", 1, 50)}}
    written = mo.export(step, example(3), path=tmp_path, dynamic=dynamic)
    assert written.states is not None
    state = np.frombuffer(written.states.read_bytes()[-256:], "f").copy()
    assert np.array_equal(state, total.value.numpy())
    caller, there = Caller(written), mo.compile(step, dynamic=dynamic)
    for rows in (1, 7, 50):
        x, found = example(rows), (np.zeros((rows, 32), "f"), np.zeros((), "f"))
        assert caller.call({"x": x, "state0": state, "out0": found[0], "out1": found[1]}, n=rows) == 0
        for got, want in zip(found, there(x), strict=True):
            assert np.array_equal(got, want.numpy())
        assert np.array_equal(state, total.value.numpy())


def test_wrong_calls_are_refused_and_write_nothing(tmp_path: Path) -> None:
    needs("cc")
    written = mo.export(dense, example(3), path=tmp_path, dynamic={"x": {0: mo.Dim("n", 1, 50)}}, weights="beside")
    caller, out = Caller(written), np.full((3, 32), 7, "f")
    good = {"x": example(3), "out": out}

    def refused(change: dict[int, int], kind: int, member: int) -> None:
        record = caller.record(good, {"n": 3})
        for word, value in change.items():
            record[word] = value
        code = caller.run(record)
        assert (code & KIND, code >> MEMBER) == (kind, member)
        assert (out == 7).all()

    record = caller.record(good, {"n": 3})
    refused({1: record[1] - 4}, 1, 0)  # bytes of x
    refused({2: 0}, 1, 1)  # no result
    refused({0: record[0] + 1}, 2, 0)
    refused({8: 51}, 3, 4)
    refused({8: 0}, 3, 4)
    refused({7: record[7] - 1}, 4, 3)
    refused({6: record[6] + 8}, 4, 3)
    refused({5: record[5] - 64}, 5, 2)
    assert caller.weights is not None
    other = caller.weights.copy()
    caller.weights[32] ^= 1  # of the digest in the head
    refused({}, 5, 2)
    caller.weights[:] = other
    check = caller.library.dense_check_weights
    check.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    assert check(caller.weights.ctypes.data, caller.weights.nbytes) == 0
    caller.weights[-100] ^= 1  # of the data
    assert check(caller.weights.ctypes.data, caller.weights.nbytes) == 5
    assert caller.call({"x": example(3), "out": np.full((3, 32), 7, "f")}, n=3) == 0


def test_an_index_outside_its_axis_is_a_code(tmp_path: Path) -> None:
    needs("cc")
    table = mo.asarray(WEIGHTS)
    written = mo.export(lambda ids: mo.take(table, ids, axis=0), np.zeros(4, np.int64), path=tmp_path, name="rows")
    caller, out = Caller(written), np.zeros((4, 32), "f")
    assert caller.call({"ids": np.array([0, 63, 5, 9]), "out": out}) == 0
    assert np.array_equal(out, WEIGHTS[[0, 63, 5, 9]])
    assert caller.call({"ids": np.array([0, 64, 5, 9]), "out": out}) == 16


def test_threads_of_the_host_give_the_same_bits(tmp_path: Path) -> None:
    needs("cc")
    model = mo.nn.Sequential(mo.nn.Linear(256, 512), mo.nn.ReLU(), mo.nn.Linear(512, 256))
    x = np.random.default_rng(2).standard_normal((128, 256)).astype("f")
    written = mo.export(model, x, path=tmp_path, name="mlp", threads=4)
    assert [field["name"] for field in written.functions["mlp"]["fields"]] == ["x", "out"]  # parameters are constants
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    shared: list[int] = []

    def run(_: int, count: int, task: Any, data: int) -> None:
        shared.append(count)
        workers = [threading.Thread(target=task, args=(data, number)) for number in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, task_type, ctypes.c_void_p)(run)
    threads = np.array([4, ctypes.cast(callback, ctypes.c_void_p).value, 0], np.int64)
    out, want = np.zeros((128, 256), "f"), mo.compile(model)(x).numpy()
    assert Caller(written).call({"x": x, "out": out}, threads=threads.ctypes.data) == 0
    assert shared and max(shared) == 4 and np.array_equal(out, want)


def test_functions_of_one_library_share_states_and_weights(tmp_path: Path) -> None:
    needs("cc")
    count = mo.State(mo.zeros((), dtype=mo.int64))
    table = mo.asarray(WEIGHTS)

    def push(x: Any) -> Any:
        count.value = count.value + 1
        return x @ table

    def look(x: Any) -> Any:
        return (x @ table) * count.value

    x = example(2)
    parts = [Part("push", push, (x,), {}), Part("look", look, (x,), {})]
    written = export_library(parts, "both", tmp_path, "native")
    state, out = np.zeros((), np.int64), np.zeros((2, 32), "f")
    for _ in range(3):
        assert Caller(written, "push").call({"x": x, "state0": state, "out": out}) == 0
    plain = out.copy()
    assert Caller(written, "look").call({"x": x, "state0": state, "out": out}) == 0
    assert state == 3 and np.array_equal(out, plain * 3)


@pytest.mark.parametrize("kind", ["loop", "branch", "scan"])
def test_loops_and_branches_run_without_python(tmp_path: Path, kind: str) -> None:
    needs("cc")

    def collatz(n: Any) -> Any:
        return mo.while_loop(lambda c: c[0] > 1, lambda c: (mo.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1),
                             (n, mo.asarray(0)))[1]

    def either(n: Any) -> Any:
        return mo.cond(n > 20, lambda x: mo.cumulative_sum(x * mo.ones(70)), lambda x: mo.sort(mo.ones(70) - x),
                       n * 0.5)

    def scanned(n: Any) -> Any:
        return mo.scan(lambda c, x: (mo.tanh(c @ c + x), mo.sum(c)), mo.ones((8, 8)) * n, mo.ones((20, 8, 8)))[1]

    function = {"loop": collatz, "branch": either, "scan": scanned}[kind]
    example = np.asarray(27) if kind == "loop" else np.asarray(27.0, "f")
    written = mo.export(function, example, path=tmp_path, name="control")
    for value in (example, np.asarray(3, example.dtype)):
        want = mo.compile(function)(value).numpy()
        out = np.zeros(want.shape, want.dtype)
        assert Caller(written).call({"n": np.ascontiguousarray(value), "out": out}) == 0
        assert np.array_equal(out, want)


def test_what_no_library_can_do_is_named_before_anything_is_written(tmp_path: Path) -> None:
    place = tmp_path / "none"

    def selected(x: Any) -> Any:
        return mo.nonzero(x)[0]

    def vectors(x: Any) -> Any:
        return mo.linalg.svd(x)

    for function, words in ((selected, "depends on data"), (vectors, "LAPACK")):
        with pytest.raises(mo.errors.CompileError, match=rf"(?s){words}.*test_export.py:\d+"):
            mo.export(function, np.ones((40, 40), "f"), path=place)
    with pytest.raises(mo.errors.ArgumentError, match="no target 'sparc'"):
        mo.export(dense, example(), path=place, target="sparc")
    with pytest.raises(mo.errors.ArgumentError, match="no name of a C function"):
        mo.export(dense, example(), path=place, name="9 lives")
    assert not place.exists()


def test_an_object_needs_nothing_but_memory_functions(tmp_path: Path) -> None:
    needs("cc", "nm")
    written = mo.export(dense, example(), path=tmp_path)
    told = subprocess.run(["nm", "-u", str(written.object)], capture_output=True, text=True, timeout=60).stdout.split()
    assert set(told) - {"U"} <= {"memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_"}
    told = subprocess.run(["nm", "--defined-only", "-g", str(written.object)], capture_output=True, text=True,
                          timeout=60).stdout.split()
    assert [name for name in told[2::3]] == ["dense"]
