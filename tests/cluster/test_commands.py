"""`morpho launch` and `morpho train --nodes`, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from starting import HERE, TINY, call

from morpho.base.errors import ArgumentError
from morpho.cli.launch import read_hosts
from morpho.cluster.launch.launcher import Elastic


def test_a_job_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert call("launch", "-n", 2, "--max-restarts", 1, HERE / "once.py", mark) == 0
    assert mark.read_text() == "onceagain"


@pytest.mark.parametrize(("words", "said"), [
    (["nowhere.py"], "there is no script nowhere.py"),
    (["--elastic", "4", "x.py"], "is not LEAST:MOST"),
    (["--elastic", "3:2", "x.py"], "is not LEAST:MOST"),
    (["-n", "9", "--elastic", "2:8", "x.py"], "lies outside --elastic 2:8"),
    (["--hosts", "a b", "x.py"], "is no host"),
    (["--max-restarts", "-1", str(HERE / "once.py")], "is negative"),
])
def test_mistakes_are_told_before_anything_starts(words: list[str], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        call("launch", *words)


def test_a_hosts_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text('agent = "rsh"\n[[host]]\nname = "a"\n[[host]]\nname = "b"\naddress = "10.0.0.2"\n')
    found = read_hosts(str(file), 3)
    assert found.slots == (("a", 2), ("10.0.0.2", 2)) and found.agent == "rsh"
    file.write_text(f'secret = "{tmp_path}/secret"\n[[host]]\nname = "a"\n')
    with pytest.raises(ArgumentError, match=r"the secret .* is not there, or empty"):
        read_hosts(str(file))
    (tmp_path / "secret").write_text("letters")
    assert read_hosts(str(file)).secret == f"{tmp_path}/secret"


def test_elastic() -> None:
    assert Elastic.of("2:8") == Elastic(2, 8)


def test_two_processes_write_the_files_of_one(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a cat, and the cat was fat. " * 60, encoding="utf-8")
    for nodes in (1, 2):
        assert call("train", "--data", text, "--out", tmp_path / str(nodes), *TINY, "--nodes", nodes) == 0
    for name in ("losses.jsonl", "model.safetensors", "tokens.bin", "run.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_a_mistake_in_the_run_ends_every_rank(tmp_path: Path) -> None:
    assert call("train", "--data", tmp_path / "nothing.txt", "--out", tmp_path / "run", "--nodes", 2) != 0
