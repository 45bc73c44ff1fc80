"""Single operations on realised values: the same values, found by layout, whatever happens to their operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.ops.algebra import constant_like
from morpho.tensor import eager
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor


def often(function: Any, *values: Any) -> list[Any]:
    """The results of a function called until its operations have functions of their own."""
    return [function(*values) for _ in range(eager.OFTEN + 3)]


def test_operations_that_come_back_build_no_node() -> None:
    x = mo.asarray(np.arange(5, dtype=np.float32))
    found = often(lambda x: x * 3.5, x)
    assert type(found[-1]._node) is eager.Pending
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
        for _ in range(eager.OFTEN + 2):
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
    assert type(y._node) is eager.Pending
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
    value = (mo.exp(x) + x * x).sum()
    found = pull_back([value.node], [constant_like(value.node, 1)], [x.node])
    np.testing.assert_allclose(Tensor.of_node(found[0]).numpy(), np.exp(x.numpy()) + 2 * x.numpy(), rtol=1e-6)
    late = x * 3.0
    x += 1.0  # the operation keeps the value it was written with
    np.testing.assert_allclose(late.numpy(), 3 * np.linspace(0.1, 1.3, 7, dtype=np.float32), rtol=1e-6)
