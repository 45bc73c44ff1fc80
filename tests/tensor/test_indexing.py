"""Indexing against NumPy: every kind of key, reading and writing; and value semantics, masks, faults."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import morpho as mo
from morpho.runtime.plans import evaluate
from morpho.tensor.functions.indexing import index

SHAPES = [(), (5,), (0,), (3, 4), (2, 3, 4), (2, 0, 3), (1, 4, 1)]


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """A key NumPy takes too: integers, slices, None, ellipsis, integer arrays of shapes that broadcast, masks."""
    common = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0,)]))
    items: list[Any] = []
    axis, dots = 0, draw(st.booleans())
    while axis < len(shape) and draw(st.integers(0, 9)):
        size = shape[axis]
        kind = draw(st.sampled_from(["integer", "slice", "slice", "none", "array", "array", "mask", "ellipsis"]))
        if kind == "none":
            items.append(None)
            continue
        if kind == "ellipsis" and dots:
            items.append(Ellipsis)
            dots = False
            axis = draw(st.integers(axis, len(shape)))
            continue
        if kind == "integer" and size:
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array" and (size or 0 in common):
            part = draw(st.sampled_from([common, common[1:], (1,) * len(common)])) if size else common
            low, high = (-size, size - 1) if size else (0, 0)
            values = draw(st.lists(st.integers(low, high), min_size=int(np.prod(part)), max_size=int(np.prod(part))))
            items.append(np.array(values, np.int64).reshape(part))
        elif kind == "mask" and not any(isinstance(i, np.ndarray) for i in items):
            rank = draw(st.integers(1, len(shape) - axis))
            mask = np.zeros(shape[axis:axis + rank], bool)
            count = draw(st.integers(0, min(mask.size, 3)))
            mask.reshape(-1)[:count] = True
            items.append(mask)
            axis += rank
            common = draw(st.sampled_from([(), (1,)]))
            continue
        else:
            bound = st.none() | st.integers(-size - 2, size + 2)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, -1, 2, -2, 3]))))
        axis += 1
    key = tuple(items) if len(items) != 1 or draw(st.booleans()) else items[0]
    try:
        np.zeros(shape)[key]
    except IndexError:  # an ellipsis moved an index to a shorter axis
        hypothesis.reject()
    return key


def ours(key: Any) -> Any:
    """The key with its arrays as tensors."""
    if isinstance(key, tuple):
        return tuple(ours(item) for item in key)
    return mo.asarray(key) if isinstance(key, np.ndarray) else key


def layouts(array: np.ndarray) -> list[np.ndarray]:
    """The same elements in memory laid out differently: contiguous, transposed, every second backwards."""
    if array.ndim == 0:
        return [array]
    wide = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)
    wide[::-2] = array
    return [array, np.asfortranarray(array), wide[::-2]]


@hypothesis.settings(max_examples=120)
@hypothesis.given(st.data(), st.sampled_from(SHAPES), st.integers(0, 2))
def test_getitem_is_numpys(data: st.DataObject, shape: tuple[int, ...], layout: int) -> None:
    """Same shape, same elements."""
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    array = layouts(array)[layout % len(layouts(array))]
    key = data.draw(keys(shape))
    expected = array[key]
    found = mo.asarray(array)[ours(key)]
    assert found.shape == np.shape(expected)
    np.testing.assert_array_equal(found.numpy(), expected)


@hypothesis.settings(max_examples=120)
@hypothesis.given(st.data(), st.sampled_from(SHAPES), st.booleans())
def test_setitem_is_numpys(data: st.DataObject, shape: tuple[int, ...], scalar: bool) -> None:
    """The same elements afterwards; the array that was borrowed, and tensors made before, keep theirs."""
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    key = data.draw(keys(shape))
    value: Any = -7 if scalar else -np.arange(1, 1 + int(np.size(array[key])), dtype=np.int32).reshape(array[key].shape)
    x = mo.asarray(array)
    before, kept = x + 0, array.copy()
    x[ours(key)] = value if scalar else mo.asarray(value)
    expected = array.copy()
    expected[key] = value
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(before.numpy(), kept)
    np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "bfloat16", "float64", "complex64"])
def test_every_dtype_indexes(dtype: str) -> None:
    """Views, gathers and writes do not look at the elements."""
    numbers = np.arange(12).reshape(3, 4)
    x = mo.asarray(numbers % 2 == 0 if dtype == "bool" else numbers, dtype=dtype)
    plain = np.array(x.numpy())
    index, mask = np.array([2, 0]), numbers % 3 == 0
    for key in (1, (slice(None), 2), (slice(None, None, -1),), index, (slice(None), index), (index, index), mask):
        np.testing.assert_array_equal(x[ours(key)].numpy(), plain[key])
    y, expected = x[...], plain.copy()
    y[1:, ::2] = x[:2, 1::2]
    expected[1:, ::2] = plain[:2, 1::2]
    y[mo.asarray([0, 0])] = x[1]
    expected[[0, 0]] = plain[1]
    y[mo.asarray(mask)] = x[0, 1]
    expected[mask] = plain[0, 1]
    np.testing.assert_array_equal(y.numpy(), expected)


def test_a_slice_is_a_value() -> None:
    """Writing to a slice leaves what it was taken from alone, and the other way round."""
    x = mo.asarray(np.arange(6.0))
    y = x[2:4]
    y[0] = 100.0
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and y.tolist() == [100, 3]
    z = x[2:4]
    x[2] = -1.0
    assert z.tolist() == [2, 3] and x.tolist()[2] == -1


def test_programs_keep_the_value_they_were_built_from() -> None:
    """A tensor that was realised and then written to does not change what was computed from it before."""
    x = mo.asarray(np.arange(4.0)) + 1
    doubled = x * 2
    x.realise()
    x[0] = 50.0
    x.realise()
    assert doubled.tolist() == [2, 4, 6, 8] and (x * 2).tolist() == [100, 4, 6, 8]


def test_in_place_operators_rebind() -> None:
    """`y += 1` makes a new value; dtype and shape may not change."""
    x = mo.asarray(np.arange(3))
    y = x
    y += 1
    y *= 3
    y -= 1
    y //= 2
    y **= 2
    assert x.tolist() == [0, 1, 2] and y.tolist() == [1, 4, 16]
    y &= 6
    y |= 1
    y ^= 2
    y <<= 2
    y >>= 1
    assert y.tolist() == [((v & 6 | 1) ^ 2) << 1 for v in (1, 4, 16)]
    with pytest.raises(TypeError, match=r"\[divide\].*in-place"):
        y /= 2
    with pytest.raises(ValueError, match=r"\[add\].*in-place"):
        y += mo.zeros((2, 3), dtype=mo.int64)
    matrix = mo.asarray(np.eye(2))
    matrix @= matrix
    matrix %= 1.0
    assert matrix.tolist() == [[0, 0], [0, 0]]


def test_scalar_tensors_are_indices() -> None:
    """A 0-dimensional integer tensor stands for its number, without being realised."""
    x = mo.asarray(np.arange(12).reshape(3, 4))
    before = evaluate.counts.syncs
    row = x[mo.asarray(1) + 1]
    assert evaluate.counts.syncs == before and row.tolist() == [8, 9, 10, 11]
    assert x[mo.asarray(-1), mo.asarray(0)].item() == 8
    assert x.tolist()[mo.asarray(1)] == [4, 5, 6, 7]


def test_masks_are_counted_and_scalar_writes_stay_lazy() -> None:
    """Reading by a mask needs its count and realises it; writing one number everywhere does not."""
    x = mo.asarray(np.arange(6.0))
    before = evaluate.counts.syncs
    assert x[x > 2].tolist() == [3, 4, 5] and evaluate.counts.syncs == before + 1
    x[x > 2] = 0.0
    assert not x.is_realised and evaluate.counts.syncs == before + 1 and x.tolist() == [0, 1, 2, 0, 0, 0]
    x[x == 0] = mo.asarray([5.0, 6.0, 7.0, 8.0])
    assert x.tolist() == [5, 1, 2, 6, 7, 8]
    assert x[True].shape == (1, 6) and x[False].shape == (0, 6) and x[[]].shape == (0,) and x[[1, 2]].tolist() == [1, 2]


def test_a_total_that_depends_on_data_is_refused_inside_compile() -> None:
    """A total of counts has no bound; a selection has one (tests/compile/test_data_sizes.py), choosing needs none."""
    x = mo.asarray(np.arange(4.0))
    with pytest.raises(RuntimeError, match=r"depends on data|size of the result"):
        mo.compile(lambda a: mo.repeat(a, mo.astype(a, "int64")))(x)

    def choose(a: mo.Tensor) -> mo.Tensor:
        b = a + 1
        b[a > 1] = 0.0
        b[0] = 9.0
        return b

    assert mo.compile(choose)(x).tolist() == [9, 2, 0, 0] and x.tolist() == [0, 1, 2, 3]

    def own(a: mo.Tensor) -> mo.Tensor:
        a[0] = 9.0
        return a

    def others(a: mo.Tensor) -> mo.Tensor:
        y[0] = a[0]
        return y * 2

    assert mo.compile(own)(x).tolist() == [9, 1, 2, 3] and x.tolist() == [0, 1, 2, 3]
    y = mo.asarray(np.ones(4))
    with pytest.raises(RuntimeError, match=r"\[setitem\].*State"):
        mo.compile(others)(x)
    assert y.tolist() == [1, 1, 1, 1]


def test_iteration_and_length() -> None:
    """A tensor iterates over its first axis."""
    x = mo.asarray(np.arange(6).reshape(3, 2))
    assert len(x) == 3 and [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(TypeError, match=r"\[iter\]"):
        iter(mo.asarray(1.0))


FAULTS = [
    (lambda x: x[3], "index 3 is out of range for axis 0 of size 3"),
    (lambda x: x[0, 0, 0], "too many"),
    (lambda x: x[..., ...], "more than one ellipsis"),
    (lambda x: x[1.5], "is not an index"),
    (lambda x: x["a"], "is not an index"),
    (lambda x: x[mo.asarray([0.5])], "not integers or a mask"),
    (lambda x: x[mo.asarray([True, False])], "does not fit"),
    (lambda x: x[mo.asarray([7])].numpy(), "out of range"),
    (lambda x: x[mo.asarray([-4])].numpy(), "out of range"),
    (lambda x: x[mo.asarray([0]), mo.asarray([5])].numpy(), "out of range"),
    (lambda x: mo.take(x, mo.asarray([3]), axis=0).numpy(), "out of range"),
    (lambda x: x[::0], "zero"),
]


@pytest.mark.parametrize(("use", "message"), FAULTS)
def test_faults_name_what_is_wrong(use: Any, message: str) -> None:
    """IndexError with one sentence and the user's line."""
    with pytest.raises(IndexError, match=message) as caught:
        use(mo.asarray(np.zeros((3, 4))))
    assert "test_indexing.py" in str(caught.value)


def test_assignments_that_do_not_fit() -> None:
    """Shape and dtype of what is assigned are checked on the line of the assignment."""
    x = mo.asarray(np.zeros((3, 4), np.int32))
    with pytest.raises(ValueError, match=r"\[setitem\].*\(3,\).*\(4,\)"):
        x[0] = mo.asarray(np.zeros(3, np.int32))
    with pytest.raises(TypeError, match=r"\[setitem\].*float32"):
        x[0] = mo.asarray([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(TypeError, match=r"\[setitem\].*1.5"):
        x[0] = 1.5
    with pytest.raises(TypeError, match="out of range"):
        x[0] = 1 << 40
    with pytest.raises(IndexError, match="out of range"):
        x[mo.asarray([9])] = 1
        x.numpy()


@pytest.mark.parametrize("wrong", [4, -5, 1 << 40])
@pytest.mark.parametrize("form", ["array", "list", "tensor", "lazy", "pairs", "after a slice"])
def test_a_bad_index_is_reported_by_the_assignment(wrong: int, form: str) -> None:
    """On its line, and the tensor keeps its value."""
    x = mo.asarray(np.arange(4, dtype=np.float32), copy=True)
    key: Any = {"array": np.array([0, wrong]), "list": [0, wrong], "tensor": mo.asarray([0, wrong]),
                "lazy": mo.asarray([0, wrong - 1]) + 1, "pairs": (np.array([0, 0]), np.array([0, wrong])),
                "after a slice": (slice(None), [0, wrong])}[form]
    if form in ("pairs", "after a slice"):
        x = x.reshape(1, 4)
    before = x.tolist()
    line = test_a_bad_index_is_reported_by_the_assignment.__code__.co_firstlineno + 14
    for _ in range(2):
        with pytest.raises(IndexError, match=rf"setitem\] index -?\d+ is out of range for axis . of size 4.*:{line}\."):
            x[key] = 9.0
        assert x.tolist() == before
    assert (x + 1).sum().item() == 10


def test_a_good_index_is_looked_at_once() -> None:
    x, index = mo.zeros(5), mo.asarray([1, -1], dtype="int8")
    x[index] = 3.0
    x[mo.asarray([], dtype="int64")] = 4.0
    x[mo.asarray([2], dtype="uint64")] = 5.0
    assert not x.is_realised
    assert x.tolist() == [0, 3, 5, 0, 3]


def test_a_bad_index_inside_a_compiled_function_is_reported_when_it_runs() -> None:
    def put(x: mo.Tensor, index: mo.Tensor) -> mo.Tensor:
        y = x + 0
        y[index] = 1.0
        return y

    f = mo.compile(put)
    x = mo.zeros(3)
    assert f(x, mo.asarray([0, -1])).tolist() == [1, 0, 1]
    with pytest.raises(IndexError, match="out of range"):
        f(x, mo.asarray([0, 3]))
    assert x.tolist() == [0, 0, 0]


def test_a_bad_index_that_cannot_be_computed_again_is_still_what_is_told() -> None:
    """The sum needs no memory for its million indices; finding the one at fault would."""
    table = mo.ones(10).realise()
    room = mo.pool.stats()["live_bytes"] + 1_000_000  # beside what other tests still hold
    with mo.settings(pool_bytes=room), pytest.raises(mo.errors.IndexFault, match=r"\[take\] an index is out of"):
        mo.take(table, mo.arange(1_000_000)).sum().item()


def test_an_ellipsis_of_no_axes_keeps_indices_apart() -> None:
    """As in NumPy: the indexed axes then come first."""
    array, rows = np.arange(24.0).reshape(2, 3, 4), np.array([0, 0, 2])
    x = mo.asarray(array, copy=True)
    for key in [(slice(None), rows, ..., 0), (..., rows, 0), (slice(None), rows, 0), (0, ..., rows)]:
        assert x[key].shape == array[key].shape and x[key].tolist() == array[key].tolist()
    x[:, rows, ..., 0] = 7.0
    array[:, rows, ..., 0] = 7.0
    assert x.tolist() == array.tolist()


def test_a_value_that_another_one_replaces_has_no_gradient() -> None:
    """Of equal indices the last value stays: only that one moves the result."""
    rng = np.random.default_rng(4)
    for shape, axis in (((5,), 0), ((3, 6), 1), ((6, 3), 0)):
        base, values = (mo.asarray(rng.standard_normal(shape)) for _ in range(2))
        index, weight = mo.asarray(rng.integers(0, 3, shape)), mo.asarray(rng.standard_normal(shape))

        def loss(base: Any, values: Any, index: Any = index, weight: Any = weight, axis: int = axis) -> Any:
            return (mo.scatter(base, index, values, axis=axis) ** 2 * weight).sum()

        for number, slope in enumerate(mo.grad(loss, argnums=(0, 1))(base, values)):
            given = [np.array(base.numpy()), np.array(values.numpy())]
            for place in np.ndindex(*shape):
                sides = []
                for step in (1e-5, -1e-5):
                    moved = [each.copy() for each in given]
                    moved[number][place] += step
                    sides.append(float(loss(*map(mo.asarray, moved))))
                assert abs((sides[0] - sides[1]) / 2e-5 - float(slope[place])) < 1e-6


def test_assigned_values_with_equal_indices() -> None:
    index, weight = mo.asarray([0, 0, 2]), mo.asarray([10.0, 1.0, 1.0])

    def loss(values: Any) -> Any:
        z = mo.zeros(3)
        z[index] = values
        return (z * weight).sum()

    for slope in (mo.grad(loss), mo.compile(mo.grad(loss))):
        assert slope(mo.asarray([1.0, 2.0, 3.0])).tolist() == [0, 10, 1]


def test_rounding_an_assigned_float64_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not for Python's numbers, nor where the tensor is as wide."""
    index._say_rounded.cache_clear()
    x, wide = mo.zeros(3), mo.zeros(3, dtype="float64")
    with caplog.at_level("WARNING", "morpho"):
        x[0], x[1:], wide[...] = 1.5, np.ones(2, "f"), np.ones(3)
        assert not caplog.records
        for _ in range(3):
            x[...] = np.full(3, 0.1)
            x[0] = np.float64(0.2)
    assert len(caplog.records) == 1 and "float64 values are rounded to the float32" in caplog.text
    assert x.dtype is mo.float32 and x.tolist() == [np.float32(0.2), np.float32(0.1), np.float32(0.1)]
