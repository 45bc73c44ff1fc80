"""Structure instead of time: kernels serve every length, cost per element is flat, the fast path is really taken."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from running import Native, parameter

import morpho as mo
from morpho.backends.code.compiler import code, llvm
from morpho.backends.kernels.generators import generate
from morpho.base.dims import Dim
from morpho.base.dtypes import DType, bfloat16, float16, float32, float64
from morpho.base.errors import CompileError
from morpho.ir.node import Node, build
from morpho.runtime.plans import evaluate as evaluation


def kernel_of(node: Node) -> object:
    (step,) = Native([node]).program.steps
    return step.kernel


@pytest.mark.parametrize("build_node", [
    lambda x: build("gelu", x), lambda x: build("sum", x, axes=(0,)), lambda x: build("softmax", x, axes=(0,)),
    lambda x: build("cumulative_sum", x, axis=0)], ids=["gelu", "sum", "softmax", "scan"])
def test_one_kernel_serves_every_length(build_node: object) -> None:
    """No length is part of a kernel: the same code runs 5 elements and 5 million, so its cost per element is flat."""
    kernels = {kernel_of(build_node(parameter(0, (n,), float32)))  # type: ignore[operator]
               for n in (5, 64, 67, 5000)}
    assert len(kernels) == 1


def test_instructions_per_element_do_not_depend_on_the_length() -> None:
    """A kernel that copies its whole input per element would have a loop in its loop: there is one per walk."""
    kernel = kernel_of(build("add", parameter(0, (1000,), float32), parameter(1, (1000,), float32)))
    text = generate(kernel, code.current_isa(), "kernel")  # type: ignore[attr-defined]
    loops = len(re.findall(r"^head\d+:", text, re.MULTILINE))
    assert loops <= 5, "rows, whole chunks, and at most three short copies at the end"
    assert "@memcpy" not in text and "@llvm.memcpy" not in text


def test_a_second_length_compiles_nothing() -> None:
    f = mo.compile(lambda x: mo.softmax(mo.gelu(x) * 2), dynamic={"x": {0: Dim("n", 1, 5000)}})
    f(mo.asarray(np.ones((3, 7), "f")))
    before = code.counters.snapshot()
    for n in range(1, 68):
        f(mo.asarray(np.ones((n, 7), "f")))
    assert code.counters.snapshot()["compiled"] == before["compiled"]
    assert f.stats["recompiles"] == 0


def test_the_native_entry_is_really_called() -> None:
    f = mo.compile(lambda a, b: a + b)
    a, b, c = (mo.asarray(np.ones(100, "f"), copy=True) for _ in range(3))
    f(a, b, out=c)
    before = f.stats["native_calls"]
    for _ in range(10):
        f(a, b, out=c)
    assert f.stats["native_calls"] == before + 10
    assert f.stats["fallbacks"] == 0


def test_kernels_run_and_nothing_falls_back() -> None:
    before = evaluation.counts.kernels_run, evaluation.counts.fallbacks, evaluation.counts.host_steps
    (mo.asarray(np.ones(100, "f")) + 1).numpy()
    assert evaluation.counts.kernels_run == before[0] + 1
    assert (evaluation.counts.fallbacks, evaluation.counts.host_steps) == before[1:]


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_whole_chunks_are_vectors(dtype: DType) -> None:
    """The body of an add works on vectors, not on single elements."""
    kernel = kernel_of(build("add", parameter(0, (1000,), dtype), parameter(1, (1000,), dtype)))
    text = generate(kernel, code.current_isa(), "kernel")  # type: ignore[attr-defined]
    if code.current_isa().vector_bits:
        assert re.search(r"fadd <\d+ x (?:float|double)>", text)


def test_the_scalar_path_has_no_vectors() -> None:
    with mo.settings(isa="scalar"):
        kernel = kernel_of(build("softmax", parameter(0, (10, 100), float32), axes=(1,)))
        text = generate(kernel, code.current_isa(), "kernel")  # type: ignore[attr-defined]
    assert not re.search(r"<\d+ x ", text)


def test_text_that_llvm_rejects_is_an_error_of_ours() -> None:
    with pytest.raises(CompileError, match="LLVM rejects"):
        llvm.compile_text("define i32 @f( {", code.current_isa())


def test_updates_of_weights_of_any_shape_are_one_kernel() -> None:
    """Operands are ordered by what the kernel does with them, not by their sizes or by what they were computed from."""
    shapes = [(3, 5), (7,), (2, 3, 4), (11, 13), (5, 3), (1, 17)]
    rng = np.random.default_rng(0)
    weights = [mo.State(rng.normal(size=shape).astype("f")) for shape in shapes]
    means = [mo.State(np.zeros(shape, "f")) for shape in shapes]

    @mo.compile
    def update(slopes: list[mo.Tensor], scale: mo.Tensor) -> None:
        for weight, mean, slope in zip(weights, means, slopes, strict=True):
            clipped = slope * scale
            mean.value = mean.value * 0.9 + clipped * 0.1
            weight.value = weight.value * 0.99 - (mean.value + clipped * clipped) * 0.5

    update([mo.asarray(rng.normal(size=shape).astype("f")) for shape in shapes], mo.asarray(np.float32(0.5)))
    steps = update.current.plan.program.steps  # type: ignore[union-attr]
    assert len(steps) == len(shapes) and len({step.kernel for step in steps}) == 1


@pytest.mark.parametrize("before, kept", [
    (lambda a: a, []), (lambda a: a + 1, []),  # cheaper than memory
    (lambda a: a / 3, ["divide"]), (lambda a: (a / 3 - 1) / 7, ["divide"]),  # one value, the last
    (mo.sqrt, ["sqrt"]), (mo.gelu, ["gelu"]), (lambda a: mo.gelu(a) + 1, ["add"])])
def test_what_is_dear_is_not_computed_in_every_walk(rng: np.random.Generator, before: Any, kept: list[str]) -> None:
    """A layer norm walks over a row three times; what it is the norm of waits in scratch between them."""
    x = rng.random((5, 70)).astype(np.float32)
    f = mo.compile(lambda a: mo.layer_norm(before(a)))
    found = f(mo.asarray(x)).numpy()
    (step,) = f.current.plan.program.steps
    assert [step.kernel.instructions[number].name for number in step.kernel.kept] == kept
    with mo.settings(level=0):
        assert mo.layer_norm(before(mo.asarray(x))).numpy().tobytes() == found.tobytes()


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 13, 40, 41])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64", "bool"])
def test_very_short_rows_have_the_bits_of_rows_alone(columns: int, name: str, dtype: str,
                                                     rng: np.random.Generator) -> None:
    """Up to 40 elements lanes run along the rows; a row alone, and longer ones, go the other way."""
    if dtype == "bool" and name not in ("any", "all", "sum"):
        return
    if name == "mean" and not dtype.startswith("float"):
        return
    numbers = [0.0, -0.0, 1.5, -2.25, 3.0, 1e-3] if dtype.startswith("float") else [0, 1, 2, 3, 100]
    values = rng.choice(numbers, (37, columns)).astype(dtype)
    f = mo.compile(lambda x: getattr(mo, name)(x, axis=1))
    together = f(mo.asarray(values)).numpy()
    alone = np.stack([f(mo.asarray(row[None])).numpy()[0] for row in values])
    assert together.tobytes() == alone.tobytes()
    across = mo.compile(lambda x: getattr(mo, name)(x, axis=0))(mo.asarray(np.ascontiguousarray(values.T))).numpy()
    assert across.tobytes() == together.tobytes()


def test_very_short_rows_are_one_kernel_of_lanes_along_them() -> None:
    f = mo.compile(lambda x: mo.sqrt((x * x).sum(axis=-1)))
    f(mo.ones((100, 3)))
    (step,) = f.current.plan.program.steps
    assert step.kernel.short == (3,)
    f(mo.ones((100, 13)))
    (step,) = f.current.plan.program.steps
    assert step.kernel.short == () and step.kernel.block_transpose
    for rows, columns in ((100, 41), (7, 13), (1, 13)):
        f(mo.ones((rows, columns)))
        assert not any(step.kernel.block_transpose for step in f.current.plan.program.steps)


TURNED = {
    "softmax": lambda x: mo.softmax(x, axis=-1),
    "layer norm": lambda x: mo.layer_norm(x * 2),
    "argmax": lambda x: mo.argmax(x, axis=-1),
    "all of a walk": lambda x: (x - mo.mean(x, axis=-1, keepdims=True), mo.sum(x, axis=-1), mo.max(x + 1, axis=-1),
                                mo.any(x > 0.5, axis=-1), x > mo.mean(x, axis=-1, keepdims=True)),
    "a number of every row": lambda x: mo.softmax(x * x[:, :1], axis=-1),
    "numbers of columns": lambda x: mo.sum(x * mo.arange(x.shape[-1], dtype=x.dtype), axis=-1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("columns", [2, 3, 5, 16, 31, 40])
@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_turned_rows_have_the_bits_of_rows_alone(columns: int, name: str, dtype: str, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((70, columns))).astype(getattr(mo, dtype))
    f = mo.compile(TURNED[name])
    together = f(x)
    expected = name != "a number of every row" or columns <= 20
    assert any(step.kernel.block_transpose or step.kernel.short for step in f.current.plan.program.steps) == expected
    alone = [f(x[i:i + 1]) for i in range(0, 70, 23)]
    for number, whole in enumerate(together if isinstance(together, tuple) else (together,)):
        for i, row in zip(range(0, 70, 23), alone, strict=True):
            part = row[number] if isinstance(row, tuple) else row
            assert whole[i:i + 1].astype(mo.float64).numpy().tobytes() == part.astype(mo.float64).numpy().tobytes()


@pytest.mark.parametrize("rows", [8, 9, 15, 16, 64, 65, 129])
def test_turned_rows_of_any_number_and_stride(rows: int, rng: np.random.Generator) -> None:
    base = rng.standard_normal((rows, 3, 30)).astype(np.float32)
    weight = mo.asarray(rng.standard_normal(11).astype(np.float32))
    f = mo.compile(lambda x, y: mo.layer_norm(x, weight) * y)
    for view in (np.s_[:, 1, 3:14], np.s_[::-1, 0, :11], np.s_[:, 2, ::-1], np.s_[:, 1, 3:25:2]):
        x = base[view][:, :11]
        y = np.ascontiguousarray(x[::-1])
        wanted = np.stack([f(mo.asarray(a[None]), mo.asarray(b[None])).numpy()[0] for a, b in zip(x, y, strict=True)])
        np.testing.assert_array_equal(f(mo.asarray(x), mo.asarray(y)).numpy(), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_turned_rows_of_integers_and_slices(dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2 if dtype == "bool" else 100, (50, 9, 13)).astype(dtype)
    f = mo.compile(lambda x: (mo.softmax(x[:, :8].astype(mo.float32), axis=-1), mo.any(x[:, :8] > 40, axis=-1)
                              if dtype != "bool" else mo.all(x[:, :8], axis=-1)))
    shares, some = f(mo.asarray(x))
    single = mo.compile(lambda x: mo.softmax(x.astype(mo.float32), axis=-1))
    alone = np.stack([[single(mo.asarray(x[i, j][None])).numpy()[0] for j in range(8)] for i in range(0, 50, 17)])
    np.testing.assert_array_equal(shares.numpy()[::17], alone)
    np.testing.assert_array_equal(some.numpy(), x[:, :8].all(-1) if dtype == "bool" else (x[:, :8] > 40).any(-1))


def test_turned_blocks_take_little_memory() -> None:
    f = mo.compile(lambda x: mo.softmax(x, axis=-1))
    f(mo.ones((100, 5)))
    (step,) = f.current.plan.program.steps
    assert step.kernel.block_transpose == 8 and step.scratch_bytes(1) <= 16_000


def test_turned_rows_in_place_and_of_dynamic_number(rng: np.random.Generator) -> None:
    values = rng.standard_normal((200, 21)).astype(np.float32)
    f = mo.compile(lambda x: mo.softmax(x, axis=-1))
    wanted = f(mo.asarray(values)).numpy()
    x = mo.asarray(values, copy=True)
    f(x, out=x)
    np.testing.assert_array_equal(x.numpy(), wanted)
    dynamic = mo.compile(lambda x: mo.softmax(x, axis=-1), dynamic={"x": {0: mo.Dim("n", 1, 500)}})
    for rows in (1, 2, 3, 17, 200):
        np.testing.assert_array_equal(dynamic(mo.asarray(values[:rows])).numpy(), wanted[:rows])
    with mo.settings(threads=2):
        many = np.tile(values, (300, 1))
        np.testing.assert_array_equal(f(mo.asarray(many)).numpy(), np.tile(wanted, (300, 1)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows", [8, 21, 200])
def test_classes_are_checked_beside_one_another(axis: int, rows: int, rng: np.random.Generator) -> None:
    """Cross entropy of few classes, or along a leading axis: rows side by side, with the bits of rows alone."""
    x, t = rng.standard_normal((rows, 10)).astype(np.float32), rng.integers(0, 10, rows)
    logits = mo.asarray(np.ascontiguousarray(x.T) if axis == 0 else x)
    f = mo.compile(lambda x, t: mo.cross_entropy(x, t, axis=axis, reduction="none"))
    together = f(logits, mo.asarray(t)).numpy()
    assert any(step.kernel.transposed for step in f.current.plan.program.steps)
    one = mo.compile(lambda x, t: mo.cross_entropy(x, t, reduction="none"))
    alone = [one(mo.asarray(x[i:i + 1]), mo.asarray(t[i:i + 1])).numpy()[0] for i in range(0, rows, 7)]
    np.testing.assert_array_equal(together[::7], alone)
    for wrong in (10, -1):
        t[rows - 1] = wrong
        with pytest.raises(mo.errors.IndexFault, match="out of range for 10 classes"):
            f(logits, mo.asarray(t))
