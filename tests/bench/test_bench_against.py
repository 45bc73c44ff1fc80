"""The regression gate on files, the history of ratios, and the bisection: no times are taken here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from benchmarks.harness import against, bisect, history
from morpho.cli.main import app

MACHINE = {"cpu": "a processor", "architecture": "x86_64", "cores_usable": 2, "caches": {}, "load_average": [0.1],
           "packages": {"morpho-tensor": "1.2"}}


def written(path: Path, ratios: dict[str, Any], machine: Any = MACHINE) -> Path:
    path.write_text(json.dumps({"machine": machine, "ratios": ratios}))
    return path


def morpho(*words: str) -> Any:
    return CliRunner().invoke(app, ["bench", *words])


def test_a_ratio_that_lost_more_than_a_fifth_fails(tmp_path: Path) -> None:
    stored = written(tmp_path / "baseline.json", {"gelu/a vs numpy": 2.0, "gelu/b vs numpy": 1.0, "gelu/c": 1.0})
    fine = written(tmp_path / "fine.json", {"gelu/a vs numpy": 1.7, "gelu/b vs numpy": 1.5})
    worse = written(tmp_path / "worse.json", {"gelu/a vs numpy": 1.5, "gelu/b vs numpy": 1.5})
    found = morpho("--against", str(stored), "--results", str(fine))
    assert found.exit_code == 0 and "PASS: 2 ratios compared, 0 regressed" in found.stdout
    found = morpho("--against", str(stored), "--results", str(worse))
    assert found.exit_code == 1
    assert "GATE  MISS gelu/a vs numpy: 1.500x, stored 2.000x (-25%)" in found.stdout
    assert "-25.0%" in found.stdout and "WORSE" in found.stdout and "+50.0%" in found.stdout


@pytest.mark.parametrize("content, says", [
    ("{", "is not JSON"), ("[]", "has no ratios"), ('{"ratios": {}}', "has no ratios"),
    ('{"ratios": {"a": "fast"}}', "'a' is no positive number"), ('{"ratios": {"a": -1}}', "no positive number"),
    ('{"ratios": {"a": NaN}}', "no positive number"), ('{"ratios": {"a": 1' + "0" * 400 + "}}", "no positive number"),
    ("[" * 100_000, "is not JSON")], ids=range(8))
def test_odd_files_are_one_sentence(tmp_path: Path, content: str, says: str) -> None:
    odd, fine = tmp_path / "odd.json", written(tmp_path / "fine.json", {"gelu/a": 1.0})
    odd.write_text(content)
    for words in (("--against", str(odd), "--results", str(fine)), ("--against", str(odd)),
                  ("core", "--against", str(odd))):
        found = morpho(*words)
        assert found.exit_code == 2 and says in found.stdout


def test_a_missing_file_is_told_before_anything_runs(tmp_path: Path) -> None:
    found = morpho("core", "--against", str(tmp_path / "none.json"))
    assert found.exit_code == 2 and "cannot be read" in found.stdout


def test_nothing_in_common_is_a_failure(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a.json", {"gelu/a": 1.0}), written(tmp_path / "b.json", {"gelu/b": 1.0})
    assert against.judge_files(one, other) == 1


def test_the_suites_of_a_file_are_found_by_their_themes() -> None:
    found = against.suites_of({"gelu/a": 1.0, "fusion/b": 1.0, "matmul/c": 1.0, "unknown/d": 1.0})
    assert found == {"core": ["gelu", "fusion"], "kernels": ["matmul"]}


def test_all_suites_of_the_harness_are_commands() -> None:
    from benchmarks.harness.run import SUITES
    from morpho.cli.machine import bench_commands

    assert {suite.name for suite in bench_commands.SUITES} == SUITES.keys()
    for suite in bench_commands.SUITES:
        assert suite.peers == bool(SUITES[suite.name].peers)


def test_runs_are_noted_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "history.jsonl"
    for value in (1.0, 2.0, 1.5):
        history.append(file, {"machine": MACHINE, "suite": "core", "threads": 2, "quick": True},
                       {"gelu/a vs numpy": value, "fusion/b": 3.0})
    with file.open("a") as out:
        out.write("cut o")
    rows, odd = history.read(file)
    assert len(rows) == 3 and odd == 1
    assert rows[0]["version"] == "1.2" and rows[0]["machine"] == history.fingerprint(MACHINE)
    found = morpho("history", "--file", str(file), "--case", "gelu", "--svg", str(tmp_path / "a.svg"))
    assert found.exit_code == 0 and "▁█▅" in found.stdout and "+50.0%" in found.stdout
    assert "fusion" not in found.stdout and "1 lines" in found.stdout
    drawn = ElementTree.fromstring((tmp_path / "a.svg").read_text())
    assert len(drawn.findall(".//{http://www.w3.org/2000/svg}circle")) == 3
    assert morpho("history", "--file", str(file), "--svg", str(tmp_path / "a.html")).exit_code == 0
    assert (tmp_path / "a.html").read_text().count("<svg") == 1


def test_the_history_says_what_is_missing(tmp_path: Path) -> None:
    found = morpho("history", "--file", str(tmp_path / "none"))
    assert found.exit_code == 2 and "there is no history" in found.stdout
    (tmp_path / "empty").write_text("\n")
    assert morpho("history", "--file", str(tmp_path / "empty")).exit_code == 2
    history.append(tmp_path / "one", {"machine": MACHINE}, {"gelu/a": 1.0})
    assert "no ratio" in morpho("history", "--file", str(tmp_path / "one"), "--case", "zzz").stdout


def repository(folder: Path, values: list[int]) -> list[str]:
    """A repository with a commit for each value, which `python value.py` prints; 0 fails."""
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder,
                              capture_output=True, text=True, check=True)
        return done.stdout.strip()

    folder.mkdir()
    git("init", "--quiet")
    commits = []
    for number, value in enumerate(values):
        (folder / "value.py").write_text(f"# {number}\nprint('value', {value})" if value else "raise SystemExit(3)")
        git("add", "value.py")
        git("commit", "--quiet", "-m", f"commit {number}")
        commits.append(git("rev-parse", "HEAD"))
    return commits


def test_bisect_finds_the_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "repository"
    commits = repository(place, [10, 11, 10, 0, 20, 21, 20])
    command = f"{sys.executable} value.py"
    assert bisect.find_commit(place, commits[0], commits[-1], "value", command=command) in (0, 1)
    out = capsys.readouterr().out
    assert "good" in out and "bad" in out
    assert bisect.find_commit(place, commits[0], commits[2], "value", command=command) == 2
    assert "is not worse" in capsys.readouterr().out
    commits = repository(tmp_path / "plain", [10, 11, 10, 20, 21, 20])
    assert bisect.find_commit(tmp_path / "plain", commits[0], commits[-1], "value", command=command) == 0
    out = capsys.readouterr().out
    assert "first bad commit:" in out and "commit 3" in out
    left = subprocess.run(["git", "worktree", "list"], cwd=tmp_path / "plain", capture_output=True, text=True).stdout
    assert len(left.splitlines()) == 1


def test_bisect_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commits = repository(tmp_path / "repository", [10, 20])
    place = tmp_path / "repository"
    assert bisect.find_commit(place, "nothing", commits[1], "value", command="x") == 2
    assert bisect.find_commit(place, commits[1], commits[0], "value", command="x") == 2
    assert "not an ancestor" in capsys.readouterr().out
    assert bisect.find_commit(place, commits[0], commits[1], "no such theme/a") == 2
    assert "is no ratio" in capsys.readouterr().out
    assert bisect.find_commit(place, commits[0], commits[1], "v", command=f"{sys.executable} -c 'print(1); 1/0'") == 2
    assert "failed with 1" in capsys.readouterr().out
