"""Values that a kernel takes from outside: constants, globals, closures, its source and its gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import kernel as mk

FACTOR = 2.0
ONES = mo.ones(2)


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with mo.settings(device="reference"):
        yield


def helper(v: Any) -> Any:
    return v + 1


@mo.kernel(grid=1, out="x")
def signed(x: Any, out: Any, *, c: Any) -> None:
    mk.store(out[:], mo.copysign(mk.load(x[:], 2), c))


@mo.kernel(grid=1, out=mk.new(2, "int64"))
def kind(x: Any, out: Any, *, c: Any) -> None:
    mk.store(out[:], mk.full(2, 1 if (mk.load(x[:], 2) * c[0]).dtype == mo.int64 else 2))


@mo.kernel(grid=1, out="x")
def plus(x: Any, out: Any, *, c: Any) -> None:
    mk.store(out[:], mk.load(x[:], 2) + c)


@mo.kernel(grid=1, out="x")
def outside(x: Any, out: Any) -> None:
    mk.store(out[:], helper(mk.load(x[:], 2)) * FACTOR)


def test_equal_constants_of_other_types_and_signs_are_kernels_of_their_own() -> None:
    assert [signed(ONES, c=c).tolist() for c in (0.0, -0.0)] == [[1, 1], [-1, -1]]
    whole = mo.asarray([1, 3])
    assert [kind(whole, c=(c,)).tolist() for c in (1, 1.0, 1)] == [[1, 1], [2, 2], [1, 1]]
    assert plus(ONES, c=10**40).tolist() == [float("inf")] * 2 and plus(ONES, c=-1e300).tolist() == [-float("inf")] * 2
    with pytest.raises(mo.errors.ArgumentError, match="the constant c is tuple"):
        plus(ONES, c=([1],))
    with pytest.raises(mo.errors.CompileError, match="300 is out of range for int8"):
        plus(mo.asarray([1, 2], dtype="int8"), c=300)


def test_globals_helpers_and_closures_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outside(ONES).tolist() == [4, 4]
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert outside(ONES).tolist() == [10, 10]
    monkeypatch.setitem(globals(), "helper", lambda_of(10))
    assert outside(ONES).tolist() == [55, 55]
    table, scale = [1.0], 2.0

    @mo.kernel(grid=1, out="x")
    def inner(x: Any, out: Any) -> None:
        mk.store(out[:], mk.load(x[:], 2) * scale + table[0])

    assert inner(ONES).tolist() == [3, 3]
    scale, table[0] = 9.0, 4.0
    assert inner(ONES).tolist() == [13, 13] and len(inner.programs) == 1


def lambda_of(number: int) -> Any:
    def plus_number(v: Any) -> Any:
        return v + number

    return plus_number


def scaled(scale: float, differentiable: bool = True) -> Any:
    @mo.kernel(grid=1, out="x", vjp=(lambda inputs, out, ct: ct * scale) if differentiable else None)
    def times(x: Any, out: Any) -> None:
        mk.store(out[:], mk.load(x[:], 2) * scale)

    return times


def test_kernels_of_one_name_keep_their_gradients() -> None:
    double, triple, plain = scaled(2.0), scaled(3.0), scaled(4.0, differentiable=False)
    for kernel, slope in ((double, 2), (triple, 3), (double, 2)):
        assert mo.grad(lambda t, kernel=kernel: kernel(t).sum())(ONES).tolist() == [slope, slope]
    with pytest.raises(mo.errors.MorphoError, match="has no gradient"):
        mo.grad(lambda t: plain(t).sum())(ONES).tolist()


SOURCE = """
import morpho as mo
from morpho import kernel as mk
@mo.kernel(grid=1, out="x")
def times(x, out):
    mk.store(out[:], mk.load(x[:], 2) * {number})
"""


def test_a_file_that_is_edited_after_its_import(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text(SOURCE.format(number=4), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("edited", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("# one line more\n" + SOURCE.format(number=6666), encoding="utf-8")
    assert module.times(ONES).tolist() == [4, 4]


@mo.kernel(grid=1, out=mk.new(2, "int64"))
def fibonacci(x: Any, out: Any) -> None:
    a, b = mk.full((), 0, "int64"), mk.zeros((), "int64") + 1
    for _ in range(x.shape[0]):
        a, b = b, a + b
    mk.store(out[0], a)
    mk.store(out[1], b)


@mo.kernel(grid=1, out="x")
def ordered(x: Any, out: Any, *, n: int) -> None:
    mk.store(out[:], mk.sort(mk.load(x[:], n)))


def test_tiles_without_axes_and_sorted_truth_values() -> None:
    values = np.array([True, False, True, False, False])
    with mo.settings(device="cpu"):
        assert fibonacci(mo.ones(10)).tolist() == [55, 89]
        for check in (False, True):
            assert ordered(mo.asarray(values), n=5, check=check).tolist() == np.sort(values).tolist()


@mo.kernel(grid=1, out=mk.new(1))
def last(x: Any, out: Any) -> None:
    mk.store(out[0], mk.load(x[-1], ()))


@mo.kernel(grid=1, out=mk.new(3))
def last_three(x: Any, out: Any) -> None:
    mk.store(out[:], mk.load(x[-3:], 3))


@mo.kernel(grid=1, out=mk.new(3))
def all_but_one(x: Any, out: Any) -> None:
    mk.store(out[:], mk.load(x[:-1], 3))


@pytest.mark.parametrize("kernel", [last, last_three, all_but_one])
def test_indices_from_the_end_are_refused(kernel: Any) -> None:
    with pytest.raises(mo.errors.CompileError, match=r"do not count from the end, so write x.shape\[0\] - \d"):
        kernel(mo.ones(7))
