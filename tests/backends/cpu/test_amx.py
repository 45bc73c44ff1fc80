"""Products on matrix units: the whole generator run on a unit in software, bit for bit, and its code inspected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import amx_emulator
import numpy as np
import oracle
import pytest

import morpho as mo
from morpho.backends.code.compiler import code, llvm, queue
from morpho.backends.kernels.gemm import tiling
from morpho.backends.kernels.gemm.amx import amx
from morpho.backends.kernels.gemm.amx.amx import AmxGemmKernel, AmxPackKernel
from morpho.backends.kernels.generators import generate
from morpho.base import machine as machines
from morpho.base.machine import ISAS, Isa, available_isas, choose_isa, foreign_machine
from morpho.cost.dispatch_thresholds import DEFAULT
from morpho.runtime import thresholds

SIZES = [(1, 1, 1), (5, 7, 3), (16, 16, 32), (17, 33, 31), (33, 40, 65), (48, 70, 129), (70, 35, 100)]


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Matrix units in software, as an instruction set of their own: nothing of it is found under a real one's name."""
    plain = llvm.compile_text

    def compile_text(text: str, isa: Isa, *rest: Any) -> bytes:
        return plain(amx_emulator.emulated(text) if isa.name == amx_emulator.NAME else text, isa, *rest)

    monkeypatch.setitem(ISAS, amx_emulator.NAME, amx_emulator.emulated_isa())
    monkeypatch.setattr(llvm, "compile_text", compile_text)
    monkeypatch.setattr(queue, "MOST_PROCESSES", 1)  # another process knows nothing of it
    monkeypatch.setattr(amx, "DEPTH", 64)  # several blocks of k
    monkeypatch.setattr(tiling, "TILE_COLUMNS", 32)  # and tiles of columns, for which rows stay packed
    with (mo.settings(isa=amx_emulator.NAME, threads=request.param, cache=False),
          thresholds.using(replace(DEFAULT, parallel_macs=1))):  # the smallest product is divided among threads
        yield


def kernels_of(f: Any) -> list[Any]:
    return [step.kernel for step in f.current.plan.program.steps]


def view(values: np.ndarray, how: str, dtype: Any) -> mo.Tensor:
    """The same numbers, lying otherwise."""
    if how == "rows":
        return mo.asarray(values).astype(dtype)
    if how == "columns":
        return mo.permute_dims(mo.asarray(np.ascontiguousarray(values.T)).astype(dtype), (1, 0))
    wide = np.zeros((values.shape[0], 2 * values.shape[1]), values.dtype)
    wide[:, ::2] = values
    return mo.asarray(wide).astype(dtype)[:, ::2]


@pytest.mark.sampled
@pytest.mark.parametrize("left, right", [("rows", "rows"), ("columns", "columns"), ("steps", "steps"),
                                         ("rows", "columns")])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_bfloat16_has_the_bits_of_the_rule(unit: None, rng: np.random.Generator, m: int, n: int, k: int, left: str,
                                           right: str) -> None:
    a, b = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((k, n)).astype("f")
    x, y = view(a, left, mo.bfloat16).realise(), view(b, right, mo.bfloat16).realise()
    f = mo.compile(lambda x, y: x @ y)
    got = f(x, y)
    kinds = {type(kernel) for kernel in kernels_of(f)}
    assert AmxGemmKernel in kinds and AmxPackKernel in kinds
    want = oracle.matmul_by_rule(*(t.astype(mo.float32).numpy() for t in (x, y)), mo.bfloat16)
    assert np.array_equal(got.astype(mo.float32).numpy(), want)


@pytest.mark.skipif("amx" not in available_isas(machines.machine()),
                    reason="this machine has no matrix units, and those in software keep subnormal numbers")
@pytest.mark.parametrize("m, n, k", [(1, 4, 1), (1, 65, 1), (16, 65, 1), (33, 40, 65)])
def test_subnormal_numbers_are_zero(rng: np.random.Generator, m: int, n: int, k: int) -> None:
    """The one difference to vectors that rule 6 names: operands, and sums in between. On the real unit."""
    numbers = []
    for shape in ((m, k), (k, n)):
        small = np.ldexp(rng.standard_normal(shape), rng.integers(-75, -50, shape))
        small[rng.random(shape) < 0.2] *= 2.0**-60
        numbers.append(mo.asarray(small.astype("f")).astype(mo.bfloat16).realise())
    given = [t.astype(mo.float32).numpy() for t in numbers]
    for isa, flushes in (("amx", True), ("avx512", False)):
        with mo.settings(isa=isa):
            found = mo.compile(lambda x, y: x @ y)(*numbers).astype(mo.float32).numpy()
        assert np.array_equal(found, oracle.matmul_by_rule(*given, mo.bfloat16, flushes)), isa


@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
@pytest.mark.parametrize("m, n, k", [(5, 7, 3), (33, 40, 65), (17, 20, 300)])
def test_bytes_are_exact(unit: None, rng: np.random.Generator, m: int, n: int, k: int,
                         types: tuple[str, str]) -> None:
    arrays = [rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, endpoint=True).astype(t)
              for t, shape in zip(types, ((m, k), (k, n)), strict=True)]
    for turn in (False, True):
        given = [np.asfortranarray(a) if turn else a for a in arrays]
        f = mo.compile(lambda a, b: mo.matmul(a, b, dtype=mo.int32))
        got = f(*(mo.asarray(a) for a in given)).numpy()
        assert any(isinstance(kernel, AmxGemmKernel) and kernel.group == 4 for kernel in kernels_of(f))
        assert np.array_equal(got, arrays[0].astype(np.int32) @ arrays[1].astype(np.int32))


def test_batches_epilogues_and_rows_of_any_batch(unit: None, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 37, 70)).astype("f"), rng.standard_normal((70, 45)).astype("f")
    bias = mo.asarray(rng.standard_normal(45).astype("f")).astype(mo.bfloat16)
    x, w = (mo.asarray(v).astype(mo.bfloat16).realise() for v in (a, b))
    f = mo.compile(lambda x: mo.gelu(x @ w + bias))
    whole = f(x)
    assert any(isinstance(kernel, AmxGemmKernel) for kernel in kernels_of(f))
    with mo.settings(isa="vector256"):  # without the unit
        expected = mo.gelu(x @ w + bias).astype(mo.float32).numpy()
    assert np.array_equal(whole.astype(mo.float32).numpy(), expected)
    alone = f(x[1:2, 4:5])
    assert np.array_equal(alone.astype(mo.float32).numpy(), expected[1:2, 4:5])
    batched = mo.asarray(rng.standard_normal((3, 70, 20)).astype("f")).astype(mo.bfloat16).realise()
    got = (x @ batched).astype(mo.float32).numpy()
    with mo.settings(isa="vector256"):
        assert np.array_equal(got, (x @ batched).astype(mo.float32).numpy())


def test_a_length_that_changes(unit: None, rng: np.random.Generator) -> None:
    w = mo.asarray(rng.standard_normal((40, 24)).astype("f")).astype(mo.bfloat16).realise()
    f = mo.compile(lambda x: x @ w, dynamic={"x": {0: mo.Dim("n", 1, 100)}})
    for count in (1, 31, 100):
        x = mo.asarray(rng.standard_normal((count, 40)).astype("f")).astype(mo.bfloat16).realise()
        want = oracle.matmul_by_rule(*(t.astype(mo.float32).numpy() for t in (x, w)), mo.bfloat16)
        assert np.array_equal(f(x).astype(mo.float32).numpy(), want)
    assert f.stats["recompiles"] == 0


@pytest.mark.parametrize("kernel, wanted", [
    (AmxGemmKernel(mo.bfloat16, "rows", 2), "tdpbf16ps"), (AmxGemmKernel(mo.bfloat16, "columns", 2), "tdpbf16ps"),
    (AmxGemmKernel(mo.int32, "rows", 4, True, False), "tdpbsud"),
    (AmxGemmKernel(mo.int32, "general", 4, False, False), "tdpbuud")], ids=str)
def test_the_unit_is_used_where_there_is_one(kernel: AmxGemmKernel, wanted: str) -> None:
    isa = choose_isa("amx", foreign_machine("x86_64"))
    text = llvm.assembly(generate(kernel, isa, "kernel"), isa, "x86_64-unknown-linux-gnu")
    assert text.count(wanted) == 6  # two tiles of rows by two of columns, and one by two
    assert "ldtilecfg" in text and "tilerelease" in text and "tilezero" in text


def test_without_a_unit_vectors_do_it() -> None:
    """`isa="avx512"` is the switch; a machine, or a system, that gives no tiles has no `amx` at all."""
    everything = foreign_machine("x86_64")
    assert "amx" in available_isas(everything)
    without = foreign_machine("x86_64", everything.features - {"amx_bf16"})
    assert "amx" not in available_isas(without) and choose_isa("native", without).name == "avx512"
    assert not choose_isa("avx512", everything).matrix_units and choose_isa("native", everything).matrix_units
    assert not any(ISAS[name].matrix_units for name in ISAS if name != "amx")


def test_a_system_that_refuses_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def syscall(self, *numbers: int) -> int:
            return -1

    monkeypatch.setattr(machines.ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(machines, "host_architecture", lambda: "x86_64")
    flags = frozenset({"avx512f", "amx_tile", "amx_bf16", "amx_int8"})
    assert machines._permitted(flags) == {"avx512f"}
    monkeypatch.setattr(Library, "syscall", lambda self, *numbers: 0)
    assert machines._permitted(flags) == flags
    monkeypatch.setattr(machines, "host_architecture", lambda: "aarch64")
    assert machines._permitted(flags) == {"avx512f"}


def test_keys_of_code_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = AmxPackKernel("rows", 2)
    everything = foreign_machine("x86_64")
    isas = [choose_isa(name, everything) for name in ("amx", "avx512")]
    assert len({code.kernel_key(kernel, isa) for isa in isas}) == 2


def test_a_unit_in_software_leaves_nothing_behind(unit: None, rng: np.random.Generator) -> None:
    """Code of the emulation is not found again under the name of a real instruction set: it was once, and every later
    product of the process that more than one thread computed came out wrong on machines with matrix units."""
    x, y = (mo.asarray(rng.standard_normal(s).astype("f")).astype(mo.bfloat16).realise() for s in ((40, 70), (70, 30)))
    for isa in (amx_emulator.NAME, *available_isas(machines.machine())):
        with mo.settings(isa=isa):
            mo.compile(lambda x, y: x @ y)(x, y)
    emulated = {address for (kernel, isa), address in code._addresses.items() if isa == amx_emulator.NAME}
    others = {address for (kernel, isa), address in code._addresses.items() if isa != amx_emulator.NAME}
    assert emulated and not emulated & others
