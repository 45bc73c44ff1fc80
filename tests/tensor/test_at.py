"""`x.at[key]`: regions changed as values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo

KEYS: dict[str, Any] = {
    "integer": 2, "negative": -1, "slice": slice(1, 4), "step": slice(None, None, 2), "both": (slice(1, 3), 0),
    "ellipsis": (..., slice(0, 2)), "indices": np.array([0, 3, 3]), "pairs": (np.array([1, 1, 0]), np.array([2, 2, 1])),
    "mask": np.array([True, False, True, False, True]), "mixed": (np.array([4, 4]), slice(1, None)),
}
UFUNCS: dict[str, Any] = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum,
                          "divide": np.divide}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("operation", [*UFUNCS, "set"])
def test_against_numpy(name: str, operation: str, rng: np.random.Generator) -> None:
    key = KEYS[name]
    x = rng.uniform(0.5, 2, (5, 3)).astype("f")
    value = rng.uniform(0.5, 2, x[key].shape).astype("f")
    want = x.copy()
    if operation == "set":
        want[key] = value
    else:
        UFUNCS[operation].at(want, key, value)
    tensor = mo.asarray(x)
    found = getattr(tensor.at[key], operation)(mo.asarray(value))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)
    np.testing.assert_array_equal(tensor.numpy(), x)  # a value
    np.testing.assert_array_equal(tensor.at[key].get().numpy(), x[key])


def test_numbers_and_functions() -> None:
    x = mo.asarray([1.0, -2.0, 3.0])
    assert x.at[1].add(5).tolist() == [1.0, 3.0, 3.0]
    assert x.at[x < 0].multiply(-1).tolist() == [1.0, 2.0, 3.0]
    assert x.at[1:].apply(mo.abs).tolist() == [1.0, 2.0, 3.0]
    assert mo.asarray([1, 2]).at[mo.asarray([0, 0, 0])].add(1).tolist() == [4, 2]


def test_in_a_compiled_loop_one_kernel_writes_the_region(rng: np.random.Generator) -> None:
    """One kernel a turn besides the copy of the argument, no copy of the whole."""
    step = mo.compile(lambda x: mo.fori_loop(0, 7, lambda i, x: x.at[1:-1].add(0.5 * x[1:-1]), x))
    x = rng.standard_normal(1000)
    want = x.copy()
    for _ in range(7):
        want[1:-1] += 0.5 * want[1:-1]
    np.testing.assert_array_equal(step(mo.asarray(x)).numpy(), want)
    assert step.stats["kernels"] == 2 and step.stats["copies"] == 0


def test_gradients() -> None:
    x, v = mo.asarray([1.0, 2.0, 3.0]), mo.asarray([4.0, 5.0])
    for_x, for_v = mo.grad(lambda x, v: mo.sum(x.at[mo.asarray([0, 0])].add(v) ** 2), argnums=(0, 1))(x, v)
    assert for_x.tolist() == [20.0, 4.0, 6.0] and for_v.tolist() == [20.0, 20.0]


def test_errors() -> None:
    with pytest.raises(mo.errors.DTypeError, match="quotient"):
        mo.asarray([1, 2]).at[0].divide(2)
    with pytest.raises(IndexError):
        mo.asarray([1.0]).at[mo.asarray([3])].add(1.0)
    with pytest.raises(mo.errors.ShapeError):
        mo.zeros(3).at[:2].add(mo.ones(3))


def test_outside_compile_a_turn_may_name_an_element_by_what_it_is_given() -> None:
    """Indices that a loop's turn or a row of `vmap` has only when it runs are checked then."""
    def assign(i: mo.Tensor, x: mo.Tensor) -> mo.Tensor:
        x[i] = 4.0
        return x

    def counted(s: Any) -> Any:
        return s[0] + 1, s[1].at[s[0]].set(3.0)

    x, places = mo.ones((2, 3)), mo.asarray([0, 2])
    assert mo.fori_loop(0, 3, lambda i, c: c.at[i % 2].add(1.0), x)[:, 0].tolist() == [3.0, 2.0]
    assert mo.fori_loop(0, 2, assign, mo.zeros(3)).tolist() == [4.0, 4.0, 0.0]
    assert mo.scan(lambda c, i: (c.at[i].set(7.0), i), mo.zeros(4), places + 1)[0].tolist() == [0.0, 7.0, 0.0, 7.0]
    assert mo.while_loop(lambda s: s[0] < 2, counted, (mo.asarray(0), mo.zeros(3)))[1].tolist() == [3.0, 3.0, 0.0]
    assert mo.vmap(lambda r, i: r.at[i].multiply(5.0))(x, places).tolist() == [[5.0, 1.0, 1.0], [1.0, 1.0, 5.0]]
    slope = mo.grad(lambda x: (mo.fori_loop(0, 3, lambda i, c: c.at[i % 2].add(x[0]), x) ** 2).sum())(x)
    assert slope.tolist() == [[22.0] * 3, [4.0] * 3]
    with pytest.raises(IndexError):
        mo.fori_loop(0, 5, assign, mo.zeros(3)).numpy()
