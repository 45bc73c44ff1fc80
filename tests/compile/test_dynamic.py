"""Dynamic dimensions: one compiled function for every size within bounds, with the bits of the static one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.base.errors import ArgumentError, MorphoError, ShapeError
from morpho.runtime.plans import evaluate

LENGTHS = (2, 3, 7, 16, 63, 64, 65, 200)


def numbers(*shape: int) -> mo.Tensor:
    """Reproducible numbers with memory of their own."""
    return mo.asarray(np.random.default_rng(int(np.prod(shape)) + 1).standard_normal(shape, np.float32), copy=True)


ROWS: dict[str, Callable[[mo.Tensor], mo.Tensor]] = {
    "elementwise": lambda x: mo.gelu(x * 2) + 1,
    "sum": lambda x: x.sum(),
    "sum rows": lambda x: x.sum(axis=0),
    "sum columns": lambda x: x.sum(axis=1),
    "mean": lambda x: x.mean(axis=0),
    "mean all": lambda x: x.mean(),
    "variance": lambda x: x.var(axis=0),
    "softmax": lambda x: mo.softmax(x, axis=0),
    "softmax rows": lambda x: mo.softmax(x, axis=1),
    "product": lambda x: x @ mo.ones((5, 3)),
    "gram": lambda x: x.T @ x,
    "outer": lambda x: x @ x.T,
    "concat": lambda x: mo.concat([x, x * 2], axis=0),
    "concat fixed": lambda x: mo.concat([x, mo.ones((3, 5))], axis=0),
    "transposed": lambda x: x.T + 1,
    "flipped": lambda x: x[::-1] * 2,
    "without first": lambda x: x[1:] + 1,
    "without last": lambda x: x[:-1] + 1,
    "column": lambda x: x[:, 2:4] * 3,
    "last": lambda x: x[-1] + x[0],
    "reshaped": lambda x: x.reshape(-1) * 2,
    "scan": lambda x: mo.cumulative_sum(x, axis=0),
    "argmax": lambda x: mo.argmax(x, axis=0),
    "max": lambda x: x.max(axis=0) - x.min(),
    "normalised": lambda x: (x - x.mean(axis=0)) / (x.std(axis=0) + 1),
    "padded": lambda x: mo.concat([mo.zeros((1, 5)), x], axis=0)[:-1],
}


@pytest.mark.parametrize("name", ROWS)
def test_same_bits_as_static(name: str) -> None:
    function = ROWS[name]
    dynamic = mo.compile(function, dynamic={"x": {0: mo.Dim("n", 2, 256)}})
    for length in LENGTHS:
        x = numbers(length, 5)
        expected = mo.compile(function)(x).numpy()
        found = dynamic(x)
        assert found.shape == expected.shape, length
        np.testing.assert_array_equal(found.numpy(), expected, err_msg=f"{name} at {length}")
    assert dynamic.recompiles == 0 and dynamic.fallbacks == 0


def test_a_thousand_lengths_without_a_new_kernel() -> None:
    def function(x: mo.Tensor, y: mo.Tensor) -> mo.Tensor:
        return mo.softmax(x * 2 + y, axis=-1)

    n = mo.Dim("n", 1, 2000)
    f = mo.compile(function, dynamic={"x": {0: n}, "y": {0: n}})
    f(numbers(3), numbers(3))
    plans, compiled = evaluate.counts.plans, code.counters.compiled
    block = np.random.default_rng(0).standard_normal(2000, np.float32)
    kept = {}
    for length in range(1, 1001):
        x = mo.asarray(block[:length])
        found = f(x, x)
        assert found.shape == (length,)
        if length % 97 == 0:
            kept[length] = found
    assert f.recompiles == 0 and f.calls == 1001
    assert code.counters.compiled == compiled and evaluate.counts.plans == plans
    for length, found in kept.items():
        x = mo.asarray(block[:length])
        np.testing.assert_array_equal(found.numpy(), mo.compile(function)(x, x).numpy())


def test_the_native_entry_binds_sizes() -> None:
    n, m = mo.Dim("n", 0, 64), mo.Dim("m", 1, 64)
    f = mo.compile(lambda x, y: (x * 2 + y).sum(axis=1), dynamic={"x": {0: n, 1: m}, "y": {1: m}})
    f(numbers(3, 4), numbers(1, 4))
    native = f.native_calls
    for count, (rows, columns) in enumerate(((3, 4), (0, 5), (64, 64), (1, 1), (17, 33)), 1):
        x, y = numbers(rows, columns), numbers(1, columns)
        target = mo.empty(rows)
        assert f(x, y, out=target) is target
        assert f.native_calls == native + count
        np.testing.assert_array_equal(target.numpy(), mo.compile(lambda x, y: (x * 2 + y).sum(axis=1))(x, y).numpy())
    with pytest.raises(ArgumentError, match="out= is"):
        f(numbers(3, 4), numbers(1, 4), out=mo.empty(4))


def test_bounds() -> None:
    f = mo.compile(lambda x: x + 1, dynamic={"x": {-1: mo.Dim("n", 2, 8)}})
    for size in (2, 8):
        assert f(mo.zeros((3, size)).realise()).shape == (3, size)
        f(mo.zeros((3, size)).realise(), out=mo.empty((3, size)))
    for size in (0, 1, 9):
        for out in (None, mo.empty((3, size))):
            with pytest.raises(ArgumentError, match=rf"axis -1 of x has size {size}, outside 2\.\.8 of n"):
                f(mo.zeros((3, size)).realise(), out=out)
    with pytest.raises(ArgumentError, match="has no axis"):
        f(mo.asarray(3.0))


def test_sizes_that_share_a_symbol() -> None:
    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda x, y: x.sum() + y.sum(), dynamic={"x": {0: n}, "y": {0: n}})
    assert f(mo.ones(3), mo.ones(3)).item() == 6
    for out in (None, mo.empty(())):
        with pytest.raises(ArgumentError, match=r"argument y has shape \(4,\).*'n': 3"):
            f(mo.ones(3).realise(), mo.ones(4).realise(), out=out)
    assert f(mo.ones(5), mo.ones(5)).item() == 10


def test_sizes_that_follow_from_others() -> None:
    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda y, x: y.sum() + x.sum(), dynamic={"y": {0: n * 2 + 1}, "x": {0: n}})
    for size in (3, 5):
        assert f(mo.ones(2 * size + 1), mo.ones(size)).item() == 3 * size + 1
    target = mo.empty(())
    f(mo.ones(7).realise(), mo.ones(3).realise(), out=target)
    native = f.native_calls
    f(mo.ones(9).realise(), mo.ones(4).realise(), out=target)
    assert target.item() == 13 and f.native_calls == native + 1
    with pytest.raises(ArgumentError):
        f(mo.ones(8), mo.ones(3))


@pytest.mark.parametrize(("dynamic", "said"), [
    ({"z": {0: mo.Dim("n")}}, "not a parameter"),
    ({"x": mo.Dim("n")}, "is not a dict"),
    (True, "dynamic=True is not a dict of parameters.*mo.Dim"),
    (mo.Dim("n"), "is not a dict of parameters"),
    ({"x": {"0": mo.Dim("n")}}, "names '0', which is not an axis"),
    ({"x": ({0: 3},)}, r"dynamic size 3 of x.0. is not a Dim"),
    ({"x": {0: 5}}, "not a Dim"),
    ({"x": {0: mo.Dim("n") * mo.Dim("m")}}, "does not tell what m is, and no axis is of size m or a multiple of it"),
    ({"x": {0: mo.Dim("n", 1, 4)}, "y": {0: mo.Dim("n", 1, 5)}}, r"has bounds \(1, 4\) and \(1, 5\)"),
])
def test_wrong_declarations(dynamic: dict, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        mo.compile(lambda x, y: x + y, dynamic=dynamic)


def test_a_bound_too_large_for_the_temporaries() -> None:
    f = mo.compile(lambda x: mo.softmax(x @ x.T, axis=0) @ x, dynamic={"x": {0: mo.Dim("n")}})
    with pytest.raises(MorphoError, match=r"smaller upper bound|upper bounds"):
        f(mo.ones((6, 4)))


@pytest.mark.parametrize("name", ["elementwise", "sum", "sum rows", "sum columns", "softmax rows", "product", "gram",
                                  "concat", "transposed", "scan"])
def test_size_zero_where_bounds_allow_it(name: str) -> None:
    function = ROWS[name]
    f = mo.compile(function, dynamic={"x": {0: mo.Dim("n", 0, 64)}})
    for rows in (0, 3, 0):
        x = numbers(rows, 5)
        expected = mo.compile(function)(x).numpy()
        np.testing.assert_array_equal(f(x).numpy(), expected)
        target = mo.empty(expected.shape)
        np.testing.assert_array_equal(f(x, out=target).numpy(), expected)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("correction", [0, 1, 2, 3, 0.5, 0.1])
def test_variances_of_no_more_elements_than_the_correction(correction: float, dtype: str) -> None:
    """Infinite or NaN as of static sizes and in NumPy, never negative."""
    several = {"var": lambda x: mo.var(x, axis=0, correction=correction),
               "std": lambda x: mo.std(x, axis=0, correction=correction), "mean": lambda x: mo.mean(x, axis=0)}
    for name, function in several.items():
        f = mo.compile(function, dynamic={"x": {0: mo.Dim("n", 0, 64)}})
        for rows in (0, 1, 2, 3, 4, 7):
            x = numbers(rows, 5).astype(dtype)
            expected, found = mo.compile(function)(x).numpy(), f(x).numpy()
            np.testing.assert_array_equal(found, expected, f"{name} of {rows}")
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                ddof = {} if name == "mean" else {"ddof": correction}
                exact = getattr(np, name)(x.numpy().astype(np.float64), axis=0, **ddof)
            np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0.02, atol=0.02)


def test_the_mean_loss_of_no_rows() -> None:
    rows, classes = mo.Dim("n", 0, 64), mo.asarray([0, 3, 1])
    f = mo.compile(lambda x, y: mo.cross_entropy(x, y), dynamic={"x": {0: rows}, "y": {0: rows}})
    for size in (0, 1, 3):
        x = numbers(size, 5)
        np.testing.assert_array_equal(f(x, classes[:size]).numpy(), mo.cross_entropy(x, classes[:size]).numpy())


EMPTY: dict[str, Callable[[mo.Tensor], mo.Tensor]] = {
    "max": lambda x: x.max(axis=0), "min": lambda x: x.min(), "argmax": lambda x: mo.argmax(x, axis=0),
    "argmin": lambda x: mo.argmin(x), "inside": lambda x: (x - x.max(axis=0)).sum(axis=0) * 2,
    "without first": lambda x: x[1:].max(axis=0),
    "joined": lambda x: mo.concat([x, x], axis=0).max(axis=0), "flat": lambda x: x.reshape(-1).max(),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", EMPTY)
def test_no_elements_where_an_operation_needs_some(name: str, backend: str) -> None:
    """The error of a static empty axis, through Python and through the native entry, which serves all other sizes."""
    function, empty = EMPTY[name], 1 if name == "without first" else 0
    f = mo.compile(function, dynamic={"x": {0: mo.Dim("n", empty, 64)}})
    with mo.settings(device=backend):
        for size in (7, empty, 3, empty, empty + 1):
            x = numbers(size, 5)
            if size > empty:
                expected = mo.compile(function)(x)
                np.testing.assert_array_equal(f(x).numpy(), expected.numpy())
                native, target = f.native_calls, mo.empty(expected.shape, dtype=expected.dtype)
                np.testing.assert_array_equal(f(x, out=target).numpy(), expected.numpy())
                assert f.native_calls == native + (backend == "cpu")
                continue
            for out in (None, target):
                with pytest.raises(ShapeError, match=r"dynamic size .* turns out 0.*test_dynamic.py:\d+"):
                    f(x, out=out)
            with pytest.raises(ShapeError):
                mo.compile(function)(x)
    assert f.recompiles == 0


NO_ELEMENTS: dict[str, Callable[[mo.Tensor], mo.Tensor]] = {
    "softmax": lambda x: mo.softmax(x, axis=0), "log_softmax": lambda x: mo.log_softmax(x, axis=0),
    "logsumexp": lambda x: mo.logsumexp(x, axis=0), "layer_norm": lambda x: mo.layer_norm(x, axis=0),
    "rms_norm": lambda x: mo.rms_norm(x, axis=(0, 1)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("setting", [{"level": 0}, {"level": 3}, {"device": "reference"}], ids=str)
@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_rows_that_turn_out_empty(name: str, setting: dict[str, Any]) -> None:
    """A row of no elements is an empty row, and the logarithm of its empty sum -inf: values and gradients, as static
    sizes give them."""
    function = NO_ELEMENTS[name]

    def slope(x: mo.Tensor) -> mo.Tensor:
        return mo.grad(lambda t: (function(t) * 3).sum())(x)

    with mo.settings(**setting):
        for wanted in (function, slope):
            f = mo.compile(wanted, dynamic={"x": {0: mo.Dim("n", 0, 64)}})
            for size in (7, 0, 3, 0, 0):
                x = numbers(size, 5)
                expected = mo.compile(wanted)(x).numpy()
                np.testing.assert_array_equal(f(x).numpy(), expected)
                assert f(x).shape == expected.shape
            assert f.recompiles == 0


def test_no_elements_of_two_sizes() -> None:
    """A size in two symbols: what cannot be told from bounds alone goes through Python, and is right."""
    n, m = mo.Dim("n", 0, 8), mo.Dim("m", 0, 8)
    several = {"product": lambda x, y: (x[:, None] * y[None]).reshape(-1).max(),
               "difference": lambda x, y: mo.concat([x, y])[y.shape[0]:].max()}
    for name, function in several.items():
        f = mo.compile(function, dynamic={"x": {0: n}, "y": {0: m}})
        for rows, columns in ((3, 4), (1, 1), (2, 1)):
            for _ in range(2):
                assert f(mo.ones(rows), mo.ones(columns)).item() == 1, name
        with pytest.raises(ShapeError, match="turns out 0"):
            f(mo.ones(0), mo.ones(3))


def test_dynamic_sizes_inside_trees() -> None:
    """The declaration has the form of the argument."""
    n, m = mo.Dim("n", 1, 64), mo.Dim("m", 1, 64)

    @mo.compile(dynamic={"pair": ({0: n}, None), "named": {"w": {1: m}, "deep": [{0: n}]}, "x": {0: n}})
    def f(x: mo.Tensor, pair: tuple, named: dict) -> mo.Tensor:
        return (x + pair[0] + named["deep"][0]) @ mo.ones((3,)) * pair[1] + named["w"].sum()

    for rows, columns in ((2, 3), (7, 1), (1, 9)):
        x = mo.ones((rows, 3))
        found = f(x, (x, mo.asarray(2.0)), {"w": mo.ones((2, columns)), "deep": [x]})
        assert found.tolist() == [18.0 + 2 * columns] * rows
    assert f.recompiles == 0
    with pytest.raises(ArgumentError, match=r"axis 1 of named\['w'\] has size 65, outside 1\.\.64"):
        f(x, (x, mo.asarray(2.0)), {"w": mo.ones((2, 65)), "deep": [x]})
    with pytest.raises(ArgumentError, match=r"argument pair\[0\] has shape \(4, 3\)"):
        f(x, (mo.ones((4, 3)), mo.asarray(2.0)), {"w": mo.ones((2, 5)), "deep": [x]})


def test_dynamic_sizes_of_starred_parameters_and_named_tuples() -> None:
    class Pair(NamedTuple):
        left: mo.Tensor
        right: mo.Tensor

    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda *xs, **named: xs[0] + xs[1] + named["y"].left,
                   dynamic={"xs": [{0: n}, {0: n}], "named": {"y": {"left": {0: n}}}})
    for size in (3, 5):
        assert f(mo.ones(size), mo.ones(size), y=Pair(mo.ones(size), mo.ones(2))).tolist() == [3.0] * size
    assert f.recompiles == 0


@pytest.mark.parametrize(("form", "said"), [
    ({0: mo.Dim("n")}, "names axes of p, which is a tuple or list of 2.*same form"),
    (({0: mo.Dim("n")},), "has 2 parts and not 1"),
    ({5: {0: mo.Dim("n")}}, "has no 5"),
    (({0: mo.Dim("n")}, [None]), "has the form of a tree, but p.1. is a tensor"),
])
def test_declarations_of_another_form(form: object, said: str) -> None:
    f = mo.compile(lambda p: p[0] + p[1], dynamic={"p": form})
    with pytest.raises(ArgumentError, match=said):
        f((mo.ones(3), mo.ones(3)))


def test_a_dynamic_parameter_that_is_no_tensor() -> None:
    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda x, y=None: x if y is None else x + y, dynamic={"x": {0: n}, "y": {0: n}})
    assert f(mo.ones(3)).tolist() == [1, 1, 1] and f(mo.ones(2), mo.ones(2)).tolist() == [2, 2]
    with pytest.raises(ArgumentError, match="names sizes of y, which is 4 and no tensor"):
        f(mo.ones(3), 4)
    g = mo.compile(lambda x, y=None: x if y is None else x.sum() + y, dynamic={"x": {0: n * 2}, "y": {0: n}})
    assert g(mo.ones(6), mo.ones(3)).tolist() == [7, 7, 7]
    assert g(mo.ones(6)).tolist() == [1] * 6
    h = mo.compile(lambda x, y=None: x, dynamic={"x": {0: n * n}, "y": {0: n}})
    with pytest.raises(ArgumentError, match="does not tell what n is"):
        h(mo.ones(9))


def test_sizes_that_are_multiples() -> None:
    """The symbol is found from a multiple of it and a number; a size that is none is an error, on every way."""
    n = mo.Dim("n", 1, 64)
    f = mo.compile(lambda x: x.reshape(-1, 3).sum(axis=0) + x.shape[0], dynamic={"x": {0: 3 * n}})
    g = mo.compile(lambda x: x[1:] - x[:-1], dynamic={"x": {0: 2 * n + 1}})
    out = mo.zeros(3).realise()
    for size in (3, 6, 192, 6, 3):
        array = np.arange(size, dtype="f")
        expected = array.reshape(-1, 3).sum(axis=0) + size
        assert f(mo.asarray(array)).tolist() == expected.tolist()
        assert f(mo.asarray(array), out=out).tolist() == expected.tolist()
        assert g(mo.ones(size // 3 * 2 + 1)).shape == (size // 3 * 2,)
    assert f.recompiles == g.recompiles == 0 and f.native_calls > 5
    for size in (4, 5, 1):
        with pytest.raises(ArgumentError, match=rf"has size {size}, (which is 3\*n for no number n|outside 3..192)"):
            f(mo.ones(size))
    with pytest.raises(ArgumentError, match=r"has size 4, which is 1\+2\*n for no number n"):
        g(mo.ones(4))
    both = mo.compile(lambda x, y: x[: y.shape[0]] + y, dynamic={"x": {0: 2 * n}, "y": {0: n}})
    assert both(mo.ones(6), mo.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(ArgumentError, match="shape"):
        both(mo.ones(8), mo.ones(3))


def test_python_numbers_of_a_dynamic_size_are_refused() -> None:
    f = mo.compile(lambda x: x * len(range(x.shape[0])), dynamic={"x": {0: mo.Dim("n", 1, 8)}})
    with pytest.raises(MorphoError, match="known only when the compiled function runs"):
        f(mo.ones(3))


def test_a_size_as_a_number_in_the_program() -> None:
    f = mo.compile(lambda x: x * x.shape[0] + x.size, dynamic={"x": {0: mo.Dim("n", 1, 8)}})
    for size in (1, 3, 8):
        assert f(mo.ones(size)).tolist() == [2 * size] * size
    assert f.recompiles == 0


def test_strided_arguments_with_dynamic_sizes() -> None:
    f = mo.compile(lambda x: x * 2 + 1, dynamic={"x": {0: mo.Dim("n", 0, 64)}})
    base = np.arange(400, dtype=np.float32).reshape(20, 20)
    for array in (base[:7], base[:9, ::2], base[::3, ::2], base[:5].T, base[::-1], base[:1, ::2]):
        np.testing.assert_array_equal(f(mo.asarray(array)).numpy(), array * 2 + 1)


def test_the_reference_backend_with_dynamic_sizes() -> None:
    f = mo.compile(lambda x: mo.softmax(x, axis=0).sum(axis=1) + x.shape[0], dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    for rows in (3, 9):
        x = numbers(rows, 5)
        with mo.settings(device="reference"):
            expected = f(x).numpy()
        np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-5)


def test_dynamic_state_and_several_results() -> None:
    total = mo.State(mo.zeros(4))

    @mo.compile(dynamic={"x": {0: mo.Dim("n", 0, 100)}})
    def step(x: mo.Tensor) -> tuple[mo.Tensor, mo.Tensor]:
        total.value = total.value + x.sum(axis=0)
        return x * 2, total.value.max()

    seen = np.zeros(4, np.float32)
    for rows in (3, 0, 50, 1):
        x = np.ones((rows, 4), np.float32)
        doubled, most = step(mo.asarray(x))
        seen += rows
        assert doubled.shape == (rows, 4) and most.item() == seen.max()
    assert total.version == 4 and step.recompiles == 0


def test_sizes_among_the_results_are_numbers() -> None:
    n = mo.Dim("n", 1, 64)
    sizes = mo.compile(lambda x: {"x": (x + 1, [x.shape[0], x.shape]), "twice": 2 * x.shape[0]}, dynamic={"x": {0: n}})
    for count in (4, 5, 4):
        found = sizes(mo.ones((count, 3)))
        assert found["x"][1] == [count, (count, 3)] and type(found["x"][1][0]) is int
        assert found["twice"] == 2 * count and found["x"][0].shape == (count, 3)
    assert sizes.recompiles == 0
    alone = mo.compile(lambda x: x.shape[0], dynamic={"x": {0: n}})
    assert [alone(mo.ones(count)) for count in (3, 9, 3)] == [3, 9, 3]
    with mo.settings(device="reference"):
        assert sizes(mo.ones((2, 3)))["twice"] == 4


@pytest.mark.parametrize("make", [lambda n: mo.zeros(n), lambda n: mo.ones((2, n)), mo.arange,
                                  lambda n: mo.zeros(n).sum(), lambda n: mo.eye(n)])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_dynamic_size_has_no_value_outside(make: Any, backend: str) -> None:
    with mo.settings(device=backend), pytest.raises(ArgumentError, match="only while a compiled function runs"):
        make(mo.Dim("n", 1, 64)).numpy()


def test_sizes_with_terms_of_both_signs() -> None:
    """(T - 1) * B is T * B - B, each term of which alone could make it negative."""
    rows, length = mo.Dim("rows", 1, 16), mo.Dim("length", 2, 64)
    x, w = mo.asarray(np.arange(70.0).reshape(2, 7, 5)), mo.ones((5, 3), dtype="float64")
    for f in (lambda x: x[:, :-1].reshape(-1, 5) @ w, lambda x: mo.diff(x, axis=1).reshape(-1),
              lambda x: mo.repeat(x[:, :-1], 2), lambda x: mo.argmax(x[:, :-1]),
              lambda x: mo.grad(lambda w: (x[:, :-1] @ w).sum())(w)):
        found = mo.compile(f, dynamic={"x": {0: rows, 1: length}})(x)
        np.testing.assert_array_equal(found.numpy(), f(x).numpy())
