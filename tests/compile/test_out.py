"""`out=`: results in memory the caller owns, through the native entry, and every target that must be refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, SharedError

N = 37


def own(array: np.ndarray) -> mo.Tensor:
    """A tensor with memory of its own."""
    return mo.asarray(array, copy=True)


@pytest.fixture
def a() -> mo.Tensor:
    return own(np.arange(N, dtype=np.float32))


@pytest.fixture
def b() -> mo.Tensor:
    return own(np.full(N, 2, np.float32))


def test_the_native_entry_serves_it(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x * y + 1)
    target = mo.empty(N)
    pointer = target.numpy().ctypes.data
    assert f(a, b, out=target) is target  # compiles
    for count in range(1, 4):
        assert f(a, b, out=target) is target
        assert f.native_calls == count
    np.testing.assert_array_equal(target.numpy(), np.arange(N) * 2 + 1)
    assert target.numpy().ctypes.data == pointer
    assert f.calls == 4 and f.stats["native_calls"] == 3


@pytest.mark.parametrize("arrays", [
    (np.float32, (N,)), (np.float64, (3, 5)), (np.int8, (4,)), (np.uint16, (2, 2, 2)), (np.int64, ()),
    (np.float16, (9,)), (np.bool_, (3,))])
def test_every_kind_of_target(arrays: tuple[type, tuple[int, ...]]) -> None:
    kind, shape = arrays
    f = mo.compile(lambda x, y: x * y if x.dtype is not mo.bool else x & y)
    x = own(np.ones(shape, kind))
    target = mo.empty(shape, dtype=x.dtype)
    for _ in range(2):
        assert f(x, x, out=target) is target
    np.testing.assert_array_equal(target.numpy(), np.ones(shape, kind))
    assert f.native_calls == 1


def test_numpy_arguments_meet_the_same_code(a: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    target = mo.empty(N)
    for _ in range(2):
        assert f(np.ones(N, np.float32), a, out=target) is target
    np.testing.assert_array_equal(target.numpy(), np.arange(N) + 1)
    assert f.native_calls == 1  # the first compiles


def test_changing_shapes_dtypes_and_strides_are_noticed(a: mo.Tensor) -> None:
    f = mo.compile(lambda x: x * 2)
    cases = [own(np.arange(6, dtype=np.float32).reshape(shape)) for shape in ((6,), (2, 3), (3, 2), (1, 6))]
    cases += [own(np.arange(6, dtype=np.float64)), own(np.arange(6, dtype=np.int32)),
              own(np.arange(12, dtype=np.float32))[::2].realise(),
              own(np.arange(6, dtype=np.float32).reshape(2, 3)).T.realise()]
    for _ in range(3):
        for x in cases:
            target = mo.empty(x.shape, dtype=x.dtype)
            assert f(x, out=target) is target
            np.testing.assert_array_equal(target.numpy(), x.numpy() * 2)
            again = mo.empty(x.shape, dtype=x.dtype)
            f(x, out=again)
            np.testing.assert_array_equal(again.numpy(), x.numpy() * 2)
    assert f.recompiles == len(cases) - 1


Refusal = Callable[[mo.Tensor], tuple[object, object]]


def _viewed(a: mo.Tensor) -> tuple[object, object]:
    target = mo.empty(2 * N)
    return target[:N].realise(), target


def _exported(a: mo.Tensor) -> tuple[object, object]:
    target = mo.empty(N)
    return target, target.numpy()


def _pending(a: mo.Tensor) -> tuple[object, object]:
    target = own(np.zeros(N, np.float32))
    with mo.settings(record=False):  # a program of nodes, which anybody may hold; what is recorded is computed first
        return target, target + 1


def _exchanged(a: mo.Tensor) -> tuple[object, object]:
    target = mo.empty(N)
    return target, target.__dlpack__(max_version=(1, 0))  # as NumPy asks for it since 2.1; before, it gets a copy


REFUSED: dict[str, tuple[Refusal, type[Exception], str]] = {
    "shape": (lambda a: (mo.empty(N + 1), None), ArgumentError, r"float32\(38,\), the result is float32\(37,\)"),
    "rank": (lambda a: (mo.empty((1, N)), None), ArgumentError, "the result is"),
    "dtype": (lambda a: (mo.empty(N, dtype=mo.float64), None), ArgumentError, "out= is float64"),
    "strides": (lambda a: (own(np.zeros(2 * N, np.float32))[::2].realise(), None), ArgumentError, "not contiguous"),
    "borrowed": (lambda a: (mo.asarray(np.zeros(N, np.float32)), None), SharedError, "borrowed memory"),
    "viewed": (_viewed, SharedError, "shares its memory"),
    "pending": (_pending, SharedError, "shares its memory"),
    "exported": (_exported, SharedError, "shares its memory"),
    "dlpack": (_exchanged, SharedError, "shares its memory"),
    "array": (lambda a: (np.zeros(N, np.float32), None), ArgumentError, "NumPy array.*use out=mo.empty"),
    "number": (lambda a: (3, None), ArgumentError, "structure of the result"),
    "several": (lambda a: ((mo.empty(N), mo.empty(N)), None), ArgumentError, "structure of the result"),
}


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_one_tensor_twice_is_refused(backend: str, a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: (x + y, x - y))
    target = mo.full((N,), 7.0).realise()
    with mo.settings(device=backend):
        for _ in range(2):
            with pytest.raises(SharedError, match="shares its memory"):
                f(a, b, out=(target, target))
    assert target.tolist() == [7.0] * N


def test_a_target_that_is_an_input_on_the_reference_backend(b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    target = mo.full((N,), 7.0).realise()
    with mo.settings(device="reference"):
        assert f(target, b, out=target) is target
    np.testing.assert_array_equal(target.numpy(), b.numpy() + 7)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("warm", [False, True])
def test_targets_that_are_refused(name: str, warm: bool, a: mo.Tensor, b: mo.Tensor) -> None:
    make, kind, said = REFUSED[name]
    f = mo.compile(lambda x, y: x + y)
    if warm:
        for _ in range(2):
            f(a, b, out=mo.empty(N))
    target, keep = make(a)
    before = keep.copy() if isinstance(keep, np.ndarray) else None
    with pytest.raises(kind, match=said) as caught:
        f(a, b, out=target)
    assert "test_out.py:" in str(caught.value)
    if before is not None:
        np.testing.assert_array_equal(keep, before)
    if name == "pending":
        np.testing.assert_array_equal(keep.numpy(), np.ones(N))
    good = mo.empty(N)
    assert f(a, b, out=good) is good
    np.testing.assert_array_equal(good.numpy(), np.arange(N) + 2)


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_recorded_of_a_target_is_computed_before_it_is_written(warm: bool, a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    if warm:
        for _ in range(2):
            f(a, b, out=mo.empty(N))
    target = own(np.zeros(N, np.float32))
    pending = target + 1
    assert not pending.is_realised and f(a, b, out=target) is target
    np.testing.assert_array_equal(target.numpy(), np.arange(N) + 2)
    np.testing.assert_array_equal(pending.numpy(), np.ones(N))


def test_a_target_is_free_again_when_the_others_are_gone(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    target = own(np.zeros(N, np.float32))
    pending, view = target + 1, target[3:].realise()
    assert pending.numpy()[0] == 1
    for _ in range(2):
        with pytest.raises(SharedError):
            f(a, b, out=target)
    del pending, view
    assert f(a, b, out=target) is target


def test_an_input_as_target(a: mo.Tensor, b: mo.Tensor) -> None:
    elementwise = mo.compile(lambda x, y: x * y + 1)
    for _ in range(3):
        assert elementwise(a, b, out=a) is a
    np.testing.assert_array_equal(a.numpy(), ((np.arange(N, dtype=np.float32) * 2 + 1) * 2 + 1) * 2 + 1)
    assert elementwise.native_calls == 2


@pytest.mark.parametrize("name", ["flip", "shift", "prefix", "product", "softmax", "columns", "twice"])
def test_an_input_as_target_where_order_matters(name: str) -> None:
    functions = {
        "flip": lambda x: x[::-1] + 1,
        "shift": lambda x: mo.concat([x[1:], x[:1]]),
        "prefix": lambda x: mo.cumulative_sum(x, axis=0),
        "product": lambda x: x @ x,
        "softmax": lambda x: mo.softmax(x, axis=0) + x[::-1],
        "columns": lambda x: x.T * x,
        "twice": lambda x: (x - x.sum(axis=0)) / (1 + x.max(axis=1, keepdims=True)),
    }
    f = mo.compile(functions[name])
    array = np.random.default_rng(3).random((24, 24), np.float32)
    expected = functions[name](mo.asarray(array)).numpy()
    for _ in range(3):
        x = own(array)
        assert f(x, out=x) is x
        np.testing.assert_array_equal(x.numpy(), expected)


def test_several_targets(a: mo.Tensor) -> None:
    f = mo.compile(lambda x: {"sum": x.sum(), "pair": (x + 1, x * 2)})
    targets = {"sum": mo.empty(()), "pair": (mo.empty(N), mo.empty(N))}
    found = f(a, out=targets)
    assert found["sum"] is targets["sum"] and found["pair"][1] is targets["pair"][1]
    np.testing.assert_array_equal(found["pair"][1].numpy(), np.arange(N) * 2)
    same = mo.empty(N)
    with pytest.raises(SharedError):
        f(a, out={"sum": mo.empty(()), "pair": (same, same)})


def test_a_constant_is_not_changed_through_a_target(a: mo.Tensor, b: mo.Tensor) -> None:
    """Equal programs are one node: a tensor that holds a node's value may not change it for the others."""
    f = mo.compile(lambda x, y: x + y)
    target, other = mo.zeros(N).realise(), mo.zeros(N).realise()
    for _ in range(3):
        f(a, b, out=target)
    assert not mo.zeros(N).numpy().any() and not other.numpy().any()
    made = (a * 3).realise()
    for _ in range(3):
        f(a, b, out=made)
    np.testing.assert_array_equal((a * 3).numpy(), np.arange(N) * 3)


def test_programs_built_before_keep_the_old_value(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    first = a * 3
    pending = first + 1
    first.numpy()
    for _ in range(3):
        f(a, b, out=first)
    np.testing.assert_array_equal(pending.numpy(), np.arange(N) * 3 + 1)
    np.testing.assert_array_equal(first.numpy(), np.arange(N) + 2)


def test_copies_have_memory_of_their_own(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    first, second = mo.asarray(a, copy=True), mo.asarray(a, copy=True)
    f(a, b, out=first)
    np.testing.assert_array_equal(second.numpy(), np.arange(N))


def test_static_numbers_and_the_native_entry(a: mo.Tensor) -> None:
    f = mo.compile(lambda x, k=2: x * k)
    target = mo.empty(N)
    f(a)
    f(a, k=3)
    f(a, out=target)
    np.testing.assert_array_equal(target.numpy(), np.arange(N) * 2)
    f(a, 3, out=target)
    np.testing.assert_array_equal(target.numpy(), np.arange(N) * 3)
    f(a, out=target)
    np.testing.assert_array_equal(target.numpy(), np.arange(N) * 2)
    assert f.recompiles == 1
    f(a, out=target)
    assert f.native_calls >= 1


def test_keyword_only_tensors_stay_keyword_only(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, *, y: x + y)
    f(a, y=b)
    with pytest.raises(ArgumentError, match="too many positional"):
        f(a, b, out=mo.empty(N))
    target = mo.empty(N)
    assert f(a, y=b, out=target) is target
    middle = mo.compile(lambda x, k=2, y=None: x * k if y is None else x * k + y)
    middle(a, y=b)
    with pytest.raises(Exception, match=r"out=|takes|broadcast|structure"):
        middle(a, 3, b, b, out=mo.empty(N))
    np.testing.assert_array_equal(middle(a, b, out=target).numpy(), np.arange(N) * 2)  # b is k here
    np.testing.assert_array_equal(middle(a, y=b, out=target).numpy(), np.arange(N) * 2 + 2)


def test_a_parameter_called_out_is_the_functions_own(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, out=None: x * 2 if out is None else x * out + 1)
    for _ in range(2):
        f(a)
        found = f(a, out=b)
        assert found is not b
        np.testing.assert_array_equal(found.numpy(), np.arange(N) * 2 + 1)
        np.testing.assert_array_equal(b.numpy(), np.full(N, 2))


def test_subclasses_and_foreign_objects_do_not_fool_the_entry(a: mo.Tensor, b: mo.Tensor) -> None:
    f = mo.compile(lambda x, y: x + y)
    target = mo.empty(N)
    f(a, b, out=target)
    for wrong in (None, "text", object(), [1, 2], f):
        with pytest.raises((TypeError, ValueError)):
            f(a, wrong, out=target)
        with pytest.raises(ArgumentError):
            f(a, b, out=wrong if wrong is not None else "none")
    assert f(a, b, out=None) is not target
    lazy = a + 1
    assert f(lazy, b, out=target) is target
    np.testing.assert_array_equal(target.numpy(), np.arange(N) + 3)


def test_a_tuple_of_targets(a: mo.Tensor) -> None:
    f = mo.compile(lambda x: (x + 1, x * 2))
    first, second = mo.empty(N), mo.empty(N)
    for _ in range(3):
        found = f(a, out=(first, second))
        assert type(found) is tuple and found[0] is first and found[1] is second
        np.testing.assert_array_equal(first.numpy(), np.arange(N) + 1)
        np.testing.assert_array_equal(second.numpy(), np.arange(N) * 2)
    assert f.native_calls >= 2
    with pytest.raises(SharedError):
        f(a, out=(first, first))
    for wrong in ([first, second], (first,), (first, second, mo.empty(N)), first, (first, None), (first, 3)):
        with pytest.raises(ArgumentError, match="structure of the result"):
            f(a, out=wrong)
    for targets in ((a, second), (first, a)):
        old = a.numpy(copy=True)
        plus, double = f(a, out=targets)
        np.testing.assert_array_equal(plus.numpy(), old + 1)
        np.testing.assert_array_equal(double.numpy(), old * 2)


def test_results_without_targets_are_new_each_time(a: mo.Tensor) -> None:
    """Whichever way a call takes, its results are the caller's alone."""
    f = mo.compile(lambda x, k=2: (x * k, x + k))
    found = [f(a) for _ in range(4)] + [f(a, 3)] + [f(a) for _ in range(2)]
    for number, (product, total) in enumerate(found):
        k = 3 if number == 4 else 2
        np.testing.assert_array_equal(product.numpy(), np.arange(N) * k)
        np.testing.assert_array_equal(total.numpy(), np.arange(N) + k)
    assert len({t.numpy().ctypes.data for pair in found for t in pair}) == 14
    for product, _ in found:
        mo.compile(lambda x: x - 1)(a, out=product)
    np.testing.assert_array_equal(f(a)[0].numpy(), np.arange(N) * 2)
