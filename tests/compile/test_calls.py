"""`mo.compile`: what may be passed, what comes back, and what is said when a call is wrong."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, CompileError, ShapeError


class Pair(NamedTuple):
    """A named tuple as argument and as result."""

    left: Any
    right: Any


def vector(*numbers: float) -> mo.Tensor:
    """A float32 tensor with memory of its own."""
    return mo.asarray(np.array(numbers, np.float32), copy=True)


X = np.linspace(-3, 3, 96, dtype=np.float32).reshape(8, 12)
FUNCTIONS = {
    "elementwise": lambda x: mo.gelu(x * 2 + 1) - mo.tanh(x),
    "reduction": lambda x: mo.exp(x).sum(axis=-1),
    "softmax": lambda x: mo.softmax(x, axis=-1),
    "product": lambda x: x @ x.T + 1,
    "views": lambda x: x[1:7:2, ::-1].T * 2,
    "joined": lambda x: mo.concat([x, -x], axis=1).sum(axis=0),
    "several": lambda x: mo.sqrt(mo.abs(x)).mean() + mo.max(x) * mo.min(x),
    "gather": lambda x: x[mo.asarray([3, 0, -1])],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_as_lazily(name: str) -> None:
    function = FUNCTIONS[name]
    expected = function(mo.asarray(X)).numpy()
    np.testing.assert_array_equal(mo.compile(function)(mo.asarray(X)).numpy(), expected)


def test_structures_of_results() -> None:
    def everything(x: mo.Tensor) -> Any:
        return {"a": (x + 1, [x * 2]), "p": Pair(x, -x), "n": 3, "none": None, "empty": ()}

    found = mo.compile(everything)(vector(1, 2))
    assert list(found) == ["a", "p", "n", "none", "empty"]
    assert isinstance(found["a"], tuple) and isinstance(found["a"][1], list) and isinstance(found["p"], Pair)
    assert (found["n"], found["none"], found["empty"]) == (3, None, ())
    assert found["a"][0].tolist() == [2, 3] and found["a"][1][0].tolist() == [2, 4]
    assert found["p"].left.tolist() == [1, 2] and found["p"].right.tolist() == [-1, -2]


def test_structures_of_arguments() -> None:
    @mo.compile
    def total(tree: Any, *more: mo.Tensor, scale: float = 1.0, **named: mo.Tensor) -> mo.Tensor:
        result = tree["x"] + tree["pair"].left * tree["pair"].right + tree["list"][0]
        for item in more:
            result = result + item
        for item in named.values():
            result = result - item
        return result * scale

    tree = {"x": vector(1, 2), "pair": Pair(vector(3, 4), vector(5, 6)), "list": [vector(10, 20)]}
    assert total(tree).tolist() == [26, 46]
    assert total(tree, vector(1, 1), vector(1, 1)).tolist() == [28, 48]
    assert total(tree, scale=2.0, other=vector(1, 1)).tolist() == [50, 90]
    assert total.recompiles == 2


def test_the_same_tensor_as_several_results_and_a_result_that_is_an_argument() -> None:
    first, second, third = mo.compile(lambda x: (y := x + 1, y, x))(vector(1, 2))
    assert first.tolist() == second.tolist() == [2, 3] and third.tolist() == [1, 2]
    assert len({t.numpy().ctypes.data for t in (first, second, third)}) == 3


def test_keywords_defaults_and_order() -> None:
    f = mo.compile(lambda a, b=2, *, c=1: a * b - c)
    x = vector(1, 2)
    assert f(x).tolist() == [1, 3]
    assert f(b=x, a=x).tolist() == [0, 3]
    assert f(x, 3).tolist() == [2, 5]
    assert f(x, c=x).tolist() == [1, 2]


def test_decorator_with_and_without_options() -> None:
    @mo.compile
    def plain(x: mo.Tensor) -> mo.Tensor:
        """Adds one."""
        return x + 1

    @mo.compile(whole=True)
    def whole(x: mo.Tensor) -> mo.Tensor:
        return x + 2

    assert (plain.__name__, plain.__doc__) == ("plain", "Adds one.")
    assert "plain" in repr(plain)
    assert plain(vector(1)).tolist() == [2] and whole(vector(1)).tolist() == [3]


def test_methods() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @mo.compile
        def apply(self, x: mo.Tensor) -> mo.Tensor:
            return x * self.factor

    two, three = Scale(2.0), Scale(3.0)
    target = mo.empty(2)
    assert two.apply(vector(1, 2)).tolist() == [2, 4]
    assert three.apply(vector(1, 2)).tolist() == [3, 6]
    assert two.apply(vector(1, 2), out=target) is target and target.tolist() == [2, 4]
    assert three.apply(vector(1, 2), out=target) is target and target.tolist() == [3, 6]
    assert two.apply.recompiles == 1
    assert len(two.apply.measure(vector(1, 2), repeats=1)["measured_s"]) == 1


def test_python_numbers_that_are_asked_for_are_constants_of_the_code(caplog: pytest.LogCaptureFixture) -> None:
    f = mo.compile(lambda x, k: x * int(k))
    x = vector(1, 2)
    with caplog.at_level(logging.WARNING, "morpho"):
        for k in range(12):
            assert f(x, k).tolist() == [k, 2 * k]
            assert f(x, k).tolist() == [k, 2 * k]
    assert f.recompiles == 11
    assert len([r for r in caplog.records if "the number k changes" in r.getMessage()]) == 1


def test_numbers_that_are_equal_and_not_the_same() -> None:
    f = mo.compile(lambda x, k: x * k)
    x = vector(1, 2)
    assert not np.signbit(f(x, 0.0).numpy()).any()
    assert np.signbit(f(x, -0.0).numpy()).all()
    ints = mo.asarray(np.array([3, 4], np.int32))
    assert f(ints, 1).dtype is mo.int32 and f(ints, True).dtype is mo.int32 and f(ints, 1.0).dtype is mo.float32
    before = f.recompiles
    for _ in range(3):
        assert np.isnan(f(x, float("nan")).numpy()).all()
    assert f.recompiles == before  # the program of 0.0 and -0.0


def test_numpy_arguments_and_strided_ones() -> None:
    f = mo.compile(lambda a, b: a - b)
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (base, base.T, base[::2, ::-1], base[:, 1:5:3], np.broadcast_to(base[0], (4, 6)), base[:0]):
        want = array - np.ones_like(array)
        np.testing.assert_array_equal(f(array, np.ones_like(array)).numpy(), want)
        np.testing.assert_array_equal(f(mo.asarray(array), mo.ones(array.shape)).numpy(), want)
    view = mo.asarray(base)[1:3, 2:]
    np.testing.assert_array_equal(f(view, view * 0).numpy(), base[1:3, 2:])


def test_lazy_arguments_are_computed_first() -> None:
    f = mo.compile(lambda a: a * 2)
    x = vector(1, 2) + 1
    assert f(x).tolist() == [4, 6] and x.is_realised


WRONG_CALLS = [
    ((), {}, "missing a required argument: 'a'"),
    ((1.0,), {}, "missing a required argument: 'b'"),
    ((1.0, 2.0, 3.0), {}, "too many positional arguments"),
    ((1.0, 2.0), {"c": 3}, "there is no argument 'c'"),
    ((1.0,), {"c": 3}, "there is no argument 'c'"),
    ((1.0, 2.0), {"a": 3}, "multiple values for argument 'a'"),
]


@pytest.mark.parametrize(("arguments", "named", "said"), WRONG_CALLS)
@pytest.mark.parametrize("warm", [False, True])
def test_wrong_calls(arguments: tuple[float, ...], named: dict[str, Any], said: str, warm: bool) -> None:
    f = mo.compile(lambda a, b: a + b)
    if warm:
        f(vector(1), vector(2), out=mo.empty(1))
    tensors = [vector(number) for number in arguments]
    with pytest.raises(ArgumentError, match=said) as caught:
        f(*tensors, **named)
    message = str(caught.value)
    assert "takes (a, b)" in message and "test_calls.py:" in message and isinstance(caught.value, TypeError)
    assert f(vector(1), vector(2)).tolist() == [3]


def test_an_argument_that_cannot_be_a_key() -> None:
    f = mo.compile(lambda x, options: x)
    with pytest.raises(ArgumentError, match="neither a tensor nor hashable"):
        f(vector(1), {1, 2})
    assert f(vector(1), "text").tolist() == [1]


def test_an_argument_that_cannot_be_a_key_is_named() -> None:
    f = mo.compile(lambda x, options: x)
    for given, said in (({1, 2}, "options, of type set,"),
                        ({"a": (1, bytearray())}, r"options\['a'\]\[1\], of type bytearray,"),
                        (Pair(1, [{3}]), r"options\['right'\]\[0\], of type set,")):
        with pytest.raises(ArgumentError, match=f"{said} is neither a tensor nor hashable"):
            f(vector(1), given)


def test_out_of_another_structure_shows_both() -> None:
    f = mo.compile(lambda x: {"a": x, "b": [x + 1, 3]})
    with pytest.raises(ArgumentError, match=r"result: it is \(\*, \*\), the result {'a': \*, 'b': \[\*, 3\]}"):
        f(vector(1), out=(mo.empty(1), mo.empty(1)))


def test_out_inside_another_function() -> None:
    inner = mo.compile(lambda x: x + 1)
    with pytest.raises(ArgumentError, match="out= is given to a compiled function inside another one's trace"):
        mo.compile(lambda x: inner(x, out=mo.empty(2)))(vector(1, 2))
    assert mo.compile(lambda x: inner(x))(vector(1, 2), out=mo.empty(2)).tolist() == [2, 3]


def test_a_mismatch_of_dynamic_sizes_names_the_parameter() -> None:
    n = mo.Dim("n", 1, 8)
    f = mo.compile(lambda a, pair, c: a.sum() + pair[0] + c.sum(),
                   dynamic={"a": {0: n}, "pair": (None, {0: n}), "c": {0: n}})
    scalar = vector(1).sum()
    with pytest.raises(ArgumentError, match=r"argument c has shape \(3,\)"):
        f(vector(1, 2), (scalar, vector(1, 2)), vector(1, 2, 3))


def test_compile_refuses_what_is_not_a_function() -> None:
    with pytest.raises(ArgumentError, match="is not a function"):
        mo.compile(3)  # type: ignore[arg-type]


ASKING = {
    "if": lambda x: x if x.sum() > 0 else -x,
    "item": lambda x: x * x.sum().item(),
    "numpy": lambda x: mo.asarray(x.numpy()),
    "float": lambda x: x * float(x[0]),
}


@pytest.mark.parametrize("name", ASKING)
def test_asking_for_a_value_inside(name: str) -> None:
    f = mo.compile(ASKING[name])
    for _ in range(2):
        with pytest.raises(CompileError, match=r"mo\.where"):
            f(vector(1, 2))
    assert (vector(1, 2) + 1).tolist() == [2, 3]  # no trace is left behind
    assert mo.compile(lambda x: x + 1)(vector(1)).tolist() == [2]


def test_a_traced_tensor_prints_without_a_value() -> None:
    seen = []
    mo.compile(lambda x: seen.append(repr(x + 1)) or x)(vector(1, 2))
    assert seen == ["Tensor(shape=(2,), dtype=float32, traced)"]


def test_exceptions_of_the_function_itself() -> None:
    armed = [True]

    @mo.compile
    def f(x: mo.Tensor) -> mo.Tensor:
        y = x + 1
        if armed[0]:
            raise KeyError("mine")
        return y

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            f(vector(1))
    assert f.stats["specialisations"] == 0
    armed[0] = False
    assert f(vector(1)).tolist() == [2]


def test_errors_of_operations_name_the_line_inside() -> None:
    f = mo.compile(lambda a, b: a @ b)
    with pytest.raises(ShapeError, match=r"\[matmul\].*test_calls.py:"):
        f(mo.ones((2, 3)), mo.ones((2, 3)))


def test_whole_refuses_host_steps() -> None:
    plain = mo.compile(lambda x: mo.real(mo.linalg.eigvals(mo.diag(x))) + 1)
    assert plain(mo.ones(0)).tolist() == []  # matrices without elements are NumPy's
    assert plain.stats["host_steps"] == 1 and "host" in plain.explain()
    strict = mo.compile(lambda x: mo.linalg.eigvals(mo.diag(x)) + 1, whole=True)
    with pytest.raises(CompileError, match=r"eigvals runs on the host.*test_calls.py:.*whole=True"):
        strict(mo.ones(0))


def test_captured_tensors_are_inputs() -> None:
    weight = vector(1, 1)
    f = mo.compile(lambda x: x + weight)
    assert f(vector(1, 2)).tolist() == [2, 3]
    weight[0] = 100.0
    assert f(vector(1, 2)).tolist() == [101, 3]
    mo.compile(lambda x: x * 5)(vector(1, 2), out=weight)
    assert f(vector(1, 2)).tolist() == [6, 12]
    assert f.recompiles == 0


def test_captured_expressions_keep_their_value() -> None:
    weight = vector(1, 1)
    double = weight * 2  # not computed yet
    f = mo.compile(lambda x: x + double + weight)
    assert f(vector(0, 0)).tolist() == [3, 3]
    weight[0] = 10.0
    assert f(vector(0, 0)).tolist() == [12, 3]
    assert double.tolist() == [2, 2]


def test_a_captured_view_that_becomes_contiguous() -> None:
    weight = mo.asarray(np.arange(6, dtype=np.float32), copy=True)[::2].realise()
    f = mo.compile(lambda x: x + weight)
    assert f(mo.zeros(3)).tolist() == [0, 2, 4]
    weight[1] = 9.0
    assert f(mo.zeros(3)).tolist() == [0, 9, 4]


def test_captured_numpy_memory_is_read_at_every_call() -> None:
    array = np.ones(2, np.float32)
    f = mo.compile(lambda x: x + array)
    assert f(mo.zeros(2)).tolist() == [1, 1]
    array[0] = 5
    assert f(mo.zeros(2)).tolist() == [5, 1]


def test_compiled_functions_inside_each_other() -> None:
    inner = mo.compile(lambda x: mo.exp(x) + 1)
    outer = mo.compile(lambda x: inner(x) * inner(x + 1))
    x = vector(0, 1)
    np.testing.assert_array_equal(outer(x).numpy(), ((mo.exp(x) + 1) * (mo.exp(x + 1) + 1)).numpy())
    assert outer.stats["kernels"] == 1 and inner.calls == 0
    assert inner(x).shape == (2,)


def test_constants_and_functions_without_arguments() -> None:
    assert mo.compile(lambda: mo.arange(4) * 2)().tolist() == [0, 2, 4, 6]
    assert mo.compile(lambda x: 7)(vector(1)) == 7
    assert mo.compile(lambda x: mo.zeros(3))(vector(1)).tolist() == [0, 0, 0]


def test_dtypes_and_shapes_are_separate_specialisations() -> None:
    f = mo.compile(lambda x: x + 1)
    for dtype in (mo.float32, mo.float64, mo.int8, mo.float16, mo.bfloat16, mo.bool):
        if dtype is not mo.bool:
            assert f(mo.ones(3, dtype=dtype)).dtype is dtype
    for shape in ((), (0,), (1,), (2, 3), (1, 1, 1, 2)):
        assert f(mo.zeros(shape)).shape == shape
    assert f.recompiles == 4 + 5  # float32[3] was the first


def test_levels_and_the_reference_backend_in_one_function() -> None:
    f = mo.compile(lambda a, b: mo.gelu(a * b + 1).sum(axis=-1))
    x = mo.asarray(X)
    expected = f(x, x).numpy()
    target = mo.empty(8)
    for level in range(4):
        with mo.settings(level=level):
            np.testing.assert_array_equal(f(x, x).numpy(), expected)
            np.testing.assert_array_equal(f(x, x, out=target).numpy(), expected)
    native = f.native_calls
    with mo.settings(device="reference"):
        np.testing.assert_allclose(f(x, x, out=target).numpy(), expected, rtol=1e-5)
        np.testing.assert_allclose(f(x, x).numpy(), expected, rtol=1e-5)
    assert f.native_calls == native  # a setting holds for the native entry too


class Doubler:
    """An object that is a constant of the compiled code, as modules and optimisers are."""

    factor = 2.0

    @mo.compile
    def scaled(self, x: mo.Tensor) -> mo.Tensor:
        return x * self.factor


def test_objects_among_the_arguments_are_known_by_identity() -> None:
    f = mo.compile(lambda model, x, kind="a", y=None: x * model.factor + (1 if kind == "a" else 2)
                   + (0 if y is None else y))
    one, other, x = Doubler(), Doubler(), mo.asarray([1.0, 2.0])
    other.factor = 3.0
    f(one, x)
    before = f.native_calls
    for _ in range(3):
        assert f(one, x).tolist() == [3, 5]
    assert f.native_calls == before + 3
    assert f(other, x).tolist() == [4, 7] and f.native_calls == before + 3
    assert f(one, x).tolist() == [3, 5] and f.native_calls == before + 4
    assert f(one, x, "b").tolist() == [4, 6] and f(one, x, "b", x).tolist() == [5, 8]
    before = f.native_calls
    out = mo.empty(2)
    assert f(one, x, "b", x).tolist() == [5, 8] and f(one, x, "b", x, out=out) is out and out.tolist() == [5, 8]
    assert f.native_calls == before + 2
    assert f(one, x, y=x, kind="b").tolist() == [5, 8] and f.native_calls == before + 3
    assert f(x=x, model=one).tolist() == [3, 5] and f.native_calls == before + 4  # the first program again


def test_a_method_is_served_natively() -> None:
    one, x = Doubler(), mo.asarray([1.0, 2.0])
    one.scaled(x)
    before = Doubler.scaled.native_calls
    assert one.scaled(x).tolist() == [2, 4] and Doubler.scaled.native_calls == before + 1


def test_lists_and_numbers_among_the_arguments() -> None:
    """A list may change and is looked at by every call; a number may be another object of the same value."""
    f = mo.compile(lambda sizes, x, scale: x * scale + len(sizes))
    sizes, x = [1, 2], mo.asarray([1.0])
    assert f(sizes, x, 0.5).tolist() == [2.5]
    sizes.append(3)
    assert f(sizes, x, 0.5).tolist() == [3.5] and f.native_calls == 0
    g = mo.compile(lambda x, scale: x * scale)
    for value in (0.5, float("0.5"), 0.25, -0.0, 0.0):
        assert g(x, value).tolist() == [value] and np.signbit(g(x, value).numpy())[0] == np.signbit(value)
    assert g.recompiles == 1  # 0.25 made scale an input


class Foreign:
    """An array of another library, which knows DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**(options if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else {}))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()


def test_arrays_of_other_libraries_are_arguments_not_constants() -> None:
    f = mo.compile(lambda a, d: mo.exp(a) + d["b"][0])
    for value in range(3):
        array = np.full(4, value, np.float32)
        for given in (Foreign(array), memoryview(array), array):
            assert np.allclose(f(given, {"b": [Foreign(array)]}).numpy(), np.exp(array) + array)
    assert f.stats["recompiles"] == 0
    with pytest.raises(ArgumentError, match="out= is an array of another library"):
        f(array, {"b": [array]}, out=Foreign(array))
