"""Single operations on realised values: the same values, found by layout, whatever happens to their operands."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.layout import pack_record
from morpho.ops.algebra import constant_like
from morpho.tensor import eager, recording
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor
from morpho.tensor.steps import Step


def often(function: Any, *values: Any) -> list[Any]:
    """The results of a function called until its operations have functions of their own."""
    return [function(*values) for _ in range(4)]


def test_operations_that_come_back_build_no_node() -> None:
    x = mo.asarray(np.arange(5, dtype=np.float32))
    found = often(lambda x: x * 3.5, x)
    assert type(found[-1]._node) is Step
    for one in found:
        assert one.shape == (5,) and one.dtype is mo.float32
        assert one.tolist() == [0.0, 3.5, 7.0, 10.5, 14.0]
        assert one.is_realised


@pytest.mark.parametrize("dtype", [mo.float32, mo.float64, mo.int32, mo.int64, mo.uint8, mo.bool, mo.float16])
def test_values_are_those_of_the_usual_way(dtype: Any, rng: np.random.Generator) -> None:
    x, y = (mo.asarray(rng.integers(0, 2, 6)).astype(dtype).realise() for _ in range(2))
    for function in (lambda a, b: a == b, lambda a, b: a != b):
        results = often(function, x, y)
        with mo.settings(level=3):  # inside a block nothing is pending
            wanted = function(x, y).numpy()
        for one in results:
            assert one.numpy().tobytes() == wanted.tobytes()
    for value in (1, 0, True, 1.5, -1, 300, 1 << 40, float("nan"), float("inf"), 1e300):
        wanted = outcome(lambda value=value: x + value, quiet=False)
        for _ in range(3):
            assert outcome(lambda value=value: x + value, quiet=True) == wanted


def outcome(function: Any, quiet: bool) -> Any:
    """dtype and bytes of a result, or the error."""
    try:
        if quiet:
            found = function()
            return found.dtype, found.shape, found.numpy().tobytes()
        with mo.settings(level=3):
            found = function()
            return found.dtype, found.shape, found.numpy().tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        return type(error).__name__


def test_what_is_assigned_later_does_not_change_it() -> None:
    x = mo.asarray(np.ones(4, np.float32))
    often(lambda x: x + 1, x)
    waiting = x + 1
    x[0] = 50.0
    x += 7
    assert waiting.tolist() == [2.0] * 4
    waiting = x + 1
    x.realise()
    first = x.tolist()
    del x
    assert waiting.tolist() == [value + 1 for value in first]


def test_a_pending_operation_is_part_of_larger_programs(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.random(7))
    often(lambda x: x * 2.0, x)
    y = x * 2.0
    assert type(y._node) is Step
    total = (mo.sin(y) + y).sum()
    np.testing.assert_allclose(total.item(), (np.sin(2 * x.numpy()) + 2 * x.numpy()).sum())
    run = mo.compile(lambda a: a + y)
    np.testing.assert_array_equal(run(x).numpy(), x.numpy() + 2 * x.numpy())


def test_gradients_and_traces_go_the_usual_way() -> None:
    x = mo.asarray(2.0)
    often(lambda x: x * 3.0, x)
    assert mo.grad(lambda x: x * 3.0)(x).item() == 3.0
    leaf = mo.asarray(2.0).requires_grad_()
    (leaf * 3.0).backward()
    assert leaf.grad.item() == 3.0
    assert mo.vmap(lambda x: x * 3.0)(mo.asarray([1.0, 2.0])).tolist() == [3.0, 6.0]
    assert mo.compile(lambda x: x * 3.0)(x).item() == 6.0


def test_rows_are_views() -> None:
    x = mo.asarray(np.arange(12.0).reshape(3, 4))
    assert x[1].is_realised and x[1].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert x[-1].tolist() == x[2].tolist() and [row.tolist() for row in x] == x.tolist()
    assert x[2][3].item() == 11.0 and float(x[0][1]) == 1.0
    turned = mo.permute_dims(x, (1, 0)).realise()
    assert turned[3].tolist() == [3.0, 7.0, 11.0]
    row = x[1]
    x[1] = 0.0
    assert row.tolist() == [4.0, 5.0, 6.0, 7.0]
    row[0] = 9.0
    assert x.tolist()[1] == [0.0] * 4 and row.tolist()[0] == 9.0
    with pytest.raises(IndexError):
        x[3]


def test_rows_by_native_code() -> None:
    """Once the driver is there `x[i]` is a method of its own; whatever it does not serve goes to Python."""
    x = (mo.asarray(np.arange(24.0).reshape(2, 3, 4)) + 0).realise()
    assert type(Tensor.__getitem__).__name__ == "method_descriptor"
    last = x[-1][1]
    assert last.tolist() == [16.0, 17.0, 18.0, 19.0] and last.shape == (4,) and last.strides == (1,)
    assert last._record == pack_record(last._layout[0], 1, mo.float64, (4,), (1,))
    assert last[3].shape == () and last[3].item() == 19.0 and last[-4].dtype is mo.float64
    del x
    assert (last + 1).tolist() == [17.0, 18.0, 19.0, 20.0]  # a view holds its memory
    for key in (4, -5, 1 << 80, -(1 << 80)):
        with pytest.raises(IndexError):
            last[key]
    assert last[True].shape == (1, 4) and last[np.int64(2)].item() == 18.0 and last[1:3].tolist() == [17.0, 18.0]
    with pytest.raises(IndexError):
        last[0][0]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float64", "complex64"])
def test_rows_of_every_dtype(dtype: str) -> None:
    x = mo.asarray([[0, 1, 1], [1, 0, 1]]).astype(dtype).realise()
    assert [[one.item() for one in row] for row in x] == x.tolist()
    turned = mo.permute_dims(x, (1, 0))
    assert [row.tolist() for row in turned.realise()] == turned.tolist()


def test_rows_where_somebody_listens() -> None:
    x = (mo.asarray([1.0, 2.0, 3.0]) * 1).realise()
    assert x[1].is_realised
    assert mo.grad(lambda x: x[1] * 3)(x).tolist() == [0.0, 3.0, 0.0]
    assert mo.compile(lambda: x[1] * 1)().item() == 2.0
    leaf = mo.asarray([1.0, 2.0]).requires_grad_()
    (leaf[1] * 5).backward()
    assert leaf.grad.tolist() == [0.0, 5.0]
    with mo.no_grad():
        assert not eager.quiet.value and x[2].item() == 3.0
    assert x[2].is_realised and eager.quiet.value  # the first who asks finds that all is quiet again


def test_modes_of_other_threads_are_counted() -> None:
    """Native code does not ask who calls: while any thread has a mode or a block of settings, Python decides."""
    x = (mo.asarray([1.0, 2.0]) * 1).realise()
    inside, leave = threading.Event(), threading.Event()

    def other(block: Any) -> None:
        with block:
            inside.set()
            leave.wait(30)

    for block in (mo.no_grad(), mo.settings(level=1)):
        inside.clear(), leave.clear()
        thread = threading.Thread(target=other, args=(block,))
        thread.start()
        inside.wait(30)
        assert x[0].is_realised and not eager.quiet.value and eager.is_quiet()
        leave.set()
        thread.join()
        assert x[0].is_realised and eager.quiet.value


def test_numbers() -> None:
    for value in (3, -1, 0, 2.5, float("inf"), float("nan"), 1 << 62, True, 1 << 70, 1e39):
        one = outcome(lambda value=value: mo.asarray(value), quiet=True)
        assert one == outcome(lambda value=value: mo.asarray(value), quiet=False)
    assert mo.asarray(-0.0).item() == 0.0 and np.signbit(mo.asarray(-0.0).numpy())


def test_single_operations_become_nodes_of_the_tensors_they_were_written_with() -> None:
    """A pull-back with respect to x reaches it through every operation on x, those without a node of their own too."""
    x = mo.asarray(np.linspace(0.1, 1.3, 7, dtype=np.float32), copy=True)
    for _ in range(5):
        mo.exp(x).numpy(), (x * x).numpy()
    recording.local.recording.budget = 0  # what is computed at once has no program, and no leaf that wants a gradient
    value = (mo.exp(x) + x * x).sum()
    found = pull_back([value.node], [constant_like(value.node, 1)], [x.node])
    np.testing.assert_allclose(Tensor.of_node(found[0]).numpy(), np.exp(x.numpy()) + 2 * x.numpy(), rtol=1e-6)
    late = x * 3.0
    x += 1.0  # the operation keeps the value it was written with
    np.testing.assert_allclose(late.numpy(), 3 * np.linspace(0.1, 1.3, 7, dtype=np.float32), rtol=1e-6)
