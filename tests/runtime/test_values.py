"""Tensors are values: borrowed memory is read late and never written, realised results stay, nothing is done twice."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho.runtime.plans import evaluate


@mo.settings(record=False)  # programs as nodes
def test_borrowed_memory_is_read_when_the_graph_runs() -> None:
    array = np.arange(4, dtype=np.float32)
    x = mo.asarray(array, copy=False)
    assert x.numpy().ctypes.data == array.ctypes.data
    y, folded = x + 1, (x * 1 + 0).reshape(2, 2).T
    realised = (x * 2).realise()
    array[:] = 10
    assert y.tolist() == [11] * 4 and folded.tolist() == [[10, 10], [10, 10]]
    assert realised.tolist() == [0, 2, 4, 6] and x.tolist() == [10] * 4
    array[:] = 20
    assert y.tolist() == [11] * 4
    f = mo.compile(lambda a: a + 1)
    assert f(x).tolist() == [21] * 4
    array[:] = 30
    assert f(x).tolist() == [31] * 4


def test_borrowed_memory_is_never_written() -> None:
    array = np.arange(6, dtype=np.float32)
    kept = array.copy()
    x = mo.asarray(array)
    y = x[2:4]
    y[0] = 99.0
    x2 = mo.asarray(array)
    x2[:] = 5.0
    x2[1:3] = mo.asarray([7.0, 8.0])
    assert y.tolist() == [99, 3] and x2.tolist() == [5, 7, 8, 5, 5, 5]
    mo.State(x).value = x + 1
    np.testing.assert_array_equal(array, kept)


def test_assignment_changes_one_tensor() -> None:
    x = mo.asarray(np.zeros(4, np.float32), copy=True)
    view, pending, same, export = x[1:3], x + 1, x, x.numpy()
    x[1] = 5.0
    assert same.tolist() == [0, 5, 0, 0]  # the same tensor
    assert view.tolist() == [0, 0] and pending.tolist() == [1, 1, 1, 1] and export.tolist() == [0, 0, 0, 0]
    view[0] = 7.0
    assert x.tolist() == [0, 5, 0, 0] and view.tolist() == [7, 0]


@pytest.mark.parametrize("make", [lambda: mo.asarray(np.ones(3)), lambda: mo.ones(3) + 1, lambda: mo.ones((2, 2)).T,
                                  lambda: mo.compile(lambda x: x * 2)(mo.ones(3)), lambda: mo.State(mo.ones(3)).value])
def test_exports_are_read_only(make: object) -> None:
    x = make()  # type: ignore[operator]
    array = x.numpy()
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 5
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    copied = x.numpy(copy=True)
    before = x.numpy().copy()
    copied[...] = 5
    np.testing.assert_array_equal(x.numpy(), before)


@mo.settings(record=False)  # programs as nodes
def test_a_computed_intermediate_is_not_computed_again() -> None:
    x = mo.asarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8))
    y = mo.exp(x) @ x
    a = y + 1
    y.numpy()
    before = evaluate.counts.kernels_run
    b = a.numpy()
    assert evaluate.counts.kernels_run == before + 1  # the addition alone
    np.testing.assert_array_equal(b, y.numpy() + 1)
    before = evaluate.counts.kernels_run
    y.numpy(), a.numpy()
    assert evaluate.counts.kernels_run == before


def test_equal_programs_are_one() -> None:
    x = mo.asarray(np.ones(5, np.float32))
    y, z = mo.exp(x) + 1, mo.exp(x) + 1
    assert y.node is z.node
    y.numpy()
    before = evaluate.counts.kernels_run
    np.testing.assert_array_equal(z.numpy(), y.numpy())
    assert evaluate.counts.kernels_run == before


def test_a_plan_is_made_once_for_equal_programs_on_other_data() -> None:
    def program(seed: int) -> np.ndarray:
        x = mo.asarray(np.random.default_rng(seed).random((4, 33), np.float32))
        return mo.softmax(x * 1.75, axis=-1).numpy()

    program(0)
    before = evaluate.counts.plans
    for seed in range(1, 6):
        program(seed)
    assert evaluate.counts.plans == before


@mo.settings(record=False)  # programs as nodes
def test_realise_computes_together() -> None:
    x = mo.asarray(np.ones(5, np.float32))
    y = mo.exp(x) * 3
    a, b = y + 1, y.sum()
    before = evaluate.counts.realisations
    mo.realise(a, b, a)
    assert evaluate.counts.realisations == before + 1 and a.is_realised and b.is_realised


def test_deep_programs() -> None:
    x = mo.asarray(np.zeros(3, np.float32))
    for _ in range(1500):
        x = x + 1
    assert x.tolist() == [1500] * 3


def test_fallbacks_to_numbers_are_counted() -> None:
    before = evaluate.counts.syncs
    assert float(mo.ones(3).sum()) == 3 and bool(mo.ones(()) > 0)
    assert evaluate.counts.syncs == before + 2


@mo.settings(record=False)  # programs as nodes
def test_a_loop_whose_program_grows_is_said_once(caplog: pytest.LogCaptureFixture,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "MANY_GROWING", 3)
    monkeypatch.setattr(evaluate, "counts", evaluate.Counts())
    x = mo.zeros(5)
    for turn in range(8):
        x = x * 0.5 + turn
        x.mean().item()
    said = [record.message for record in caplog.records if "longer program" in record.message]
    assert len(said) == 1 and "x.realise()" in said[0]
    caplog.clear()
    monkeypatch.setattr(evaluate, "counts", evaluate.Counts())
    for turn in range(8):
        x = (x * 0.25 + turn).realise()
        x.mean().item()
    assert not [record for record in caplog.records if "longer program" in record.message]
