"""Compiled functions on the reference backend: nothing is compiled, LLVM is not needed, and what is said is true."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import morpho as mo

WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
import morpho as mo
x = mo.asarray([1.0, 2.0])
with mo.settings(backend="reference", cache=False):
    f = mo.compile(lambda a, w=mo.ones((2, 2)): mo.exp(a @ w) * 2)
    print(f(x).tolist() == (mo.exp(x @ mo.ones((2, 2))) * 2).tolist(), f.stats["isa"])
"""


def test_llvm_is_not_needed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_LLVM], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "reference"], done.stderr


def test_what_ran_is_said_and_native_code_comes_when_it_is_asked_for() -> None:
    x = mo.asarray(np.linspace(-1, 1, 50))
    with mo.settings(backend="reference", cache=False):
        f = mo.compile(lambda a: mo.tanh(a) * 2)
        f(x)
        assert (f.stats["kernels"], f.stats["isa"], f.stats["cache"]["compiled"]) == (0, "reference", 0)
        assert "reference" in f.explain() and "by NumPy" in f.explain() and "kernel tanh" not in f.explain()
    for _ in range(3):
        np.testing.assert_allclose(f(x).numpy(), np.tanh(x.numpy()) * 2)
    assert f.stats["kernels"] == 1 and f.stats["isa"] != "reference" and f.stats["native_calls"] > 0
