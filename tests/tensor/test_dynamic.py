"""Functions of a dimension known only when the compiled function runs: one compilation, every length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ShapeError


def first_row(x: mo.Tensor) -> mo.Tensor:
    y = x + 0
    y[0] = 7.0
    return y


def masked(x: mo.Tensor) -> mo.Tensor:
    y = x + 0
    y[x > 5] = 0.0
    return y


CASES: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("take", lambda x: mo.take(x, mo.asarray([0, -1]), axis=0), lambda a: a[[0, -1]]),
    ("fancy", lambda x: x[mo.asarray([0, -1]), mo.asarray([0, 1])], lambda a: a[[0, -1], [0, 1]]),
    ("integer", lambda x: x[-1], lambda a: a[-1]),
    ("slices", lambda x: x[1:, ::2] + x[:-1, 1::2], lambda a: a[1:, ::2] + a[:-1, 1::2]),
    ("reversed", lambda x: x[::-1][1:], lambda a: a[::-1][1:]),
    ("assigned", first_row, lambda a: np.concatenate([np.full((1, 4), 7, "f"), a[1:]])),
    ("masked", masked, lambda a: np.where(a > 5, 0, a)),
    ("tril", mo.tril, np.tril), ("flip", mo.flip, np.flip),
    ("sort", lambda x: mo.sort(-x, axis=0), lambda a: np.sort(-a, 0)),
    ("cumulative_sum", lambda x: mo.cumulative_sum(x, axis=0), lambda a: np.cumsum(a, 0)),
    ("tile", lambda x: mo.tile(x, (2, 1)), lambda a: np.tile(a, (2, 1))),
    ("repeat", lambda x: mo.repeat(x, 2, axis=0), lambda a: np.repeat(a, 2, 0)),
    ("diff", lambda x: mo.diff(x, axis=0), lambda a: np.diff(a, axis=0)),
    ("concat", lambda x: mo.concat([x, x]), lambda a: np.concatenate([a, a])),
    ("mean", lambda x: mo.mean(x, axis=0) + mo.var(x, axis=0), lambda a: a.mean(0) + a.var(0)),
    ("argmax", lambda x: mo.argmax(x, axis=0), lambda a: a.argmax(0)),
    ("one_hot", lambda x: mo.one_hot(mo.astype(x[:, 0], "int64"), 30), lambda a: np.eye(30)[a[:, 0].astype(int)]),
    ("tensordot", lambda x: mo.tensordot(x, x, axes=((0,), (0,))), lambda a: a.T @ a),
    ("outer", lambda x: mo.outer(x[:, 0], x[:, 1]), lambda a: np.outer(a[:, 0], a[:, 1])),
    ("pad", lambda x: mo.pad(x, 1), lambda a: np.pad(a, 1)),
    ("roll", lambda x: mo.roll(x, (2, 1), axis=(0, 1)), lambda a: np.roll(a, (2, 1), (0, 1))),
    ("size first", lambda x: x.shape[0] * x - (x.shape[0] - x), lambda a: len(a) * a - (len(a) - a)),
    ("size divided", lambda x: x / x.shape[0] + mo.divide(x.shape[0], 2), lambda a: a / len(a) + len(a) / 2),
    ("fft", lambda x: mo.real(mo.fft.ifft(mo.fft.fft(x, axis=0), axis=0)) + 1, lambda a: a + 1),
    ("complex", lambda x: mo.real(mo.conj(x + 1j * x[::-1]) * x.shape[0]), lambda a: a * len(a)),
    ("diagonal", lambda x: mo.linalg.diagonal(x @ x.T), lambda a: np.diagonal(a @ a.T)),
    ("trace", lambda x: mo.linalg.trace(x @ x.T), lambda a: np.trace(a @ a.T)),
    ("rank", lambda x: mo.linalg.matrix_rank(x @ x.T + mo.eye(x.shape[0])), lambda a: np.array(len(a))),
    ("svdvals", lambda x: mo.linalg.svdvals(x @ x.T + mo.eye(x.shape[0])),
     lambda a: np.linalg.svd(a @ a.T + np.eye(len(a)), compute_uv=False)),
    ("random", lambda x: x * 0 + mo.random.uniform(mo.random.key(1), x.shape),
     lambda a: mo.random.uniform(mo.random.key(1), a.shape).numpy()),
]


@pytest.mark.parametrize(("name", "function", "expected"), CASES, ids=[row[0] for row in CASES])
def test_every_length(name: str, function: Any, expected: Any) -> None:
    """Six rows, one, and many, by the same compiled function."""
    compiled = mo.compile(lambda x: function(x), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    array = (np.arange(28, dtype=np.float32) % 23).reshape(7, 4)
    for rows in (6, 1, 7, 2):
        found = compiled(mo.asarray(array[:rows]))
        assert found.shape == expected(array[:rows]).shape
        np.testing.assert_allclose(found.numpy(), expected(array[:rows]), rtol=1e-5, err_msg=f"{name} {rows}")
    assert compiled.stats["specialisations"] == 1


def test_what_a_dynamic_size_cannot_do() -> None:
    """Steps, fixed regions that may leave the axis, and Python numbers."""
    def use(function: Any) -> Any:
        return mo.compile(lambda x: function(x), dynamic={"x": {0: mo.Dim("n", 1, 64)}})(mo.zeros((4, 2)))

    for wrong in (lambda x: x[::2], lambda x: x[2:5], lambda x: x[3]):
        with pytest.raises(IndexError, match="n"):
            use(wrong)
    with pytest.raises(ValueError, match="known only when"):
        use(lambda x: mo.zeros(range(x.shape[0])[0]))
    with pytest.raises(ValueError, match="known only when"):
        use(lambda x: mo.linspace(0, 1, x.shape[0]))
    undecided: list[Any] = [mo.linalg.qr, mo.linalg.svd, mo.linalg.svdvals, mo.linalg.diagonal, mo.linalg.matrix_rank,
                            lambda x: x if x.shape[0] > 2 else x + 1]
    for function in undecided:
        with pytest.raises(ShapeError, match=r"whether .* is known only when the compiled function runs.*Hint"):
            use(function)


# -- slices ------------------------------------------------------------------------------------------------------------
SLICES = [np.s_[::2], np.s_[1::2], np.s_[::-2], np.s_[::-1], np.s_[3::4], np.s_[:-1:2], np.s_[1:-1], np.s_[-3:],
          np.s_[-2::-1], np.s_[5:1:-1], np.s_[5:1:-3], np.s_[:6], np.s_[2:-2:4], np.s_[-1:-5:-2], np.s_[2::-1],
          np.s_[-1::-4]]


@pytest.mark.parametrize("key", SLICES, ids=str)
def test_slices_of_a_multiple_with_any_step(key: slice) -> None:
    f = mo.compile(lambda x: x[key] * 2, dynamic={"x": {0: 4 * mo.Dim("n", 2, 50)}})
    for n in (2, 3, 11):
        array = np.arange(8 * n, dtype="f").reshape(4 * n, 2)
        np.testing.assert_array_equal(f(mo.asarray(array)).numpy(), array[key] * 2)
    assert f.recompiles == 0


def test_gradients_and_assignments_through_steps() -> None:
    def assigned(x: mo.Tensor) -> mo.Tensor:
        y = x + 0
        y[1::2] = 0.0
        return y

    def slope(x: mo.Tensor) -> mo.Tensor:
        return mo.grad(lambda x: (x[::-2] * x[1::2]).sum())(x)

    f = mo.compile(slope, dynamic={"x": {0: 2 * mo.Dim("n", 1, 50)}})
    g = mo.compile(assigned, dynamic={"x": {0: 2 * mo.Dim("n", 1, 50)}})
    for n in (1, 4, 7):
        x = mo.asarray(np.arange(2.0 * n))
        np.testing.assert_array_equal(f(x).numpy(), slope(x).numpy())
        np.testing.assert_array_equal(g(x).numpy(), np.arange(2.0 * n) * (np.arange(2 * n) % 2 == 0))


@pytest.mark.parametrize("key, message", [
    (np.s_[::2], r"step of 2 through n positions .*declare the axis as a multiple: .*2 \* n"),
    (np.s_[::0], "takes no step of 0"), (np.s_[::1.5], "1.5, which is no whole number"),
    (np.s_[:2.5], "2.5, which is no whole number"), (np.s_["a":], "'a', which is no whole number"),
    (np.s_[:5], r"positions 0\.\.4 leave axis 0 of size n for some sizes: n is from 2 to 100.*larger lower bound"),
    (np.s_[5:1:-1], "leave axis 0 of size n for some sizes"), (5, "for some sizes: n is from 2 to 100")], ids=str)
def test_slices_that_do_not_fit_every_size(key: Any, message: str) -> None:
    f = mo.compile(lambda x: x[key], dynamic={"x": {0: mo.Dim("n", 2, 100)}})
    with pytest.raises(IndexError, match=message):
        f(mo.ones((12, 2)))


@pytest.mark.parametrize("key", [np.s_[3:1], np.s_[:500], np.s_[-500:], np.s_[500:], np.s_[::np.int64(1)],
                                 np.s_[::np.int64(-1)], np.s_[np.int64(1):np.int64(-1)], np.s_[500::-1],
                                 np.s_[0:-500:-1], np.s_[1:0:-1], np.s_[-500::-1]], ids=str)
def test_slices_are_cut_where_that_is_sure(key: slice) -> None:
    f = mo.compile(lambda x: x[key] + 1, dynamic={"x": {0: mo.Dim("n", 3, 60)}})
    for n in (3, 4, 60):
        array = np.arange(n, dtype="f")
        np.testing.assert_array_equal(f(mo.asarray(array)).numpy(), array[key] + 1)


def test_windows_with_steps_over_multiples(rng: np.random.Generator) -> None:
    k = mo.Dim("k", 2, 40)
    weight = mo.asarray(rng.normal(size=(3, 2, 4)).astype("f"))
    pooled = mo.compile(lambda x: mo.max_pool1d(x, 2), dynamic={"x": {2: 2 * k}})
    convolved = mo.compile(lambda x: mo.conv1d(x, weight, stride=2), dynamic={"x": {2: 2 * k}})
    for n in (2, 5, 40):
        x = mo.asarray(rng.normal(size=(1, 2, 2 * n)).astype("f"))
        np.testing.assert_array_equal(pooled(x).numpy(), mo.max_pool1d(x, 2).numpy())
        np.testing.assert_array_equal(convolved(x).numpy(), mo.conv1d(x, weight, stride=2).numpy())
    with pytest.raises(ShapeError, match=r"stride 3 .* declare the axis as a multiple"):
        mo.compile(lambda x: mo.max_pool1d(x, 3), dynamic={"x": {2: 2 * k}})(mo.ones((1, 2, 8)))
