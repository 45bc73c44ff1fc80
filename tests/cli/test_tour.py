"""The tour: every stage is there for the prepared example and for a user's own, and a wrong line is one sentence."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from morpho.base.errors import ArgumentError, CompileError, ShapeError
from morpho.cli.program import tour


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays and short timings: the stages are tested, not the speed."""
    monkeypatch.setattr(tour, "SHAPE", (16, 128))
    monkeypatch.setattr(tour, "TIMED_S", 0.0)


def _texts(source: str | None = None) -> dict[str, str]:
    return {stage.title: stage.text for stage in tour.stages(source)}


def test_the_prepared_example_passes_every_stage() -> None:
    texts = _texts()
    for title in ("the call", "the traced graph", "after the pass `fuse`", "the steps", "the loop kernel", "LLVM",
                  "machine code", "the memory plan", "the result", "time", "explain()"):
        assert texts[title].strip(), title
    assert "gelu [%8]" in texts["the traced graph"]
    assert "t2 = gelu(t1)" in texts["after the pass `fuse`"]
    assert texts["the steps"].startswith("0: multiply+add+gelu+sum   16 rows x 128 columns")
    assert "v6 = reduce_sum(v5)" in texts["the loop kernel"]
    assert "lines more" in texts["LLVM"] and texts["LLVM"].splitlines()[0].endswith(":")
    assert "slot 1: result float32, 64 B" in texts["the memory plan"]
    assert "NumPy, one operation" in texts["time"]
    assert "1 kernel," in texts["explain()"]


def test_a_fused_op_is_taken_apart_and_agrees_with_numpy() -> None:
    texts = _texts("mo.softmax(x / 8, axis=-1)")
    assert "exp" in texts["after the pass `inline`"]
    assert "divide_by_power_of_two" in texts["explain()"]
    assert "largest difference" in texts["time"]
    assert "walk 2" in texts["the loop kernel"]


@pytest.mark.parametrize("source", ["x @ y.T", "(x + y, x.max())", "y[3]", "x.T.sum(axis=0)",
                                    "mo.cumulative_sum(x, axis=1)", "mo.gelu(mo.layer_norm(x)) * y", "x"])
def test_other_expressions(source: str) -> None:
    texts = _texts(source)
    assert "the memory plan" in texts and "explain()" in texts


@pytest.mark.parametrize("source, kind, words", [
    ("x +", ArgumentError, "is not a Python expression"),
    ("x; y", ArgumentError, "is not a Python expression"),
    ("1 + 2", ArgumentError, "uses neither x nor y"),
    ("x + z", ArgumentError, "NameError"),
    ("x @ y", ShapeError, "do not align"),
    ("x.numpy()", CompileError, "asks for a value"),
])
def test_a_wrong_line_is_one_sentence(source: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        list(tour.stages(source))
    assert "\n" not in str(caught.value)


def test_what_numpy_cannot_run_is_said() -> None:
    assert "NumPy cannot run this line" in _texts("mo.selu(x)")["time"]


def test_shown_in_a_terminal() -> None:
    from rich.console import Console

    file = io.StringIO()
    tour._show_with(Console(file=file, width=100, force_terminal=True, highlight=False), None)
    text = file.getvalue()
    assert "1. the call" in text and "the traced graph" in text and "\x1b[" in text


def test_the_hot_block_is_the_longest() -> None:
    text = "a:\n  one\n.LBB0_2:   // comment\n\tone\n\n\t.p2align 4\n\ttwo\n\tb .LBB0_2\nlast:\n  ret\n"
    assert tour.hot_block(text) == [".LBB0_2:", "        one", "        two", "        b .LBB0_2"]
    assert tour.excerpt([str(i) for i in range(100)]).splitlines()[tour.HEAD].strip() == "... 82 lines more ..."


def test_the_command() -> None:
    result = subprocess.run([sys.executable, "-m", "morpho", "tour", "x +"], capture_output=True, text=True,
                            timeout=120, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("[tour] 'x +' is not a Python expression")
    assert "Traceback" not in result.stderr
