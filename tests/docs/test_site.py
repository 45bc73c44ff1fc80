"""The site: every public name has a place in the reference, pages are as stored, and the map is the tree."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

from docs import build
from docs.tools import error_texts, measurements, outside, pictures, public, reference

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "morpho"


def test_every_public_name_is_in_the_reference() -> None:
    """On a page that picks it, and every page is in the list of pages."""
    assert set(public.names()) == reference.covered()
    listed = set(re.findall(r"^(\w+)$", (reference.PAGES / "index.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {page.stem for page in reference.PAGES.glob("*.md")} - {"index"}


def test_what_the_reference_writes_of_a_name() -> None:
    """A signature, the text, the example in a block of its own, the methods of a class."""
    text = reference.entry("mo.optim.StepLR", public.names()["mo.optim.StepLR"])
    assert text.startswith("``````{py:class} mo.optim.StepLR(optimizer, step_size, gamma=0.1)\n")
    assert "```pycon\n>>> " in text
    shown = reference.markdown("Text with `code` and *stars*.\n\nmost: the size\n    of it\nleast: more\n\n>>> 1\n1")
    assert shown == ("Text with `code` and \\*stars\\*.\n\n- `most`: the size of it\n- `least`: more\n\n"
                     "```pycon\n>>> 1\n1\n```")


def test_the_page_of_measurements_is_as_stored() -> None:
    """`python -m docs.tools.measurements` writes it; a figure that other pages quote is the same there."""
    assert measurements.PAGE.read_text(encoding="utf-8") == measurements.page()
    assert measurements.disagreements() == []
    assert not re.findall(r"\{(?!raw\})\w+\}", measurements.page())


def test_a_stored_run_becomes_a_section() -> None:
    """The JSON of `morpho bench --json`."""
    target = {"name": "add", "figure": 1.25, "bound": 1.5, "unit": "x", "verdict": "MISS"}
    text = measurements.run("2026-11-20-core", {"machine": {"cpu": "N1", "cores_usable": 2, "python": "3.11"},
                                                "themes": [{"theme": "fusion", "targets": [target]}]})
    assert "| add | 1.25x | 1.5x | **missed** |" in text


def test_pictures_are_as_drawn() -> None:
    """`python -m docs.tools.pictures` writes them; a phone shows them without scaling the text below 11 pixels."""
    assert pictures.stale() == [], "run python -m docs.tools.pictures"
    for name in pictures.PICTURES:
        assert f'viewBox="0 0 {pictures.WIDTH} ' in (pictures.STATIC / f"{name}.svg").read_text(encoding="utf-8")


def test_error_texts_are_listed_without_private_words() -> None:
    """The list has every error text, and none of them uses a word that only this project knows."""
    texts = dict(error_texts.error_texts())
    assert len(texts) > 1500
    private = re.compile(r"\b(?:doors?|rooms?|houses?|seams?|strangers?|a turn|turns are|is told|was told)\b")
    assert [place for place, said in texts.items() if any(map(private.search, said))] == []


def test_losses_and_wins_stand_in_their_sections() -> None:
    """Every ratio of the first table, or the times it is made of, is a figure of the section it links to."""
    text, content = measurements.page(), json.loads((measurements.DATA / "summary.json").read_text(encoding="utf-8"))
    for area, case, _, place, ratios, *times in content["rows"]:
        section = text.split(f"\n## {content['machines'][place]}\n")[1].split("\n## ")[0]
        absent = [figure for figure in (times[0] if times else ratios)
                  if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", section)]
        assert not absent, f"{area}, {case}: {absent}"


def rooms() -> set[str]:
    """Folders with source, as the map writes them."""
    return {f"{folder.relative_to(PACKAGE).as_posix()}/" for folder in PACKAGE.glob("**")
            if folder != PACKAGE and any(folder.glob("*.py")) and "shipped" not in folder.parts}


def test_the_map_names_every_room() -> None:
    """One line each, and no room that is not there; deeper folders may stand with the one around them."""
    text = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| `([\w/]+/)` \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows))
    gone = set(rows) - rooms()
    assert not gone, f"the map names what is not there: {sorted(gone)}"
    missing = [room for room in rooms() - set(rows) if room.count("/") < 3 or room.rsplit("/", 2)[0] + "/" not in rows]
    assert not missing, f"the map does not name {sorted(missing)}"


def test_paths_in_pages_about_the_source_exist() -> None:
    """`room/` and `room/file.py` in the architecture, the glossary and the map."""
    wrong = []
    bases = (PACKAGE, PACKAGE.parent, ROOT, PACKAGE / "passes", PACKAGE / "backends", PACKAGE / "backends" / "kernels")
    for page in ("architecture.md", "glossary.md", "map.md"):
        for path in re.findall(r"`([a-z_]+/[\w/]*(?:\.py)?)`", (ROOT / "docs" / page).read_text(encoding="utf-8")):
            if not any((base / path).exists() for base in bases):
                wrong.append(f"{page}: {path}")
    reserved = {"linalg/", "sparse/", "logic/", "cluster/", "serve/"}
    assert not [each for each in wrong if each.partition(": ")[2] not in reserved]


def test_checks_of_the_built_site(tmp_path: Path) -> None:
    """What a page would fetch from elsewhere, and links that lead nowhere, are found; links to other sites are fine."""
    page = tmp_path / "index.html"
    page.write_text('<script src="https://cdn.example/x.js"></script><a href="https://example.org">e</a>'
                    '<a href="gone.html">g</a><a href="#here">h</a><p id="here"><a href="#nowhere">n</a></p>')
    (tmp_path / "a.css").write_text("@font-face { src: url(//fonts.example/f.woff) } a { background: url(b.png) }")
    assert build.fetched_from_elsewhere(tmp_path) == ["index.html: https://cdn.example/x.js",
                                                      "a.css: //fonts.example/f.woff"]
    assert build.broken_links(tmp_path) == ["index.html: gone.html", "index.html: #nowhere"]


def test_examples_of_the_tools_are_true() -> None:
    """Of the modules that make the site."""
    for module in (outside, public):
        assert doctest.testmod(module).failed == 0
