"""Products that compute their left operand themselves: the same bits as in two kernels, and only where it pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.kernels.gemm import prologue, tiling
from morpho.backends.kernels.loops.loop_spec import LoopKernel
from morpho.base.target import current_isa

Function = Callable[..., Any]


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prologues for little matrices, too, in tiles of rows and blocks of k so small that there are several."""
    monkeypatch.setattr(prologue, "ENOUGH_ROWS", 4)
    monkeypatch.setattr(prologue, "TILE_ROWS", 16)
    monkeypatch.setattr(tiling, "depth_of_block", lambda register, l1_bytes: 32)
    with mo.settings(cache=False, threads=2):  # plans on disk know nothing of these numbers
        yield


@pytest.fixture
def two_threads() -> Iterator[None]:
    with mo.settings(threads=2):
        yield


def draw(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return mo.asarray(rng.standard_normal(shape).astype(dtype), copy=True)


def prologues(f: Any) -> list[LoopKernel]:
    """The kernels before products in a compiled function that was called."""
    return [step.prologue for step in f.current.plan.program.steps if step.prologue is not None]


def both(f: Function, *arguments: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """The result with prologues and without, and the function that has them."""
    fused = mo.compile(f)
    with_them = fused(*arguments).numpy()
    with mo.settings(passes_off="prologue"):
        apart = mo.compile(f)
        without = apart(*arguments).numpy()
        assert not prologues(apart)
    return with_them, without, fused


def chains(rng: np.random.Generator, k: int, dtype: Any) -> dict[str, Function]:
    gain, shift, row = (draw(rng, k).astype(dtype) for _ in range(3))
    return {"norm": lambda x: mo.layer_norm(x, gain, shift),
            "rms": lambda x: mo.rms_norm(x, gain),
            "softmax": lambda x: mo.softmax(x, axis=-1),
            "gelu": lambda x: mo.gelu(x + row) * 0.5,
            "rows": lambda x: x * x.sum(axis=-1, keepdims=True),
            "turned": lambda x: mo.tanh(mo.matrix_transpose(mo.matrix_transpose(x) * 2))}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [mo.float32, mo.float64, mo.bfloat16, mo.float16], ids=str)
@pytest.mark.parametrize("name", ["norm", "rms", "softmax", "gelu", "rows", "turned"])
def test_same_bits_as_apart(few_rows: None, rng: np.random.Generator, name: str, dtype: Any) -> None:
    m, n, k = (37, 29, 70) if dtype is not mo.float64 else (19, 25, 40)
    x, w = draw(rng, m, k).astype(dtype), draw(rng, k, n).astype(dtype)
    before, bias = chains(rng, k, dtype)[name], draw(rng, n).astype(dtype)
    expected = 0 if dtype is mo.bfloat16 and current_isa().matrix_units else 1  # tiles read the left operand themselves
    for threads in (1, 2):
        with mo.settings(threads=threads):
            for after in (lambda y: y, lambda y: mo.relu(y + bias)):
                fused, apart, f = both(lambda x, after=after: after(before(x) @ w), x)
                assert len(prologues(f)) == expected and fused.tobytes() == apart.tobytes(), (name, threads)


@pytest.mark.parametrize("shape", [(64, 7, 65), (16, 3, 33), (65, 50, 2), (8, 100, 31), (5, 25, 3)], ids=str)
def test_odd_sizes(few_rows: None, rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w = draw(rng, m, k), draw(rng, k, n)
    with mo.settings(threads=1):
        fused, apart, f = both(lambda x: mo.exp(-x) @ w, x)
    assert prologues(f) and fused.tobytes() == apart.tobytes()
    exact = np.exp(-x.numpy().astype(np.float64)) @ w.numpy().astype(np.float64)
    np.testing.assert_allclose(fused, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [0, 1])
def test_no_inner_axis_to_speak_of(few_rows: None, rng: np.random.Generator, k: int) -> None:
    x, w = draw(rng, 40, k), draw(rng, k, 5)
    expected = np.tanh(x.numpy()) @ w.numpy()
    for found in (mo.compile(lambda x, w: mo.tanh(x) @ w)(x, w), mo.tanh(x) @ w, mo.tanh(x) @ w + 0):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_a_right_operand_is_copied_once(two_threads: None, rng: np.random.Generator) -> None:
    """Also where a prologue is looked at, and not taken. Batches of four axes need no copy, of five they do."""
    for count, copies in ((3, 0), (4, 0), (5, 1)):
        axes = (*reversed(range(count)), count, count + 1)
        x, y = draw(rng, *[2] * count, 20, 34), draw(rng, *[2] * count, 34, 9)
        f = mo.compile(lambda x, y, axes=axes: mo.tanh(x) @ mo.permute_dims(y, axes))
        found, expected = f(x, y).numpy(), np.tanh(x.numpy()) @ y.numpy().transpose(axes)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert f.stats["copies"] == copies


def test_batches_of_two_axes(few_rows: None, rng: np.random.Generator) -> None:
    x = draw(rng, 3, 2, 20, 34)

    def product(w: Any, axes: tuple[int, ...]) -> Function:
        return lambda x: mo.softmax(x) @ mo.permute_dims(w, axes)

    for w, axes in ((draw(rng, 2, 34, 18), (0, 1, 2)), (draw(rng, 3, 1, 34, 18), (0, 1, 2, 3)),
                    (draw(rng, 2, 3, 34, 9), (1, 0, 2, 3))):
        fused, apart, f = both(product(w, axes), x)
        assert prologues(f) and fused.tobytes() == apart.tobytes() and f.stats["copies"] == 0
        np.testing.assert_allclose(fused, mo.softmax(x).numpy() @ w.numpy().transpose(axes), rtol=1e-4, atol=1e-5)


def test_batches_and_reshapes(few_rows: None, rng: np.random.Generator) -> None:
    x, w, v = draw(rng, 3, 2, 20, 34), draw(rng, 34, 18), draw(rng, 3, 2, 34, 9)
    for f in (lambda x: mo.softmax(x, axis=-1) @ w,  # one matrix for all
              lambda x: mo.softmax(x, axis=-1) @ v,  # one for each
              lambda x: mo.reshape(mo.rms_norm(x), (6, 20, 34)) @ w,
              lambda x: mo.reshape(mo.gelu(x), (60, 2, 34)) @ w):
        fused, apart, made = both(f, x)
        assert len(prologues(made)) == 1 and fused.tobytes() == apart.tobytes()


def test_norms_on_both_sides(few_rows: None, rng: np.random.Generator) -> None:
    x, w, u = draw(rng, 40, 36), draw(rng, 36, 50), draw(rng, 50, 36)
    fused, apart, f = both(lambda x: mo.layer_norm(mo.layer_norm(x) @ w) @ u, x)
    assert len(prologues(f)) >= 1 and fused.tobytes() == apart.tobytes()


def test_conversion_while_packing(few_rows: None, rng: np.random.Generator) -> None:
    pixels = mo.asarray(rng.integers(0, 256, (48, 50)).astype(np.uint8), copy=True)
    w = draw(rng, 50, 12)
    fused, apart, f = both(lambda x: (x.astype(mo.float32) / 255) @ w, pixels)
    assert prologues(f) and fused.tobytes() == apart.tobytes()


def test_dynamic_rows(few_rows: None, rng: np.random.Generator) -> None:
    w = draw(rng, 34, 18)
    f = mo.compile(lambda x: mo.softmax(x, axis=-1) @ w, dynamic={"x": {0: mo.Dim("n", 16, 60)}})
    for rows in (60, 16, 33, 17):
        x = draw(rng, rows, 34)
        with mo.settings(passes_off="prologue"):
            expected = (mo.softmax(x, axis=-1) @ w).numpy()
        assert f(x).numpy().tobytes() == expected.tobytes()
    assert prologues(f) and f.stats["recompiles"] == 0


def test_a_state_is_read_before_it_changes(few_rows: None, rng: np.random.Generator) -> None:
    """The group runs when the product does: what it reads must not have been written over by then."""
    start, w = draw(rng, 40, 34), draw(rng, 34, 18)
    results = []
    for off in ("", "prologue"):
        with mo.settings(passes_off=off):
            state = mo.State(start)

            def step(x: Any, state: Any = state) -> Any:
                y = mo.tanh(state.value) @ w
                state.value = state.value * 0.5 + x
                return y

            f = mo.compile(step)
            outs = [f(start * i).numpy().tobytes() for i in range(3)]
            results.append((outs, state.value.numpy().tobytes()))
            assert bool(prologues(f)) == (off == "")
    assert results[0] == results[1]


def test_where_it_does_not_pay(two_threads: None, rng: np.random.Generator) -> None:
    x, few, w, wide = draw(rng, 300, 40), draw(rng, 16, 40), draw(rng, 40, 24), draw(rng, 40, 2000)
    ids = mo.asarray(rng.integers(0, 300, 280))

    def twice(x: Any) -> Any:
        y = mo.tanh(x)
        return y @ w, y

    for f, *arguments in ((lambda x: mo.tanh(x) @ w, few),  # too few rows for a panel
                          (lambda x: mo.tanh(x) @ x.T, few),
                          (lambda x: mo.tanh(x) @ wide, x),  # more columns than an item should have
                          (twice, x),  # read by the caller, too
                          (lambda x: mo.tanh(x).T @ x, x),  # the rows of the product are its columns
                          (lambda a: mo.tanh(x) @ w + a, draw(rng, 1, 24)),  # computed once, from constants
                          (lambda x: mo.take(x, ids, axis=0) @ w, x)):  # may fault
        made = mo.compile(f)
        made(*arguments)
        assert not prologues(made)
    with mo.settings(level=0):
        plain = mo.compile(lambda x: mo.tanh(x) @ w)
        plain(x)
        assert not prologues(plain)
    usual = mo.compile(lambda x: mo.tanh(x) @ w)
    usual(x)
    assert len(prologues(usual)) == 1 and "tanh+matmul" in usual.explain()


def test_from_disk(two_threads: None, rng: np.random.Generator, tmp_path: Any) -> None:
    """A plan on disk knows the kernel before a product."""
    x, w = draw(rng, 260, 40), draw(rng, 40, 24)

    def f(x: Any) -> Any:
        return mo.softmax(x, axis=-1) @ w

    with mo.settings(cache_dir=str(tmp_path)):
        first, second = mo.compile(f), mo.compile(f)
        expected = first(x).numpy()
        assert second(x).numpy().tobytes() == expected.tobytes()
        assert second.stats["cache"]["plan"] == 1 and len(prologues(second)) == 1


def test_scratch_is_small(two_threads: None, rng: np.random.Generator) -> None:
    """The left operand is never in memory as a whole: nothing is in the arena."""
    x, w = draw(rng, 2048, 96), draw(rng, 96, 16)
    f = mo.compile(lambda x: mo.layer_norm(x) @ w)
    f(x)
    assert prologues(f) and f.stats["arena_bytes"] == 0


def test_indices_on_the_left_are_still_checked(two_threads: None, rng: np.random.Generator) -> None:
    """A lookup on the left of a product is not found right because the one that follows the product was."""
    x, w, t = draw(rng, 40, 34), draw(rng, 34, 18), draw(rng, 40, 18)
    good, bad = (mo.asarray(np.full(280, number), copy=True) for number in (3, 40))

    @mo.compile
    def f(ids: Any, others: Any) -> Any:
        first = mo.take(t, others, axis=0)
        return first.sum() + (mo.tanh(mo.take(x, ids, axis=0)) @ w) * mo.take(t, others, axis=0)

    f(good, good)
    with pytest.raises(IndexError):
        f(bad, good).numpy()
