"""The tutorials on shipping run as they are written: Python, C and shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from libraries import needs

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """Kind and text of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def test_a_model_in_a_c_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("cc")
    monkeypatch.chdir(tmp_path)
    parts = blocks("tutorials/ship_c.md")
    names: dict[str, object] = {}
    for kind, text in parts:
        if kind == "python":
            exec(text, names)
    (tmp_path / "main.c").write_text(next(text for kind, text in parts if kind == "c"))
    commands = next(text for kind, text in parts if kind == "sh")
    done = subprocess.run(["sh", "-ec", commands], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == next(text for kind, text in parts if kind == "text")


def test_a_model_in_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("node")
    monkeypatch.chdir(tmp_path)
    parts = blocks("tutorials/ship_page.md")
    names: dict[str, object] = {}
    for kind, text in parts:
        if kind == "python":
            exec(text, names)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "call.js").write_text(next(text for kind, text in parts if kind == "js"))
    done = subprocess.run(["node", "call.js"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == next(text for kind, text in parts if kind == "text")
