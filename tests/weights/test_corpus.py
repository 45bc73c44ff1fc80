"""The text that the model which ships is trained on: whole, clean, and made by the script beside it."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from benchmarks.corpus import build


def test_the_corpus() -> None:
    """Both parts, ASCII, within its bound, no line with stray spaces."""
    text = lzma.open(build.TARGET, "rt", encoding="ascii").read()
    assert 5_000_000 < len(text) < 5_500_000
    assert text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n")
    assert "\n\nGenesis 1\nIn the beginning God created the heaven and the earth.\nAnd the earth" in text
    assert text.endswith("\nThe grace of our Lord Jesus Christ be with you all. Amen.\n")
    bible = text[text.index("\n\nGenesis 1\n"):].strip().split("\n\n")
    assert len(bible) == 1189 and sum(chapter.count("\n") for chapter in bible) == 31102
    assert not any(line != line.strip() for chapter in bible for line in chapter.split("\n"))


def test_chapters() -> None:
    """Numbers go, broken lines are joined, a number at the beginning of a broken line stays."""
    text = "\n1 Kings 2\n\n  1 And it was\nso.\n  2 He had\n700 wives.\n\nObadiah 1\n\n 1 The end.\n"
    assert build.chapters(text) == ["1 Kings 2\nAnd it was so.\nHe had 700 wives.", "Obadiah 1\nThe end."]


def test_missing_verses(tmp_path: Path) -> None:
    """A source with other counts is refused."""
    (tmp_path / "kjv").write_text("Genesis 1\n\n  1 In the beginning.\n")
    (tmp_path / "plays").write_text("First Citizen:\n")
    with pytest.raises(SystemExit, match="not 1 and 1"):
        build.main(str(tmp_path / "kjv"), str(tmp_path / "plays"))
