"""`morpho tune`: a script from the command line to a choice in a file. Nothing here is timed: the box is short."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.base.errors import ArgumentError, ValueFault
from morpho.cli.main import app
from morpho.cost.tuned_choices import Choice
from morpho.runtime import thresholds
from morpho.runtime.tuner import store
from morpho.runtime.tuner.store import Row

SCRIPT = """
import sys
import morpho as mo
rows = int(sys.argv[1])
print(mo.compile(lambda x: mo.exp(x @ x.T))(mo.ones((rows, 32))).shape)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with mo.settings(cache_dir=str(tmp_path / "cache")):
        yield tmp_path
    store._kept.cache_clear()
    thresholds.tuned_anew()


def tune(*words: str) -> Any:
    return CliRunner().invoke(app, ["tune", *words])


def test_a_script_is_run_and_tuned(folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    found = tune("--seconds", "0.2", str(script), "40")
    assert found.exit_code == 0, found.output
    assert "(40, 40)" in found.stdout and "problems explored" in found.stdout


@pytest.mark.parametrize("text, says", [("raise ValueError('no')", "ended with status 1"),
                                        ("raise SystemExit(3)", "ended with status 3"), ("x = 1", "compiled nothing"),
                                        ("x = (", "script.py, line 1 is not Python: '(' was never closed")])
def test_scripts_that_cannot_be_tuned(folder: Path, text: str, says: str) -> None:
    script = folder / "script.py"
    script.write_text(text)
    found = tune(str(script))
    assert isinstance(found.exception, ArgumentError) and says in str(found.exception)


def test_choices_are_listed_exported_imported_and_forgotten(folder: Path) -> None:
    store.keep({"matmul float32 1x64x64x64 given t2 avx2": Row(Choice(height=4), 1.2, 10)})
    assert "mr 4  1.20x" in tune("--list").stdout
    file = folder / "out.json"
    assert "1 choices written" in tune("--export", str(file)).stdout
    assert "forgotten" in tune("--forget").stdout and "0 choices" in tune("--list").stdout
    assert "1 choices taken" in tune("--import", str(file)).stdout
    file.write_text(file.read_text().replace("1.2", "1.3"))
    assert isinstance(tune("--import", str(file)).exception, ValueFault)


@pytest.mark.parametrize("words", [(), ("--list", "--forget"), ("--list", "script.py")])
def test_one_thing_at_a_time(words: tuple[str, ...]) -> None:
    found = tune(*words)
    assert found.exit_code == 2 and "give a script, or one of" in found.output


def test_what_is_not_there_is_told(folder: Path) -> None:
    for words in (("nothing.py",), ("--import", str(folder / "nothing.json"))):
        assert isinstance(tune(*words).exception, ArgumentError)
