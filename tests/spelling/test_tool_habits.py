"""Habits beside the spelling: tracebacks, notebooks, outputs by name, what is said once, options of the command."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base import errors
from morpho.models.vision.clip import Compared
from morpho.tensor import operands

FAULTS = """
import morpho as mo
def product(a):
    return a @ mo.ones((7, 7))
def broken(a):
    return 1 // 0
"""


def shown(line: str, **environment: str) -> list[str]:
    """Lines of standard error of a program of its own."""
    run = subprocess.run([sys.executable, "-c", FAULTS + line], capture_output=True, text=True, check=False,
                         env={**os.environ, **environment}, timeout=60)
    assert run.returncode == 1
    return run.stderr.splitlines()


def files_of(lines: list[str]) -> set[str]:
    return {line.split('"')[1] for line in lines if line.startswith("  File ")}


def test_an_uncaught_error_ends_at_the_users_line() -> None:
    lines = shown("mo.compile(product)(mo.ones((2, 4)))")
    assert files_of(lines) == {"<string>"} and lines[-1].startswith("morpho.base.errors.ShapeError: [matmul]")
    assert any("in product" in line for line in lines)


def test_debug_shows_every_frame() -> None:
    assert any("morpho" in file for file in files_of(shown("product(mo.ones((2, 4)))", MORPHO_LOG="debug")))


def caught(call: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def names(error: BaseException) -> list[str]:
    entries, entry = [], error.__traceback__
    while entry is not None:
        entries.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    return entries


def test_which_errors_are_folded() -> None:
    def user(a: Any) -> Any:
        return a["key"] if isinstance(a, dict) else a + mo.ones(5)

    def chained() -> None:
        try:
            user(mo.ones(4))
        except mo.errors.ShapeError as error:
            raise KeyError("outer") from error

    assert names(errors.fold(caught(lambda: user(mo.ones(4)))))[-1] == "user"
    error = caught(lambda: mo.compile(lambda a: user({}))(mo.ones(3)))  # the user's own, through Morpho's frames
    assert names(errors.fold(error))[-2:] == ["<lambda>", "user"]
    error = errors.fold(caught(chained))
    assert names(error)[-1] == "chained" and error.__cause__ is not None and names(error.__cause__)[-1] == "user"
    loop = ValueError()
    loop.__context__ = ValueError()
    loop.__context__.__context__ = loop
    assert errors.fold(loop) is loop


def test_a_fault_of_morphos_own_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "sentence", None)
    error = errors.fold(caught(lambda: mo.ones(3) + mo.ones(4)))
    assert isinstance(error, TypeError) and names(error)[-1] != "<lambda>"


def test_threads_and_ipython_show_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    error = caught(lambda: mo.ones(3) + mo.ones(4))
    lines = error._render_traceback_()  # type: ignore[attr-defined]
    assert lines[-1].startswith("morpho.base.errors.ShapeError") and not any("/morpho/" in file
                                                                             for file in files_of(lines))
    assert threading.excepthook is not threading.__excepthook__


def test_notebooks_show_html() -> None:
    double = mo.compile(lambda x: x * 2)
    assert "not been called" in double._repr_html_()
    double(mo.ones(3))
    assert "1 kernel" in double._repr_html_()
    assert double.explain()._repr_html_().startswith("<pre>&lt;lambda&gt;(x): 1 kernel")
    model = mo.nn.Sequential(mo.nn.Linear(4, 3), mo.nn.Sequential(mo.nn.ReLU()))
    text = model._repr_html_()
    assert "0: <code>Linear(4, 3)</code> <small>15 parameters</small>" in text and text.count("<details") == 2
    with mo.profile(memory=False) as profile:
        assert "not over yet" in profile._repr_html_()
        double(mo.ones(3))
    assert profile._repr_html_().startswith("<pre>")


def test_outputs_of_models_by_name_and_place() -> None:
    output = mo.models.Output(mo.ones(2), (mo.zeros(3),))
    logits, states = output
    assert output["logits"] is output[0] is output.logits is logits and output["hidden_states"] is states
    assert list(output.keys()) == ["logits", "hidden_states"] and "logits" in output and "loss" not in output
    assert dict(output.items())["logits"] is logits and output.to_tuple()[1] is states and output[1:] == (states,)
    assert type(output.to_tuple()) is tuple
    with pytest.raises(KeyError, match="logits, hidden_states"):
        output["loss"]
    compared = Compared(mo.ones(1), mo.ones(2), mo.ones(3))
    assert compared["text_embeds"] is compared[-1]
    doubled = mo.compile(lambda value: Compared(*[part * 2 for part in value]))(compared)
    assert isinstance(doubled, Compared) and doubled["logits"].item() == 2


def test_a_monitored_histogram_gives_its_moments() -> None:
    times = mo.monitor.histogram("tool_habits_seconds")
    assert np.isnan([times.mean(), times.median(), times.std(), times.min(), times.max()]).all()
    values = [3.0, 1.0, 4.0, 1.5]
    for value in values:
        times.observe(value)
    assert (times.min(), times.max(), times.median()) == (1.0, 4.0, 2.25)
    np.testing.assert_allclose([times.mean(), times.std()], [np.mean(values), np.std(values)])


@pytest.mark.parametrize(("layer", "shape"), [(mo.nn.Linear(3, 2), (1, 3)), (mo.nn.Conv2d(3, 2, 1), (1, 3, 4, 4))])
def test_a_float64_input_of_a_float32_layer_is_said_once(layer: Any, shape: tuple[int, ...],
                                                         caplog: pytest.LogCaptureFixture,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "_widened", [])
    with caplog.at_level(logging.WARNING, "morpho"):
        layer(mo.ones(shape))
        layer(mo.ones(shape).to("cpu"))
        assert not caplog.records
        for _ in range(2):
            assert layer(mo.asarray(np.ones(shape))).dtype == mo.float64
    assert [record.getMessage().count("is float64 (said once)") for record in caplog.records] == [1]


def test_options_of_the_command() -> None:
    from typer.testing import CliRunner

    from morpho.cli.main import app, version

    assert CliRunner().invoke(app, ["-V"]).output == f"morpho {version()}\n"
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output
    output = CliRunner().invoke(app, [], prog_name="morpho", env={"_MORPHO_COMPLETE": "complete_bash",
                                                                 "COMP_WORDS": "morpho do", "COMP_CWORD": "1"}).output
    assert output.strip() == "doctor"
