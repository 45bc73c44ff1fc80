"""Kernels for GPUs without one: their text runs on an emulated grid with the CPU's bits, and becomes PTX."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from cuda_table import all_cases
from running import Native, difference, equal_bits

import morpho as mo
from morpho.backends.cuda.assembly import ptx, ptxas
from morpho.backends.cuda.assembly.verify import verify
from morpho.backends.cuda.codegen import maps
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.gemm import lower
from morpho.backends.cuda.gemm.half.wgmma import WgmmaGemm
from morpho.backends.cuda.gemm.spec import ProductKernel
from morpho.backends.cuda.lowering import lowered
from morpho.backends.registry import backend_of
from morpho.base.errors import CompileError
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.program.program import Step
from morpho.runtime.memory.device_memory import upload
from morpho.runtime.plans import on_device

PARTS = 24


@cache
def table() -> list[Any]:
    return list(all_cases(np.random.default_rng(0)))


def chosen(part: int, config: pytest.Config) -> list[Any]:
    """Every 24th case from `part` on, all with --exhaustive, else every 34th of these."""
    return table()[part::PARTS][:: 1 if config.option.exhaustive else 34]


def kernels(node: Any, target: Any) -> list[Any]:
    program = lowered(Graph((node,)), 3, target)
    return [device_kernel(step) for step in program.steps if isinstance(step, Step)]


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS), ids="table-{}".format)
def test_the_table_has_the_bits_of_the_cpu_on_an_emulated_grid(gpu: str, part: int, request: Any) -> None:
    for name, node, arrays, kinds, sizes in chosen(part, request.config):
        want = Native([node])(arrays, sizes)[0]
        buffers = [upload(array, kind, gpu) for array, kind in zip(arrays, kinds, strict=True)]
        got = on_device.run(Graph((node,)), gpu, buffers, sizes)[0].numpy()
        assert equal_bits(got, want, node.dtype), f"{name}: {difference(got, want, node.dtype)}"


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS), ids="table-{}".format)
def test_the_table_becomes_ptx(gpu: str, part: int, request: Any) -> None:
    target = backend_of(gpu).target  # type: ignore[attr-defined]
    for name, node, *_ in chosen(part, request.config):
        for kernel in kernels(node, target):
            text = ptx.assembly(kernel.text())
            assert ".visible .entry kernel_main(" in text and ".target sm_90a" in text, name
            if ptxas.find() is not None:
                ptxas.check([text])


def parameter(index: int, shape: tuple[int, ...], dtype: Any) -> mo.Tensor:
    return mo.Tensor.of_node(build("parameter", index=index, shape=shape, dtype=dtype))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_products_and_attention_are_on_tensor_cores(gpu: str, architecture: str) -> None:
    a, b = (parameter(n, (128, 128), mo.bfloat16) for n in range(2))
    q, k, v = (parameter(n, (1, 2, 64, 64), mo.bfloat16) for n in range(3))
    target = backend_of(gpu).target  # type: ignore[attr-defined]
    if architecture == "sm_80":
        target = replace(target, machine=replace(target.machine, features=frozenset()))
    for result in (a @ b, mo.attention(q, k, v, causal=True)):
        text = "".join(ptx.assembly(kernel.text(), architecture) for kernel in kernels(result.node, target))
        if "wgmma" in text:
            assert architecture == "sm_90a" and "cp.async.bulk.tensor" in text and "setmaxnreg" in text
            continue
        assert "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in text and "ldmatrix" in text
        assert "cp.async.cg.shared.global" in text and "atom" not in text


def test_elementwise_code_is_not_contracted(gpu: str) -> None:
    x, y = (parameter(n, (1000,), mo.float32) for n in range(2))
    (kernel,) = kernels((x * y + y).node, backend_of(gpu).target)  # type: ignore[attr-defined]
    text = ptx.assembly(kernel.text())
    assert "mul.rn.f32" in text and "add.rn.f32" in text and "fma" not in text
    assert re.search(r"ld\.global[.\w]*\.v4", text) and re.search(r"st\.global[.\w]*\.v4", text)


def test_lapack_is_a_step_of_the_host(gpu: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape).astype("f") for shape in ((40, 40), (40, 3)))
    backend = backend_of(gpu)
    before = backend.host_steps  # type: ignore[attr-defined]
    got = mo.linalg.solve(mo.asarray(a).to(gpu), mo.asarray(b).to(gpu)).numpy()
    assert backend.host_steps == before + 1  # type: ignore[attr-defined]
    assert got.tobytes() == mo.linalg.solve(mo.asarray(a), mo.asarray(b)).numpy().tobytes()


def test_steps_of_the_host_have_the_bits_of_lapack_on_the_cpu(gpu: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((*shape, 2)).view(np.complex128)[..., 0] for shape in ((2, 5, 5), (2, 5, 3)))
    for make in (mo.linalg.lu, mo.linalg.schur, mo.linalg.ldl, mo.linalg.sqrtm,
                 lambda x: mo.linalg.solve_triangular(x, mo.asarray(b).to(x.device))):
        got, want = (make(mo.asarray(a).to(device)) for device in (gpu, "cpu"))
        pairs = zip(*(found if isinstance(found, tuple) else (found,) for found in (got, want)), strict=True)
        assert all(one.numpy().tobytes() == other.numpy().tobytes() for one, other in pairs), make
    with pytest.raises(Exception, match="singular"):
        mo.linalg.solve(mo.zeros((40, 40)).to(gpu), mo.ones((40, 1)).to(gpu)).numpy()


def test_maps_of_several_accesses_a_thread(gpu: str, rng: np.random.Generator, monkeypatch: Any) -> None:
    monkeypatch.setattr(maps, "TURNS", {4: 1})
    here = [mo.asarray((3 * rng.standard_normal((2, 4097))).astype("f")) for _ in range(2)]
    f = mo.compile(lambda x, y: mo.gelu(x * 2 + 1) + y)
    for first in (0, 1):  # aligned, and not
        a, b = ([x.to(device)[:, first:first + 4096] for x in here] for device in (gpu, "cpu"))
        assert f(*a).numpy().tobytes() == f(*b).numpy().tobytes(), first


@pytest.mark.parametrize("length", [65536 * 3 + 256, 300032, 300001])
def test_reductions_of_long_rows(gpu: str, rng: np.random.Generator, length: int) -> None:
    x = mo.asarray(rng.standard_normal(length).astype("f"))
    f = mo.compile(lambda x: (mo.sum(x), mo.max(x), mo.mean(x * x)))
    assert [y.numpy().tobytes() for y in f(x.to(gpu))] == [y.numpy().tobytes() for y in f(x)]


def test_assembly_whose_registers_are_too_narrow_is_refused() -> None:
    with pytest.raises(CompileError, match='type i64 in a register "r"'):
        verify('%b = call ptr asm "", "=r,0"(ptr %a)')
    verify('%b = call i32 asm "mov.b32 $0, $1;", "=r,r"(i32 %a)')


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(16, 16, 16), (70, 33, 65), (1, 256, 40)])
@pytest.mark.parametrize("dtype", [mo.float32, mo.bfloat16, mo.float16], ids=str)
def test_products(gpu: str, rng: np.random.Generator, shape: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = shape
    a, b = (rng.standard_normal(size).astype("f") for size in ((m, k), (k, n)))
    x, y = (mo.asarray(array).astype(dtype) for array in (a, b))
    got = (x.to(gpu) @ y.to(gpu)).astype(mo.float32).numpy()
    if dtype is mo.float32:
        assert got.tobytes() == (x @ y).numpy().tobytes()  # one chain per result, as on the CPU
    else:
        exact = x.astype(mo.float64).numpy() @ y.astype(mo.float64).numpy()
        assert np.linalg.norm(got - exact) <= 4e-3 * np.linalg.norm(exact)
    rows = mo.asarray(a[: max(1, m // 2)]).astype(dtype)
    alone = (rows.to(gpu) @ y.to(gpu)).astype(mo.float32).numpy()
    assert alone.tobytes() == got[: len(alone)].tobytes()  # whatever rows are beside them


@pytest.mark.sampled
@pytest.mark.parametrize(("causal", "length"), [(False, 1), (False, 64), (False, 100), (True, 100)],
                         ids=["full-1", "full-64", "full-100", "causal-100"])
def test_attention(gpu: str, rng: np.random.Generator, causal: bool, length: int) -> None:
    q, k, v = (mo.asarray(rng.standard_normal((1, heads, rows, 64)).astype("f")).astype(mo.bfloat16)
               for heads, rows in ((4, length), (2, 100), (2, 100)))
    got = mo.attention(q.to(gpu), k.to(gpu), v.to(gpu), causal=causal).astype(mo.float32).numpy()
    want = mo.attention(*(x.astype(mo.float32) for x in (q, k, v)), causal=causal).numpy()
    assert np.linalg.norm(got - want) <= 1e-2 * np.linalg.norm(want)


def test_kernels_whose_epilogue_is_another_function_run_without_one(gpu: str, rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(shape).astype("f") for shape in ((1, 3, 7, 7), (4, 3, 3, 3)))
    got = mo.conv2d(mo.asarray(x).to(gpu), mo.asarray(w).to(gpu)).numpy()
    assert got.tobytes() == mo.conv2d(mo.asarray(x), mo.asarray(w)).numpy().tobytes()


@pytest.mark.parametrize(("m", "k", "n", "turned"), [(70, 136, 72, ""), (70, 64, 50, "b"), (72, 72, 80, "a"),
                                                     (130, 72, 264, ""), (8, 64, 64, "ab")])
def test_products_by_warpgroups_have_the_cpus_sums(gpu: str, rng: np.random.Generator, m: int, k: int, n: int,
                                                   turned: str) -> None:
    a, b = rng.standard_normal((k, m) if "a" in turned else (m, k)), rng.standard_normal((n, k) if "b" in turned else
                                                                                          (k, n))
    here = [mo.astype(mo.asarray(x.astype("f")), mo.bfloat16) for x in (a, b)]
    f = mo.compile(lambda x, y: (x.T if "a" in turned else x) @ (y.T if "b" in turned else y))
    got, want = (mo.astype(f(*given), mo.float32).numpy() for given in ([x.to(gpu) for x in here], here))
    np.testing.assert_allclose(got, want, rtol=2 ** -7, atol=1e-6)  # one rounding of a sum in another order
    assert (got != want).mean() < 0.01


def test_rows_of_products_do_not_depend_on_their_number(gpu: str, rng: np.random.Generator) -> None:
    a, b = (mo.astype(mo.asarray(rng.standard_normal(shape).astype("f")), mo.bfloat16).to(gpu)
            for shape in ((140, 80), (80, 264)))
    f = mo.compile(lambda x, y: x @ y)
    whole = mo.astype(f(a, b), mo.float32).numpy()
    some = mo.astype(f(a[:3], b), mo.float32).numpy()
    assert some.tobytes() == whole[:3].tobytes()


@pytest.mark.parametrize(("tile", "n"), [((128, 192), 392), ((64, 128), 261)])
def test_sums_that_are_handed_over_keep_their_bits(gpu: str, rng: np.random.Generator, monkeypatch: Any,
                                                   tile: tuple[int, int], n: int) -> None:
    a, b, c = (mo.astype(mo.asarray(rng.standard_normal(shape).astype("f")), mo.bfloat16).to(gpu)
               for shape in ((260, 72), (n, 72), (n,)))
    monkeypatch.setattr(lower, "_group_tile", lambda *sizes: (*tile, 64, tile[1]))
    found, launch, handed = [], WgmmaGemm.launch, []
    monkeypatch.setattr(WgmmaGemm, "launch", lambda self, sizes: handed.append(self.handed) or launch(self, sizes))
    for many in (1, 1 << 30):  # four multiprocessors are emulated: blocks have several tiles
        on_device._executables.clear()
        monkeypatch.setattr(lower, "MANY_TILES", many)
        for f in (lambda x, y, z: x @ y.T, lambda x, y, z: mo.gelu(x @ y.T + z), lambda x, y, z: mo.silu(x @ y.T)):
            found.append(mo.astype(mo.compile(f)(a, b, c), mo.float32).numpy().tobytes())
    on_device._executables.clear()
    assert found[:3] == found[3:] and handed[1] and not any(handed[3:])


def test_every_product_by_warpgroups_assembles() -> None:
    if ptxas.find() is None:
        pytest.skip("ptxas is not installed (nvidia-cuda-nvcc)")
    product = ProductKernel(mo.bfloat16, mo.bfloat16, "k", "n", (32, 32, 2, 2))
    texts = [WgmmaGemm(product, dtype, result, left, right, tile, wide, 25, handed=handed).text()
             for dtype, result, left, right, tile, wide, handed in (
                 (mo.bfloat16, mo.bfloat16, "k", "n", (128, 256), True, False),
                 (mo.bfloat16, mo.bfloat16, "k", "n", (128, 256), True, True),
                 (mo.bfloat16, mo.bfloat16, "k", "k", (128, 192), False, True),
                 (mo.float16, mo.float16, "m", "k", (128, 128), True, False),
                 (mo.bfloat16, mo.float32, "k", "k", (64, 128), False, False),
                 (mo.float16, mo.float32, "m", "n", (64, 64), True, False))]
    said = ptxas.check([ptx.assembly(text) for text in texts])
    assert said.count("0 bytes spill stores") == len(texts) and "serialized" not in said


def test_older_chips_multiply_by_warps(gpu: str, rng: np.random.Generator) -> None:
    older = gpu.replace(":0", ":1")
    shapes = ((70, 72), (72, 80))
    a, b = (mo.astype(mo.asarray(rng.standard_normal(shape).astype("f")), mo.bfloat16) for shape in shapes)
    q = mo.astype(mo.asarray(rng.standard_normal((1, 2, 70, 64)).astype("f")), mo.bfloat16)
    f = mo.compile(lambda x, y, z: (x @ y, mo.attention(z, z, z, causal=True)))
    for got, want in zip(f(a.to(older), b.to(older), q.to(older)), f(a, b, q), strict=True):
        np.testing.assert_allclose(mo.astype(got, mo.float32).numpy(), mo.astype(want, mo.float32).numpy(), rtol=0.02,
                                   atol=0.01)


@pytest.mark.parametrize(("heads", "kept", "queries", "keys", "depth", "given"), [
    (2, 2, 70, 130, 64, {}), (2, 1, 20, 140, 128, {"causal": True}),
    (1, 1, 150, 150, 72, {"causal": True, "window": 40}),
    (1, 1, 5, 520, 72, {})])  # the last one fills its three stages of keys again
def test_attention_by_warpgroups(gpu: str, rng: np.random.Generator, heads: int, kept: int, queries: int, keys: int,
                                 depth: int, given: dict[str, Any]) -> None:
    q, k, v = (mo.astype(mo.asarray(rng.standard_normal(shape).astype("f")), mo.float16) for shape in (
        (1, heads, queries, depth), (1, kept, keys, depth), (1, kept, keys, depth)))
    f = mo.compile(lambda a, b, c: mo.attention(a, b, c, **given))
    got = mo.astype(f(*[x.to(gpu) for x in (q, k, v)]), mo.float32).numpy()
    want = f(*[mo.astype(x, mo.float32) for x in (q, k, v)]).numpy()
    assert np.linalg.norm(got - want) < 1e-3 * np.linalg.norm(want)


@pytest.mark.parametrize("name", ["gelu", "residual", "two results"])
def test_what_follows_a_product_is_one_kernel(gpu: str, rng: np.random.Generator, name: str) -> None:
    shapes = ((70, 72), (72, 80), (80,), (70, 80))
    given = [mo.astype(mo.asarray(rng.standard_normal(shape).astype("f") / 3), mo.bfloat16) for shape in shapes]
    f = mo.compile({"gelu": lambda a, b, c, d: mo.gelu(a @ b + c), "residual": lambda a, b, c, d: a @ b + c + d,
                    "two results": lambda a, b, c, d: (a @ b + c, mo.silu(a @ b + c))}[name])
    device: Any = backend_of(gpu).gpu  # type: ignore[attr-defined]
    there = [x.to(gpu) for x in given]
    before = device.launches
    got = f(*there)
    found = [mo.astype(x, mo.float32).numpy() for x in (got if isinstance(got, tuple) else (got,))]
    assert device.launches - before == 1 + len(found)  # and a cast of each result
    want = f(*given)
    for one, other in zip(found, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(one, mo.astype(other, mo.float32).numpy(), rtol=2 ** -6, atol=2 ** -8)


def test_operands_anywhere_are_copied_first(gpu: str, rng: np.random.Generator) -> None:
    a = mo.astype(mo.asarray(rng.standard_normal(1 + 64 * 64).astype("f")), mo.bfloat16).to(gpu)
    moved = a[1:].reshape(64, 64)  # two bytes behind the beginning
    f = mo.compile(lambda x, y: mo.gelu(x @ y))
    same = mo.asarray(a.numpy()[1:].reshape(64, 64).copy(), dtype=mo.bfloat16).to(gpu)
    assert f(moved, moved).numpy().tobytes() == f(same, same).numpy().tobytes()
