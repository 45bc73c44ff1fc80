"""The bits of programs on this machine's native code, against those of every machine seen so far."""

from __future__ import annotations

from pathlib import Path

from benchmarks import bits


def test_the_bits_are_those_of_every_other_machine() -> None:
    found, expected = bits.digests("native"), bits.known()
    assert found.keys() == expected.keys()
    assert [label for label in found if found[label] != expected[label]] == []


def test_the_pages_say_how_many_programs_they_are() -> None:
    docs = Path(__file__).parents[2] / "docs"
    assert f" {len(bits.known())} programs, " in (docs / "numerics.md").read_text(encoding="utf-8")
    assert f"all {len(bits.known())}" in (docs / "measurements.md").read_text(encoding="utf-8")
