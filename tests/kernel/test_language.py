"""Kernels in the graph, their checks, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_table import attended, attention, matmul, row_softmax, softmax, vector_add

import morpho as mo
from morpho import kernel as mk
from morpho.backends.cuda.emulator.install import install

DEVICES = ("cpu", "gpu")


def on(device: str, array: Any) -> mo.Tensor:
    return mo.asarray(array).to(install()) if device == "gpu" else mo.asarray(array)


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel_in_a_compiled_function(device: str, rng: np.random.Generator) -> None:
    f = mo.compile(lambda x: row_softmax(x * 2, block=16).sum(axis=0))
    x = rng.standard_normal((5, 13), dtype=np.float32)
    np.testing.assert_allclose(f(on(device, x)).numpy(), softmax(x * 2).sum(0), 1e-5)
    assert "row_softmax" in str(f.explain()) and f.stats["fallbacks"] == 0


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_adds_an_axis_to_the_grid(device: str, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((3, 9, 6), dtype=np.float32), rng.standard_normal((6, 5), dtype=np.float32)
    got = mo.vmap(lambda one: matmul(one, on(device, b)))(on(device, a))
    np.testing.assert_allclose(got.numpy(), a @ b, 1e-5, 1e-5)
    twice = mo.vmap(mo.vmap(lambda x, y: vector_add(x, y, block=4), in_axes=(0, None)), in_axes=(None, 0))
    got = twice(on(device, a[0]), on(device, a[1, :4]))
    np.testing.assert_array_equal(got.numpy(), a[0][None] + a[1, :4][:, None])


def slope(inputs: Any, y: mo.Tensor, ct: mo.Tensor) -> mo.Tensor:
    return (ct - (ct * y).sum(axis=-1, keepdims=True)) * y


soft = mk(grid=lambda x: x.shape[0], out="x", vjp=slope)(row_softmax.function)


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel_with_a_gradient(device: str, rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal((4, 10), dtype=np.float32) for _ in range(2))
    got = mo.grad(lambda t: (soft(t, block=16) * on(device, w)).sum())(on(device, x))
    want = mo.grad(lambda t: (mo.softmax(t, axis=-1) * mo.asarray(w)).sum())(mo.asarray(x))
    np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-5, 1e-6)


def test_a_kernel_without_a_gradient_says_so() -> None:
    with pytest.raises(mo.errors.MorphoError, match="has no gradient"):
        mo.grad(lambda t: vector_add(t, t, block=4).sum())(mo.ones(4))


@pytest.mark.parametrize("device", DEVICES)
def test_half_floats_and_views(device: str, rng: np.random.Generator) -> None:
    x = on(device, rng.standard_normal((6, 8), dtype=np.float32))
    for dtype in ("bfloat16", "float16"):
        low = x.astype(dtype)
        got = vector_add(low[:, 2], low[:, 3], block=4)
        np.testing.assert_array_equal(got.astype("float32").numpy(), (low[:, 2] + low[:, 3]).astype("float32").numpy())
        np.testing.assert_allclose(matmul(low, low.T).astype("float32").numpy(),
                                   (x @ x.T).numpy(), 0.05, 0.05)
    q = on(device, rng.standard_normal((21, 2, 8), dtype=np.float32))
    turned = mo.permute_dims(q, (1, 0, 2))
    np.testing.assert_allclose(attention(turned, turned, turned, depth=8).numpy(),
                               attended(*[turned.numpy()] * 3), 1e-4, 1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_a_result_begins_as_what_is_passed_for_it(device: str) -> None:
    begin = on(device, np.arange(6, dtype=np.float32))

    @mk(grid=1)
    def set_two(x, out):
        mk.store(out[2:4], mk.load(x[:], 2) * 10)

    got = set_two(on(device, np.ones(2, np.float32)), begin)
    assert got.numpy().tolist() == [0, 1, 10, 10, 4, 5] and begin.numpy().tolist() == [0, 1, 2, 3, 4, 5]


def test_dynamic_sizes() -> None:
    f = mo.compile(lambda x: row_softmax(x, block=32), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    for rows in (3, 5, 8):
        x = np.ones((rows, 20), np.float32)
        np.testing.assert_allclose(f(mo.asarray(x)).numpy(), softmax(x), 1e-6)


# -- checking mode -----------------------------------------------------------------------------------------------------
@mk(grid=2, out="x")
def racing(x, out):
    mk.store(out[0:2], mk.load(x[:], 2))


@mk(grid=2, out="x")
def reading_others(x, out):
    i = mk.program_id(0)
    mk.store(out[i], mk.load(x[i]))
    mk.store(out[i], mk.load(out[1 - i]))


@mk(grid=3, out="x")
def outside(x, out):
    i = mk.program_id(0)
    mk.store(out[i], mk.load(x[i]))


@mk(grid=1, out="x")
def twice(x, out):
    mk.store(out[mk.arange(2) // 2], mk.load(x[:], 2))


@pytest.mark.parametrize(("kernel", "words"), [
    (racing, r"writes out\(0,\), and program \(0,\) writes it too at .*test_language.py:\d+"),
    (reading_others, r"reads out\(1,\), which nothing has written"),
    (outside, r"program \(2,\): index 2 is out of range for axis 0 of x, whose size is 2"),
    (twice, "writes an element of out twice in one store")])
def test_checks_name_the_lines(kernel: Any, words: str) -> None:
    with pytest.raises(mo.errors.MorphoError, match=words) as caught:
        kernel(mo.ones(2), check=True)
    assert "test_language.py:" in str(caught.value)


def test_outside_is_never_touched_without_checks() -> None:
    assert outside(mo.asarray([1.0, 2.0])).numpy().tolist() == [1, 2]


# -- errors ------------------------------------------------------------------------------------------------------------
@mk(grid=1, out="x")
def float_atomic(x, out):
    mk.atomic_add(out[:], mk.load(x[:], 4))


@mk(grid=1, out="x")
def growing(x, out):
    v = mk.load(x[:], 4)
    for _ in range(2):
        v = v[:, None]
    mk.store(out[:], v)


@mk(grid=1, out="x")
def array_as_tile(x, out):
    mk.store(out[:], x + 1)


@mk(grid=1, out="x")
def of_a_value(x, out):
    mk.store(out[:], mk.load(x[:], x.shape[0]))


@mk(grid=1, out="x")
def with_statement(x, out):
    with open("x"):
        pass


@mk(grid=1, out="x")
def one_branch(x, out):
    if mk.load(x[0]) > 0:
        y = 1.0
    mk.store(out[0], y)


@pytest.mark.parametrize(("kernel", "words"), [
    (float_atomic, "unordered=True"), (growing, "must stay the same"), (array_as_tile, "load it first"),
    (of_a_value, "must be known when the kernel is compiled"), (with_statement, "is not supported"),
    (one_branch, "y has no value here")])
def test_errors_have_the_line_of_the_kernel(kernel: Any, words: str) -> None:
    with pytest.raises(mo.errors.CompileError, match=words) as caught:
        kernel(mo.ones(4))
    assert "test_language.py:" in str(caught.value)


def test_wrong_calls() -> None:
    x = mo.ones(4)
    for call, words in ((lambda: vector_add(x, block=2), "array b is missing"), (lambda: vector_add(x, x), "block"),
                        (lambda: vector_add(x, x, block=[2]), "constant block is list"),
                        (lambda: mk.load(x, 4), "outside of a kernel")):
        with pytest.raises(mo.errors.MorphoError, match=words):
            call()


def test_unordered_sums_of_floats() -> None:
    @mk(grid=4, out=mk.new((), "float32", fill=0))
    def total(x, out):
        i = mk.program_id(0)
        mk.atomic_add(out, mk.load(x[i]), unordered=True)

    assert total(mo.asarray([1.0, 2.0, 3.0, 4.0])).item() == 10
