"""The numbers of programs with dynamic sizes: native and Python evaluation agree."""

from __future__ import annotations

import gc

import numpy as np

import morpho as mo
from morpho.backends.driver.abi import LONG_WORK
from morpho.backends.driver.executable import Executable, native


def test_numbers_of_dynamic_programs_are_those_of_their_sizes() -> None:
    """The native evaluator and Python's agree; the work of a call, which decides about the interpreter lock, follows
    the sizes of that call."""
    n, m = mo.Dim("n", 1, 100_000), mo.Dim("m", 1, 64)
    f = mo.compile(lambda x: mo.exp(x).sum(axis=1) * 2.0, dynamic={"x": {0: n, 1: m}})
    f(mo.ones((3, 5)))
    executable = next(e for e in gc.get_objects() if isinstance(e, Executable) and e.symbols == ["m", "n"])
    assert executable.work > LONG_WORK
    for sizes in ({"n": 1, "m": 1}, {"n": 100_000, "m": 64}, {"n": 777, "m": 13}):
        want, got = executable.numbers(sizes), np.zeros(len(executable.values), np.int64)
        bound = np.array([1, *(sizes[name] for name in executable.symbols)], np.int64)
        native().evaluate(executable.words.ctypes.data, bound.ctypes.data, got.ctypes.data)
        assert got.tolist() == want.tolist()
        assert want[executable.work_at] * 100_000 * 64 == executable.work * sizes["n"] * sizes["m"]


def test_five_dynamic_axes_have_too_much_work_for_the_table() -> None:
    axes = {i: mo.Dim(name) for i, name in enumerate("abcde")}
    f = mo.compile(lambda x: mo.sum(x, axis=-1), dynamic={"x": axes})
    assert f(mo.ones((2, 3, 2, 1, 4))).tolist() == np.full((2, 3, 2, 1), 4.0).tolist()
