"""`mo.State`: donated and written in place, copied where someone holds the old value, unharmed by faults."""

from __future__ import annotations

import numpy as np
import pytest
from callers import together

import morpho as mo
from morpho.base.errors import DTypeError, IndexFault, ShapeError
from morpho.tensor.state.state import assign, defer


def address(state: mo.State) -> int:
    """Where a state's elements lie; nothing that could hold them outlives the call."""
    return state._tensor._layout[0]


def accumulate(state: mo.State) -> object:
    """A compiled function that adds its argument to a state and returns the new sum."""

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        state.value = state.value + x
        return state.value.sum()

    return step


def test_updated_in_place() -> None:
    total = mo.State(np.zeros(1000, np.float32))
    step = accumulate(total)
    where = address(total)
    for count in range(1, 6):
        assert step(mo.ones(1000)).item() == 1000 * count
        assert total.version == count and address(total) == where
    assert total.value.numpy().tolist() == [5] * 1000


def test_a_value_that_someone_holds_is_not_changed() -> None:
    total = mo.State(mo.zeros(3))
    step = accumulate(total)
    first = total.value
    step(mo.ones(3))
    second, array = total.value, total.value.numpy()
    pending = total.value * 10
    step(mo.ones(3))
    step(mo.ones(3))
    assert first.tolist() == [0, 0, 0]
    assert second.tolist() == [1, 1, 1] and array.tolist() == [1, 1, 1] and pending.tolist() == [10, 10, 10]
    assert total.value.tolist() == [3, 3, 3]
    del first, second, array, pending
    where = address(total)
    step(mo.ones(3))
    assert address(total) == where


def test_the_first_value_is_a_copy() -> None:
    array = np.zeros(3, np.float32)
    source = mo.asarray(array)
    states = [mo.State(array), mo.State(source), mo.State(source), mo.State(mo.zeros(3)), mo.State([0.0, 0.0, 0.0])]
    for state in states:
        accumulate(state)(mo.ones(3))
        assert state.value.tolist() == [1, 1, 1]
    assert not array.any() and not source.numpy().any() and not mo.zeros(3).numpy().any()


def test_passed_as_an_argument_too() -> None:
    total = mo.State(np.arange(4, dtype=np.float32))

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        total.value = total.value * 2
        return total.value + x[::-1]

    assert step(total.value).tolist() == [3, 4, 5, 6]
    assert total.value.tolist() == [0, 2, 4, 6]


def test_several_states_in_one_kernel_and_exchanged() -> None:
    a, b = mo.State(np.arange(70, dtype=np.float32)), mo.State(np.ones(70, np.float32))

    @mo.compile
    def mix() -> None:
        a.value, b.value = a.value + b.value, a.value - b.value

    @mo.compile
    def swap() -> None:
        a.value, b.value = b.value, a.value

    x, y = np.arange(70, dtype=np.float32), np.ones(70, np.float32)
    for _ in range(4):
        assert mix() is None
        x, y = x + y, x - y
        np.testing.assert_array_equal(a.value.numpy(), x)
        np.testing.assert_array_equal(b.value.numpy(), y)
        swap()
        x, y = y, x
        np.testing.assert_array_equal(a.value.numpy(), x)
        np.testing.assert_array_equal(b.value.numpy(), y)
    assert a.version == b.version == 8


ORDERS = {
    "reversed": lambda v: v[::-1] * 2,
    "shifted": lambda v: mo.concat([v[1:], v[:1]]),
    "sorted": lambda v: mo.sort(v),
    "normalised": lambda v: v / v.sum() + v[::-1],
    "product": lambda v: (v.reshape(8, 8) @ v.reshape(8, 8)).reshape(64) / 64,
    "scan": lambda v: mo.cumulative_sum(v, axis=0) / 64,
    "gathered": lambda v: v[mo.asarray(np.arange(64)[::-1].copy())],
}


@pytest.mark.parametrize("name", ORDERS)
def test_updates_that_read_in_another_order(name: str) -> None:
    start = np.random.default_rng(1).random(64, np.float32)
    state = mo.State(start)

    @mo.compile
    def step() -> mo.Tensor:
        old = state.value
        state.value = ORDERS[name](old)
        return old.sum() + state.value.sum()

    value = mo.asarray(start)
    for _ in range(3):
        new = ORDERS[name](value)
        expected = (value.sum() + new.sum()).numpy()
        np.testing.assert_array_equal(step().numpy(), expected)
        np.testing.assert_array_equal(state.value.numpy(), new.numpy())
        value = mo.asarray(new.numpy(copy=True))


def test_read_only_and_written_twice() -> None:
    scale, total = mo.State([2.0]), mo.State([0.0])

    @mo.compile
    def step(x: mo.Tensor) -> mo.Tensor:
        total.value = total.value + 1
        total.value = total.value * scale.value + x
        return total.value

    assert step(mo.ones(1)).tolist() == [3] and step(mo.ones(1)).tolist() == [9]
    assert scale.version == 0 and total.version == 2
    scale.value = [0.0]
    assert step(mo.ones(1)).tolist() == [1] and scale.version == 1


def test_the_result_is_not_the_state() -> None:
    total = mo.State(mo.zeros(3))
    step = mo.compile(lambda x: (setattr(total, "value", total.value + x), total.value)[1])
    first = step(mo.ones(3))
    step(mo.ones(3))
    assert first.tolist() == [1, 1, 1] and total.value.tolist() == [2, 2, 2]


def test_assigning_outside_and_elements() -> None:
    total = mo.State(mo.zeros(3))
    step = accumulate(total)
    step(mo.ones(3))
    with pytest.raises(mo.errors.ArgumentError, match="would be lost"):
        total.value[0] = 7.0  # a tensor is a value, and nobody would hold this one
    copy = total.value
    copy[0] = 7.0
    assert step(mo.ones(3)).item() == 6
    replaced = mo.asarray([5.0, 5.0, 5.0])
    total.value = replaced
    step(mo.ones(3))
    assert replaced.tolist() == [5, 5, 5] and total.value.tolist() == [6, 6, 6]


def test_wrong_shape_or_dtype() -> None:
    total = mo.State(mo.zeros(3))
    for wrong in (mo.zeros(4), mo.zeros((1, 3)), mo.zeros(3, dtype=mo.float64), 3.0):
        kind = DTypeError if mo.asarray(wrong).shape == (3,) else ShapeError
        with pytest.raises(kind, match=r"a state of float32\(3,\) is given"):
            total.value = wrong
        f = mo.compile(lambda x, wrong=wrong: setattr(total, "value", mo.asarray(wrong)))
        with pytest.raises(kind, match=r"test_state.py:"):
            f(mo.ones(3))
    assert total.value.tolist() == [0, 0, 0] and total.version == 0
    assert accumulate(total)(mo.ones(3)).item() == 3


@pytest.mark.parametrize("order", ["fault first", "state first", "same kernel", "host"])
def test_a_fault_loses_nothing(order: str) -> None:
    total, other = mo.State(np.zeros(5000, np.float32)), mo.State(np.ones(3, np.float32))
    table = mo.asarray(np.arange(100, dtype=np.float32))

    @mo.compile
    def step(x: mo.Tensor, index: mo.Tensor) -> mo.Tensor:
        if order == "fault first":
            found = table[index]
            total.value = total.value + found.sum()
        elif order == "state first":
            total.value = total.value + x
            found = (table + total.value.sum())[index]
        elif order == "same kernel":
            found = table[index]
            total.value = total.value + mo.concat([found, x[found.shape[0]:]])
        else:
            total.value = total.value + mo.sort(x)
            found = (table + total.value.max())[index]
        other.value = other.value * 2
        return found.sum()

    x = mo.ones(5000)
    good, bad = mo.asarray([0, 1, -1]), mo.asarray([0, 1, 100])
    step(x, good)
    for _ in range(3):
        before, pair, versions = total.value.numpy(copy=True), other.value.tolist(), (total.version, other.version)
        with pytest.raises(IndexFault, match=r"test_state.py:"):
            step(x, bad)
        np.testing.assert_array_equal(total.value.numpy(), before)
        assert other.value.tolist() == pair and (total.version, other.version) == versions
        step(x, good)
        assert total.version == versions[0] + 1 and other.value.tolist() == [2 * n for n in pair]


def test_an_exception_while_tracing_changes_no_state() -> None:
    total = mo.State(mo.zeros(3))

    @mo.compile
    def step(x: mo.Tensor, fail: bool) -> mo.Tensor:
        total.value = total.value + x
        if fail:
            raise ValueError("no")
        return total.value

    with pytest.raises(ValueError, match="no"):
        step(mo.ones(3), True)
    assert total.value.tolist() == [0, 0, 0] and total.version == 0
    assert step(mo.ones(3), False).tolist() == [1, 1, 1]


def test_calls_from_several_threads_take_turns() -> None:
    total = mo.State(np.zeros(20000, np.float32))
    step, other = accumulate(total), accumulate(total)
    seen: list[np.ndarray] = []

    def work(caller: int) -> None:
        for _ in range(25):
            (step, other)[caller % 2](mo.ones(20000))
            seen.append(total.value.numpy())

    step(mo.zeros(20000)), other(mo.zeros(20000))
    together(work, 8)
    assert total.value.numpy().min() == total.value.numpy().max() == 200
    assert total.version == 202
    assert all(array.min() == array.max() for array in seen)  # no value was read while it was being written


def test_the_reference_backend_updates_states() -> None:
    total = mo.State(mo.zeros(3))
    step = accumulate(total)
    with mo.settings(device="reference"):
        assert step(mo.ones(3)).item() == 3
    assert step(mo.ones(3)).item() == 6 and total.version == 2


# -- values that wait ------------------------------------------------------------------------------------------------
def test_a_deferred_value_is_computed_when_it_is_read() -> None:
    """All that wait are computed at once; the last value wins, and each counts as one version."""
    from morpho.runtime.plans.evaluate import counts
    from morpho.tensor.steps import counts as recordings

    def computed() -> int:
        """How often values were: programs of nodes, and recordings."""
        return counts.realisations + recordings.runs

    one, other = mo.State(mo.zeros(2)), mo.State(mo.zeros(2))
    before = computed()
    defer(one, mo.ones(2) * 2)
    defer(one, mo.ones(2) * 3)
    defer(other, mo.ones(2) * 4)
    assert computed() == before
    assert one.value.tolist() == [3.0, 3.0] and computed() == before + 1
    assert other.value.tolist() == [4.0, 4.0] and computed() == before + 1
    assert (one.version, other.version) == (1, 1)
    with pytest.raises(ShapeError):
        defer(one, mo.ones(3))


def test_a_deferred_value_and_an_assigned_one() -> None:
    one, other = mo.State(mo.zeros(2)), mo.State(mo.zeros(2))
    defer(one, mo.ones(2) * 2)
    defer(other, mo.ones(2) * 5)
    assign([(one, mo.ones(2) * 7)])  # later, so it stands
    assert one.value.tolist() == [7.0, 7.0] and other.value.tolist() == [5.0, 5.0]
    defer(one, one.value + 1)
    one.value = mo.zeros(2)
    assert one.value.tolist() == [0.0, 0.0]


def test_compiled_functions_read_deferred_values() -> None:
    state = mo.State(mo.zeros(2))

    @mo.compile
    def grow(x: mo.Tensor) -> mo.Tensor:
        state.value = state.value + x
        return state.value

    for expected in (3.0, 6.0):
        defer(state, state.value + 2)
        assert grow(mo.ones(2)).tolist() == [expected, expected]


def test_threads_read_deferred_values() -> None:
    """Whoever reads first computes; everyone sees the new values."""
    states = [mo.State(mo.zeros(8)) for _ in range(4)]
    for _ in range(5):
        wanted = [state.value.numpy() + number for number, state in enumerate(states)]
        for number, state in enumerate(states):
            defer(state, state.value + number)

        def read(caller: int, wanted: list[np.ndarray] = wanted) -> None:
            for i in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])[caller]:
                assert np.array_equal(states[i].value.numpy(), wanted[i])

        together(read, 3)


def cached(state: mo.State, other: mo.State | None = None) -> object:
    """A compiled function that puts a line into one position of a state, as a decoder does."""

    @mo.compile
    def step(new: mo.Tensor, position: mo.Tensor) -> None:
        here = mo.arange(state.value.shape[1]).reshape(1, -1, 1) == position
        state.value = mo.where(here, new, state.value)
        if other is not None:
            other.value = mo.where(here, other.value, new)  # all but one

    return step


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool"])
@pytest.mark.parametrize("width", [1, 5, 64])
@pytest.mark.parametrize("held", [False, True])
def test_rows_that_stay_are_chosen_by_a_mask(dtype: str, width: int, held: bool, rng: np.random.Generator) -> None:
    """Also where the state cannot be written in place, because someone holds it: then all rows are copied."""
    kind = getattr(mo, dtype)
    start = rng.integers(0, 2, (3, 17, width)).astype(np.float32)
    first, second = mo.State(mo.asarray(start).astype(kind)), mo.State(mo.asarray(start).astype(kind))
    step = cached(first, second)
    a, b = start.copy(), start.copy()
    for position in (0, 5, 16, 5, 99):
        new = rng.integers(0, 2, (3, 1, width)).astype(np.float32)
        holders = (first.value, second.value) if held else ()
        before = [tensor.tolist() for tensor in holders]
        step(mo.asarray(new).astype(kind), mo.asarray(position))
        a = np.where(np.arange(17)[:, None] == position, new, a)
        b = np.where(np.arange(17)[:, None] == position, b, new)
        for state, expected in ((first, a), (second, b)):
            np.testing.assert_array_equal(state.value.astype(mo.float32).numpy(), expected)
        assert [tensor.tolist() for tensor in holders] == before


MASKS = {"none": lambda n: np.zeros(n, bool), "all": lambda n: np.ones(n, bool), "first": lambda n: np.arange(n) == 0,
         "last": lambda n: np.arange(n) == n - 1, "two": lambda n: np.isin(np.arange(n), (3, 4)),
         "random": lambda n: np.random.default_rng(n).random(n) < 0.5}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("shape", [(9, 5), (3, 40, 8), (2, 3, 21, 16)], ids=str)
def test_updates_of_some_rows(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """Rows that stay are passed over, those that change written; masks along the last outer axis, or another one."""
    for axis in range(len(shape) - 1):
        size = [1] * len(shape)
        size[axis] = shape[axis]
        mask = MASKS[name](shape[axis]).reshape(size)
        for old_if_true in (False, True):
            old, new = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
            state = mo.State(mo.asarray(old, copy=True))

            @mo.compile
            def step(mask: mo.Tensor, new: mo.Tensor, state=state, old_if_true=old_if_true) -> mo.Tensor:
                state.value = mo.where(mask, state.value, new) if old_if_true else mo.where(mask, new, state.value)
                return mo.sum(mask)

            for _ in range(2):
                step(mo.asarray(mask), mo.asarray(new))
            want = np.where(mask, old, new) if old_if_true else np.where(mask, new, old)
            assert np.array_equal(state.value.numpy(), want), (axis, old_if_true)
            # The same into other memory, where every row is written.
            other = mo.compile(lambda m, a, b: mo.where(m, a, b))(mo.asarray(mask), mo.asarray(new), mo.asarray(old))
            assert np.array_equal(other.numpy(), np.where(mask, new, old))


@pytest.mark.parametrize("step", [1, 2, -1])
def test_one_row_of_many_is_found(step: int) -> None:
    """Masks side by side are looked at eight at a time, others one by one; every row of a length has its turn."""
    for length in (1, 7, 8, 9, 16, 31):
        state = mo.State(mo.zeros((2, length, 4)))

        @mo.compile
        def update(mask: mo.Tensor, new: mo.Tensor, state=state) -> None:
            state.value = mo.where(mask, new, state.value)

        want = np.zeros(length, np.float32)
        for row in range(length):
            mask = np.zeros(2 * length, bool)
            mask[::step][row], want[row] = True, row + 1
            new = mo.full((2, 1, 4), float(row + 1))
            update(mo.asarray(mask)[::step][:length].reshape((1, length, 1)), new.realise())
            assert np.array_equal(state.value.numpy(), np.broadcast_to(want[:, None], (2, length, 4))), (length, row)


def test_bytes_of_a_mask_that_are_neither_zero_nor_one_hold(rng: np.random.Generator) -> None:
    mask = np.array([0, 2, 0, 255, 1, 0], np.uint8).view(bool).reshape(1, 6, 1)
    state = mo.State(mo.zeros((2, 6, 8)))
    step = mo.compile(lambda mask: setattr(state, "value", mo.where(mask, mo.ones((2, 6, 8)), state.value)))
    step(mo.asarray(mask))
    assert np.array_equal(state.value.numpy()[:, :, 0], np.broadcast_to([0, 1, 0, 1, 1, 0], (2, 6)))
