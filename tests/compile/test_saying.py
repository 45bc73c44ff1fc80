"""What compiled functions say of themselves; and on the reference backend, where nothing is compiled."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError

WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
import morpho as mo
x = mo.asarray([1.0, 2.0])
with mo.settings(device="reference", cache=False):
    f = mo.compile(lambda a, w=mo.ones((2, 2)): mo.exp(a @ w) * 2)
    print(f(x).tolist() == (mo.exp(x @ mo.ones((2, 2))) * 2).tolist(), f.stats["isa"])
"""


def test_llvm_is_not_needed() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_LLVM], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "reference"], done.stderr


def test_what_ran_is_said_and_native_code_comes_when_it_is_asked_for() -> None:
    x = mo.asarray(np.linspace(-1, 1, 50))
    with mo.settings(device="reference", cache=False):
        f = mo.compile(lambda a: mo.tanh(a) * 2)
        f(x)
        assert (f.stats["kernels"], f.stats["isa"], f.stats["cache"]["compiled"]) == (0, "reference", 0)
        assert f.measure(x) == {"measured_s": [], "predicted_s": []}
        assert "reference" in f.explain() and "by NumPy" in f.explain() and "kernel tanh" not in f.explain()
    for _ in range(3):
        np.testing.assert_allclose(f(x).numpy(), np.tanh(x.numpy()) * 2)
    assert f.stats["kernels"] == 1 and f.stats["isa"] != "reference" and f.stats["native_calls"] > 0


def test_the_graph_after_any_pass() -> None:
    f = mo.compile(lambda a: mo.tanh(a) * 1 + 2)
    with pytest.raises(ArgumentError, match="not been called"):
        f.text()
    f(mo.ones(3))
    texts = {name: f.text(after=name) for name in ("traced", *f.stats["passes"])}
    assert "multiply" in texts["traced"] and "multiply" not in texts["simplify"] and "group" in texts["fuse"]
    assert f.text() == texts["schedule"]
    with mo.settings(passes_off="fuse"):  # what was compiled, not what would be now
        assert f.text(after="fuse") == texts["fuse"]
    with pytest.raises(ArgumentError, match=r"no pass 'nothing'.*simplify"):
        f.text(after="nothing")
