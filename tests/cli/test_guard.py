"""The command line never shows a traceback: streams that are closed, full or know ASCII alone, Ctrl-C, bad settings,
folders that cannot be written, and faults of Morpho's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import morpho as mo
from morpho.base import settings as base_settings
from morpho.cli import guard
from morpho.cli.guard import EXIT_ERROR, EXIT_FAULT, EXIT_INTERRUPTED, EXIT_PIPE, sentence_of

PYTHON = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def shell(command: str, **environment: str) -> tuple[int, str]:
    """The status of `morpho ...` in a shell, and all it shows."""
    done = subprocess.run(["bash", "-c", command.replace("morpho", f"'{sys.executable}' -m morpho")],
                          env={**PYTHON, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, timeout=120)
    assert "Traceback" not in done.stdout and "Exception ignored" not in done.stdout, done.stdout
    return done.returncode, done.stdout


def one_sentence(text: str) -> str:
    """It, if it is one line that says what and why."""
    lines = text.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("["), text
    return lines[0]


def test_full_closed_and_broken_streams() -> None:
    status, text = shell("morpho models list 2>&1 >/dev/full")
    assert status == EXIT_ERROR and "standard output cannot be written: No space left" in one_sentence(text)
    assert shell("morpho models list <&- >&- 2>&-") == (0, "")
    status, text = shell("set -o pipefail; morpho models list | true")
    assert status in (0, 1, EXIT_PIPE) and text == ""


def test_a_terminal_of_ascii() -> None:
    """Text that it cannot show is shown as question marks, in answers and in errors."""
    status, text = shell("morpho run 東京 --tokens 1 --temperature 0", PYTHONIOENCODING="ascii")
    assert status == 0 and text.startswith("??")
    status, text = shell("morpho run 東京 Tokyo", PYTHONIOENCODING="ascii")
    assert status == EXIT_ERROR and one_sentence(text)


def test_bad_settings_are_not_blamed_on_a_file() -> None:
    status, text = shell("morpho run Once --tokens 1", MORPHO_THREADS="x")
    assert status == EXIT_ERROR and one_sentence(text).startswith("[settings] MORPHO_THREADS='x' is not")


@pytest.mark.parametrize(("variable", "value"), [("MORPHO_THREADS", "x"), ("MORPHO_ISA", "abacus")])
def test_nor_in_the_library(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(base_settings, "_base", None)
    with pytest.raises(mo.errors.ArgumentError) as caught:
        mo.models.load(mo.models.SHIPPED)
    assert "config.json" not in str(caught.value)


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    """The system's own folder, which nobody writes to, root included."""
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a cat. " * 50)
    small = "--layers 1 --width 8 --heads 1 --vocabulary 257 --context 8 --steps 1"
    status, said = shell(f"morpho train --data {text} --out /proc/self/run {small}")
    assert status == EXIT_ERROR and "/proc/self/run cannot be a folder" in one_sentence(said)
    status, said = shell("morpho models pull smollm2", MORPHO_CACHE_DIR="/proc/self/cache")
    assert status == EXIT_ERROR and "could not be stored" in one_sentence(said)


def test_a_cache_that_cannot_be_used_is_said_once() -> None:
    """No home, and a cache folder that cannot be made: a warning, and the answer."""
    status, text = shell("env -u HOME morpho run Once --tokens 1 --temperature 0 2>&1",
                         MORPHO_CACHE_DIR="/proc/self/cache")
    assert status == 0 and text.startswith("[disk cache]") + text.count("[disk cache]") == 2 and "Once" in text


def test_interrupting() -> None:
    """Ctrl-C while a model writes ends its text; the status is that of the command."""
    process = subprocess.Popen([sys.executable, "-m", "morpho", "run", "Once", "--tokens", "240"], env=PYTHON,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.read(4) == "Once"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said and process.returncode in (0, EXIT_INTERRUPTED)


# -- in this process ---------------------------------------------------------------------------------------------------
def ends(error: BaseException | None, capsys: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    def command() -> None:
        if error is not None:
            raise error

    with pytest.raises(SystemExit) as caught:
        guard.guarded(command)
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize(("error", "status", "said"), [
    (None, 0, ""), (SystemExit(3), 3, ""), (SystemExit(None), 0, ""), (KeyboardInterrupt(), EXIT_INTERRUPTED, ""),
    (BrokenPipeError(), EXIT_PIPE, ""),
    (mo.errors.ShapeError("[matmul] no. At x.py:1."), EXIT_ERROR, "[matmul] no. At x.py:1."),
    (PermissionError(13, "Permission denied", "a.txt"), EXIT_ERROR, "[morpho] a.txt: Permission denied."),
    (OSError(28, "No space left on device"), EXIT_ERROR, "standard output cannot be written: No space left on device."),
    (MemoryError(), EXIT_ERROR, "not enough memory"),
    (RecursionError("maximum depth"), EXIT_FAULT, "a fault of Morpho's own: RecursionError: maximum depth."),
    (ZeroDivisionError("a\nb"), EXIT_FAULT, "ZeroDivisionError: a b."),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), EXIT_FAULT, "UnicodeDecodeError"),
])
def test_every_end_is_a_sentence(error: BaseException | None, status: int, said: str,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    found, text = ends(error, capsys)
    assert found == status and said in text and "Traceback" not in text
    assert bool(text) == bool(said) and (not said or one_sentence(text))


def test_debugging_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with mo.settings(log="debug"):
        assert "Traceback" in ends(ZeroDivisionError("x"), capsys)[1]


@pytest.mark.parametrize("error", [OSError(), OSError("text"), Exception(), ValueError(""), KeyError("x\ny")])
def test_sentences_of_odd_errors(error: Exception) -> None:
    text = sentence_of(error)
    assert text.startswith("[morpho] ") and text.endswith(".") and "\n" not in text


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {at!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = [{program!r}]
signal.signal(signal.SIGINT, signal.default_int_handler)
from morpho.cli.main import main
"""


@pytest.mark.parametrize("at", ["morpho.base.errors", "morpho.tensor.core", "morpho.cli", "typer", "morpho.cli.guard"])
def test_interrupted_while_loading(at: str) -> None:
    for program in ("/usr/bin/morpho", "script.py"):
        code = INTERRUPTED_WHILE_LOADING.format(at=at, program=program)
        done = subprocess.run([sys.executable, "-c", code], env=PYTHON, capture_output=True, text=True, check=False,
                              timeout=60)
        if program == "script.py":  # somebody else's program is interrupted as Python does it
            assert "KeyboardInterrupt" in done.stderr
        else:
            assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "\n[morpho] interrupted.\n")


def test_as_a_module_it_is_the_command_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_WHILE_LOADING.format(at="morpho.tensor.core", program="")
                                               .replace("sys.argv =", "unused =").replace("from morpho", "# "))
    environment = {**PYTHON, "PYTHONPATH": os.pathsep.join([str(tmp_path), PYTHON["PYTHONPATH"]])}
    done = subprocess.run([sys.executable, "-m", "morpho", "--version"], env=environment, capture_output=True,
                          text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "\n[morpho] interrupted.\n")
