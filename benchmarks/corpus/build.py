"""Make the corpus again from its two sources: `python benchmarks/corpus/build.py KJV.txt SHAKESPEARE.txt`.

README.md beside this file says where the sources come from. The result is written beside this file, with the same bytes
for the same sources.
"""

from __future__ import annotations

import lzma
import re
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("corpus.txt.xz")
CHAPTER = re.compile(r"[1-3]?\s?[A-Z][A-Za-z ]*? \d+")  # "Genesis 1", "1 Kings 22", "Song of Solomon 3"
VERSE = re.compile(r"\s{0,3}(\d+) (.*)")


def chapters(text: str) -> list[str]:
    """Each chapter as its heading and a line per verse, without the verses' numbers, broken lines joined."""
    found: list[list[str]] = []
    expected = 1
    for line in text.splitlines():
        verse = VERSE.fullmatch(line)
        if CHAPTER.fullmatch(line):
            found.append([line])
            expected = 1
        elif verse and int(verse[1]) == expected:
            found[-1].append(verse[2].strip())
            expected += 1
        elif line.strip():
            found[-1][-1] += " " + line.strip()
    return ["\n".join(lines) for lines in found]


def main(bible: str, plays: str) -> None:
    """Write the plays, then the Bible, blocks separated by blank lines."""
    books = chapters(Path(bible).read_text(encoding="ascii"))
    verses = sum(block.count("\n") for block in books)
    if (len(books), verses) != (1189, 31102):
        raise SystemExit(f"the King James Bible has 1189 chapters and 31102 verses, not {len(books)} and {verses}")
    text = Path(plays).read_text(encoding="ascii").strip() + "\n\n" + "\n\n".join(books) + "\n"
    TARGET.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{TARGET}: {len(text)} bytes of text in {TARGET.stat().st_size}")


if __name__ == "__main__":
    main(*sys.argv[1:])
