"""`morpho profile`: scripts with their arguments, files, errors in a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import morpho as mo
from morpho.cli.main import app
from morpho.observe.trace.model import Trace

SCRIPT = """
import sys
import morpho as mo
f = mo.compile(lambda x: mo.tanh(x) * 2)
x = mo.ones(100)
for _ in range(int(sys.argv[1])):
    x = f(x)
print("argument", sys.argv[1:], __name__)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "work.py"
    path.write_text(SCRIPT)
    return str(path)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["profile", *words])
    if isinstance(result.exception, mo.errors.MorphoError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_a_script_with_its_arguments(script: str, tmp_path: Path) -> None:
    out = [tmp_path / name for name in ("r.html", "r.svg", "r.perfetto.json", "r.json")]
    before = sys.argv
    code, text = run(*(f"--out={path}" for path in out), script, "25", "--flag")
    assert code == 0 and sys.argv is before, text
    assert "argument ['25', '--flag'] __main__" in text
    assert text.index("would save") < text.index("operations") < text.index("memory:")
    assert all(path.stat().st_size for path in out)
    (row,) = [row for row in Trace.load(out[3]).ops if row.name.startswith("tanh")]
    assert row.calls == 25 and row.line.endswith("work.py:4")
    assert json.loads(out[2].read_text())["traceEvents"]


def test_traces_of_ranks_are_merged(tmp_path: Path) -> None:
    for rank in range(2):
        Trace("job", 1.0, seconds={"python": 1.0}, rank=rank, started_unix_s=5.0 + rank).save(
            tmp_path / f"{rank}.json")
    code, text = run("--merge", str(tmp_path / "0.json"), "--merge", str(tmp_path / "1.json"),
                     "--out", str(tmp_path / "all.json"))
    assert code == 0 and Trace.load(tmp_path / "all.json").ranks == 2, text
    code, _ = run("--merge", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "--out", str(tmp_path / "all.html"))
    assert code == 0 and (tmp_path / "all.html").stat().st_size
    assert "there is no trace" in run("--merge", str(tmp_path / "2.json"))[1]


def test_a_script_that_fails_is_shown_as_python_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    return 1 / 0\nf()\n")
    code, text = run(str(path))
    assert code == 1 and "no kernel of Morpho ran" in text
    path.write_text("raise SystemExit(7)\n")
    assert run(str(path))[0] == 7
    path.write_text("raise SystemExit('no data')\n")
    code, text = run(str(path))
    assert code == 1 and "no data" in text


def test_what_is_not_python_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("x = (\n")
    assert "bad.py, line 1 is not Python: '(' was never closed" in run(str(path))[1]
    path.write_bytes(b"\0\1")
    assert "is not Python" in run(str(path))[1]


def test_an_option_behind_the_script_is_the_scripts_and_that_is_said(script: str, tmp_path: Path) -> None:
    code, text = run(script, "2", "--out", str(tmp_path / "r.html"))
    assert code == 0 and "argument ['2', '--out'" in text and "write it before the script" in text
    assert not (tmp_path / "r.html").exists()


def test_stacks_begin_with_the_script(tmp_path: Path) -> None:
    path = tmp_path / "busy.py"
    path.write_text("import time\nend = time.time() + 0.3\nwhile time.time() < end:\n    pass\n")
    assert run("--out", str(tmp_path / "r.json"), str(path))[0] == 0
    stacks = Trace.load(tmp_path / "r.json").stacks
    assert any(stack.startswith("<module> (busy.py") for stack in stacks), stacks
    assert not any(";<module> (busy.py" in stack for stack in stacks), stacks


@pytest.mark.parametrize(("words", "complaint"), [
    (["none.py"], "there is no script none.py"),
    ([], "name a script"),
    (["--out", "a.png", "none.py"], "none of the endings"),
    (["--out", "no/such/folder/a.svg", "none.py"], "no such folder"),
])
def test_mistakes_are_told_in_a_sentence(words: list[str], complaint: str) -> None:
    code, text = run(*words)
    assert code == 2 and complaint in " ".join(text.split()), text


def test_a_file_that_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    code, text = run("--merge", str(tmp_path / "x.json"))
    assert code == 2 and "no trace of version" in text


def test_symbols_for_perf(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = run("--jitdump", script, "2")
    assert code == 0 and list(tmp_path.glob("jit-*.dump")), text
