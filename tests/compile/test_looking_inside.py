"""`f.stats`, `f.explain()` and `f.dot()`: plain numbers and words about what was done."""

from __future__ import annotations

import json
import pydoc
import re
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError

KEYS = {"calls", "native_calls", "recompiles", "fallbacks", "isa", "threads", "passes", "kernels", "bytes_avoided",
        "arena_bytes", "liveness_bytes", "compile_ms", "cache"}


@mo.compile
def block(x: mo.Tensor, w: mo.Tensor) -> mo.Tensor:
    """A product, a reduction and elementwise work, with something to fold and to merge."""
    y = mo.gelu(x @ w + (1.0 + 1.0)) * 1
    return mo.softmax(y, axis=-1) + mo.softmax(y, axis=-1)


@pytest.fixture(scope="module", autouse=True)
def called() -> None:
    rng = np.random.default_rng(0)
    x, w = mo.asarray(rng.random((16, 32), np.float32)), mo.asarray(rng.random((32, 24), np.float32))
    block(x, w)
    for _ in range(3):
        block(x, w, out=mo.empty((16, 24)))


def test_before_the_first_call() -> None:
    f = mo.compile(lambda x: x)
    assert f.stats["calls"] == 0 and f.stats["isa"]
    assert "not been called" in f.explain()
    with pytest.raises(ArgumentError, match="not been called"):
        f.dot()


def test_stats_are_plain_and_complete() -> None:
    stats = block.stats
    assert set(stats).issuperset(KEYS)
    assert json.loads(json.dumps(stats)) == stats
    assert stats["calls"] == 4 and stats["native_calls"] == 3 and stats["recompiles"] == 0 and stats["fallbacks"] == 0
    assert stats["arena_bytes"] >= stats["liveness_bytes"] > 0
    assert stats["bytes_avoided"] > 16 * 24 * 4
    assert 1 <= stats["kernels"] <= 4 and stats["host_steps"] == 0
    for row in stats["passes"].values():
        assert row["after"] > 0 and row["before"] > 0 and row["ms"] >= 0
    assert set(stats["cache"]) == {"memory", "disk", "compiled", "plan"} and stats["cache"]["plan"] in (0, 1)
    assert stats["cache"]["plan"] or sum(stats["cache"].values()) >= stats["kernels"]
    assert {"passes", "lower", "code", "generate", "llvm", "load"} <= set(stats["compile_ms"])
    assert all(ms >= 0 for ms in stats["compile_ms"].values())


def test_stats_are_a_copy() -> None:
    block.stats["passes"].clear()
    block.stats["cache"]["disk"] = -1
    assert block.stats["passes"] and block.stats["cache"]["disk"] >= 0


def test_explain_says_what_was_done() -> None:
    text = block.explain()
    assert text.startswith("block(x")
    for word in ("kernels", "passes", "fuse", "rules applied", "arena", "registers", "compile", "calls", "recompiles",
                 "fallbacks", "matmul", "test_looking_inside.py:", "native entry"):
        assert word in text, word
    assert re.search(r"simplify +\d+ -> +\d+ nodes", text)


def test_dot(tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    text = block.dot(path)
    assert path.read_text(encoding="utf-8") == text == block.dot()
    assert text.startswith("digraph morpho {") and text.endswith("}") and text.count("{") == text.count("}")
    named = set(re.findall(r"^  (n\d+) \[", text, re.MULTILINE))
    assert named and set(re.findall(r"n\d+(?= ->|;)", text)) <= named
    assert "peripheries=2" in text and text.count('"') % 2 == 0


def test_dot_of_names_with_quotes(tmp_path: Path) -> None:
    f = mo.compile(lambda x: (mo.sort(x), x.sum(), x + float("nan"), x[mo.asarray([0])]))
    f(mo.ones(3))
    assert f.dot(str(tmp_path / "many.dot")).count('"') % 2 == 0


def test_a_fallback_is_counted_and_shown() -> None:
    f = mo.compile(lambda x: mo.linalg.eigvals(mo.outer(x, x)) + 1)
    f(mo.ones(0))
    assert f.stats["host_steps"] == 1 and re.search(r"host +eigvals", f.explain())


def test_passes_can_be_switched_off() -> None:
    f = mo.compile(lambda x: mo.exp(x * 2) + 1)
    x = mo.asarray(np.arange(5, dtype=np.float32))
    together = f(x).numpy()
    with mo.settings(passes_off="fuse"):
        np.testing.assert_array_equal(f(x).numpy(), together)
        assert f.stats["kernels"] == 3 and "fuse" not in f.stats["passes"]
    f(x)
    assert f.stats["kernels"] == 1
    with mo.settings(passes_off="fuse,nonsense"), pytest.raises(ArgumentError, match=r"unknown passes \['nonsense'\]"):
        f(x)
    assert f(x).shape == (5,)


def test_help_is_for_people() -> None:
    shown = pydoc.render_doc(mo.compile, renderer=pydoc.plaintext)
    for wanted in ("function:", "dynamic:", "whole:", "out=c", "f.explain()", ">>> f = mo.compile("):
        assert wanted in shown

    def double(x: mo.Tensor) -> mo.Tensor:
        """Twice x."""
        return x * 2

    shown = pydoc.render_doc(mo.compile(double), renderer=pydoc.plaintext)
    assert "double(x" in shown and "Twice x." in shown and "c_void_p" not in shown


def test_an_unknown_python_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from morpho.tensor.jit import compile as module

    monkeypatch.setattr(module, "_entry_ready", False)
    module._say_unknown.cache_clear()
    for _ in range(3):
        assert mo.compile(lambda x: x + 1)(mo.ones(2)).tolist() == [2, 2]
    assert sum("go through Python" in record.message for record in caplog.records) == 1


def test_kernels_of_compositions_have_the_line_that_wrote_them() -> None:
    def net(x: mo.Tensor) -> mo.Tensor:
        return mo.layer_norm(mo.softmax(x))

    line = net.__code__.co_firstlineno + 1
    f = mo.compile(net)
    f(mo.ones((4, 8)))
    assert f"{Path(__file__).name}:{line})" in f.explain()


def test_text_and_dot_show_what_was_compiled() -> None:
    """Not what the passes would make of it under the caller's settings, and without the budget."""

    def step(x: mo.Tensor) -> mo.Tensor:
        def block(y: mo.Tensor) -> mo.Tensor:
            return mo.tanh(mo.exp(y @ y) * 0.1)

        return mo.grad(lambda y: block(block(block(block(y)))).sum())(x)

    compiled = mo.compile(step, memory_budget=0.9)
    with mo.settings(threads=2):  # the scratch of many threads would be more than the other tenth
        compiled(mo.ones((48, 48)) * 0.01)
    done = sum(node.op.name == "remat_barrier" for node in compiled.current.plan.optimised.nodes)
    assert done and compiled.text().count("= remat_barrier") == done == compiled.dot().count('label="remat_barrier')
    assert compiled.text(after="remat") == compiled.text()
    with mo.settings(level=0, passes_off="schedule"):
        assert compiled.text(after="remat") == compiled.text() and compiled.text().count("= remat_barrier") == done


def test_passes_over_the_program_are_named_and_timed() -> None:
    compiled = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
    compiled(mo.ones((40, 40)))
    rows = compiled.stats["program"]
    assert list(rows) == ["hoist", "co_schedule", "memory", "footprint"]
    assert all(row["before"] and row["after"] and row["ms"] >= 0 for row in rows.values())
    assert "\nprogram\n  hoist " in compiled.explain()
