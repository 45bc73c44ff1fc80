"""`mo.vmap`: functions of one row on many, with the bits of the loop over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, AxisError, ShapeError


@pytest.fixture
def x(rng: np.random.Generator) -> mo.Tensor:
    return mo.asarray(rng.standard_normal((5, 4)).astype(np.float32))


def rows(function: Callable[..., Any], *arguments: mo.Tensor) -> np.ndarray:
    return np.stack([function(*[a[i] for a in arguments]).numpy() for i in range(len(arguments[0]))])


def same(got: mo.Tensor, want: np.ndarray) -> bool:
    return got.shape == want.shape and got.numpy().tobytes() == want.tobytes()


def layer(x: mo.Tensor) -> mo.Tensor:
    weight = mo.reshape(mo.linspace(-1.0, 1.0, 12), (4, 3))
    return mo.layer_norm(mo.gelu(x @ weight)) * x[0]


def test_the_bits_of_the_loop(x: mo.Tensor) -> None:
    want = rows(layer, x)
    assert same(mo.vmap(layer)(x), want)
    assert same(mo.vmap(mo.compile(layer))(x), want)
    assert same(mo.compile(mo.vmap(layer))(x), want)
    assert same(mo.vmap(layer, in_axes=1)(x.T), want)
    assert same(mo.vmap(layer, in_axes=-1, out_axes=1)(x.T), want.T)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32"])
def test_products_keep_their_chains(dtype: str, rng: np.random.Generator) -> None:
    """One matrix for all rows becomes one product, whichever side the rows are on."""
    matrix, vectors = (mo.asarray(rng.normal(0, 3, shape)).astype(dtype).realise() for shape in ((70, 67), (9, 67)))
    for function in (lambda v: matrix @ v, lambda v: v @ matrix.T, lambda v: mo.outer(v, v) @ v,
                     lambda v: mo.stack([v, v]) @ matrix.T, lambda v: matrix @ mo.stack([v, v], axis=1)):
        want = rows(function, vectors)
        assert same(mo.vmap(function)(vectors), want)


def test_gradients_inside_and_outside(x: mo.Tensor) -> None:
    slope = mo.grad(lambda x: (layer(x) ** 2).sum())
    want = rows(slope, x)
    assert same(mo.vmap(slope)(x), want)
    outside = mo.grad(lambda x: (mo.vmap(layer)(x) ** 2).sum())(x)
    assert np.allclose(outside.numpy(), want, rtol=1e-5)

    norms = mo.grad(lambda x: mo.vmap(mo.linalg.vector_norm)(x).sum())(mo.zeros((2, 3)))
    assert norms.tolist() == [[0.0] * 3] * 2  # as without the batch

    @mo.custom_gradient
    def clipped(x: mo.Tensor) -> Any:
        return x * 2, lambda g: mo.clip(g, -1.0, 1.0) * x

    custom = mo.grad(lambda x: (clipped(x) * x).sum())
    want = rows(custom, x)
    assert same(mo.vmap(custom)(x), want)
    assert same(mo.grad(lambda x: mo.vmap(lambda row: (clipped(row) * row).sum())(x).sum())(x), want)


def test_nested_and_unequal_axes(x: mo.Tensor) -> None:
    both = mo.vmap(mo.vmap(lambda a, b: mo.vecdot(a, b), (None, 0)), (0, None))
    want = np.array([[mo.vecdot(x[i], x[j]).item() for j in range(5)] for i in range(5)], np.float32)
    assert same(both(x, x), want)
    tree = mo.vmap(lambda d, k: {"sum": d["a"] + d["b"][0], "k": k}, in_axes=({"a": 0, "b": [1]}, None),
                   out_axes={"sum": 1, "k": None})
    found = tree({"a": x, "b": [x.T]}, mo.ones(2))
    assert same(found["sum"], (2 * x).numpy().T) and found["k"].shape == (2,)
    assert mo.vmap(lambda x, *, y: x * y)(x, y=x).shape == (5, 4)
    assert mo.vmap(lambda x: 2.0)(x).tolist() == [2.0] * 5
    assert mo.vmap(lambda x: (x, "kept"))(x)[1] == "kept"


def test_modules_and_assignment(x: mo.Tensor) -> None:
    model = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.GELU(), mo.nn.LayerNorm(8), mo.nn.Linear(8, 2))

    def changed(row: mo.Tensor) -> mo.Tensor:
        row = row * 1
        row[0] = row[1]
        row[1:3] += 1
        return row

    assert same(mo.vmap(model)(x), rows(model, x)) and same(mo.vmap(changed)(x), rows(changed, x))


def test_no_rows_and_dynamic_rows(x: mo.Tensor) -> None:
    assert mo.vmap(layer)(mo.zeros((0, 4))).shape == (0, 3)
    dynamic = mo.compile(mo.vmap(layer), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    for count in (2, 5):
        assert same(dynamic(x[:count]), rows(layer, x)[:count])
    assert dynamic.recompiles == 0


def test_random_draws() -> None:
    """A key of each row draws as it would alone; one key for all draws the same for every row."""
    keys = mo.random.split(mo.random.key(3), 4)

    def draw(key: mo.Tensor) -> mo.Tensor:
        return mo.random.normal(key, (3,))

    assert same(mo.vmap(draw)(keys), rows(draw, keys))
    one = mo.vmap(lambda x: x + draw(keys[0]))(mo.zeros((2, 3))).numpy()
    assert (one[0] == one[1]).all() and same(draw(keys[0]), one[0])


def test_indexing_sorting_and_matrices(x: mo.Tensor, rng: np.random.Generator) -> None:
    index = mo.asarray(rng.integers(0, 4, (5, 2)))
    table = mo.asarray(rng.standard_normal((4, 3)).astype(np.float32))
    for function, arguments in (
            (lambda i: mo.embedding(table, i), (index,)), (lambda x, i: mo.take(x, i), (x, index)),
            (lambda x: mo.sort(x), (x,)), (lambda x: mo.searchsorted(mo.sort(x), x), (x,)),
            (lambda x: mo.linalg.svd(mo.outer(x, x) + mo.eye(4))[1], (x,)),
            (lambda x: mo.linalg.pinv(mo.outer(x, x[:2]), rtol=1e-3), (x,)),
            (lambda x: mo.argmax(x), (x,)), (lambda x: mo.cumulative_sum(x)[1:], (x,)),
            (lambda x, i: mo.scatter_add(x, i, x[:2]), (x, index))):
        assert same(mo.vmap(function)(*arguments), rows(function, *arguments))


def test_what_has_no_meaning_is_said(x: mo.Tensor) -> None:
    state = mo.State(mo.zeros(4))

    def write(x: mo.Tensor) -> mo.Tensor:
        state.value = x
        return x

    for function, said in ((lambda x: x if x.sum() > 0 else -x, "stands for every row at once"),
                           (lambda x: x.numpy(), "stands for every row at once"),
                           (lambda x: mo.unique_values(x), "stands for every row at once"),
                           (write, "a state is given a new value"),
                           (mo.nn.Dropout(0.5), "a state is given a new value")):
        with pytest.raises(ArgumentError, match=said):
            mo.vmap(function)(x)
    assert state.version == 0
    with pytest.raises(AxisError, match=r"argument 0 has shape \(5, 4\) and no axis 2"):
        mo.vmap(layer, in_axes=2)(x)
    with pytest.raises(ShapeError, match="argument 1 has 4 rows along axis 0 and argument 0 has 5"):
        mo.vmap(lambda a, b: a)(x, x.T)
    with pytest.raises(ShapeError, match="argument 1 is a number"):
        mo.vmap(lambda a, b: a * b)(x, 2.0)
    with pytest.raises(ArgumentError, match="no argument has rows"):
        mo.vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(ArgumentError, match="out_axes is None"):
        mo.vmap(lambda a: a, out_axes=None)(x)
    with pytest.raises(ArgumentError, match="in_axes names 1 axes for 2 arguments"):
        mo.vmap(lambda a, b: a, in_axes=(0,))(x, x)
    with pytest.raises(ArgumentError, match="not arranged like argument 0"):
        mo.vmap(lambda a: a[0], in_axes=({"a": 0},))([x])
    kept: list[mo.Tensor] = []
    mo.vmap(lambda a: kept.append(a) or a)(x)
    with pytest.raises(ArgumentError, match="stands for every row"):
        kept[0].numpy()


def test_an_operation_of_the_user_s(x: mo.Tensor) -> None:
    cube = mo.extend.op("vmap_cube", lambda x: x * x * x)
    plain = mo.extend.op("vmap_plain", reference=lambda x: x + 1, native=False)
    try:
        assert same(mo.vmap(cube)(x), rows(cube, x)) and same(mo.vmap(plain)(x), rows(plain, x))
    finally:
        mo.extend.remove("vmap_cube")
        mo.extend.remove("vmap_plain")
