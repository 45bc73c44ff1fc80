"""The code in README.md and docs/ runs: a reader can paste it.

Each file's `python` blocks are executed in order in one namespace, in an empty folder. There is no way to opt out; what
should not run is not marked as `python` (use `text`, or `pycon` for a transcript). A block marked `output` shows what
the `python` block before it prints; `...` stands for anything, and white space does not count. A page about a library
of an extra begins with `<!-- needs: NAME -->` and is skipped where that library is not installed.
"""

from __future__ import annotations

import contextlib
import contextvars
import doctest
import io
import linecache
import re
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TEST_COMMAND = "python -m pytest -n auto"


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its code, and the line of the file where the code begins (from 1)."""

    info: str
    code: str
    line: int


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a Markdown text, in order; a fence that is never closed is an error."""
    found: list[Block] = []
    fence, info, begin = "", "", 0
    gathered: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"\s*(`{3,}|~{3,})(.*)$", line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                found.append(Block(info, textwrap.dedent("\n".join(gathered)) + "\n", begin))
                fence = ""
            else:
                gathered.append(line)
        elif match:
            fence, info, begin, gathered = match[1], match[2].strip(), number + 1, []
    if fence:
        raise ValueError(f"the block that begins at line {begin - 1} is never closed")
    return found


def run(path: Path, name: str) -> int:
    """Execute the file's `python` blocks in one namespace and compare what they print with the `output` blocks; how
    many were executed. Errors point at the file's own lines."""
    namespace: dict[str, object] = {"__name__": "__main__", "__file__": str(path)}
    executed, printed = 0, ""
    text = path.read_text(encoding="utf-8")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # whoever reads a function's source
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.info == "output":
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert doctest.OutputChecker().check_output(block.code, printed, flags), (
                f"{name}:{block.line}: the page shows\n{block.code}\nbut the code prints\n{printed}")
        if block.info != "python":
            continue
        code = compile("\n" * (block.line - 1) + block.code, name, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as captured:
            exec(code, namespace)
        executed, printed = executed + 1, captured.getvalue()
    return executed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_in_documents_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of the file, in order, in an empty folder and with settings that do not leak into other tests."""
    needed = re.match(r"<!-- needs: (\w+) -->", path.read_text(encoding="utf-8"))
    if needed:
        pytest.importorskip(needed[1], reason=f"{path.name} is about {needed[1]}, which is not installed")
    monkeypatch.chdir(tmp_path)
    contextvars.copy_context().run(run, path, str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_block_escapes(path: Path) -> None:
    """A block that is nearly marked as `python` would look executed and not be."""
    for block in blocks(path.read_text(encoding="utf-8")):
        words = block.info.lower().split()
        if words and words[0].strip("{}.,") in ("py", "python", "python3"):
            assert block.info == "python", f"{path.name}:{block.line - 1}: write `python`, not `{block.info}`"


def test_readme_has_code_and_the_test_command() -> None:
    """README.md holds Python to execute, and the test command that `.ci/run` ends with."""
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert any(block.info == "python" for block in found)
    lines = [line.split("  #")[0].strip() for block in found for line in block.code.splitlines()]
    assert any(re.search(rf"(^|&& |\$ ){re.escape(TEST_COMMAND)}$", line) for line in lines), f"no `{TEST_COMMAND}`"
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().splitlines()[-1] == TEST_COMMAND


def test_the_page_of_settings_lists_each() -> None:
    """The table of docs/settings.md has the settings that exist, in order."""
    from morpho.base.settings import describe

    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(describe)


def test_the_page_of_commands_lists_each() -> None:
    """The tables of docs/commands.md have the commands that exist, and no other."""
    from morpho.cli.main import app

    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    shown = re.findall(r"`morpho ([^`]*)`", " ".join(re.findall(r"^\|([^|]*)\|", text, re.MULTILINE)))
    commands = [str(command.name) for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [f"{group.name} {command.name}" for command in group.typer_instance.registered_commands]
    missing = [name for name in commands if not any(f"{line} ".startswith(f"{name} ") for line in shown)]
    unknown = [line for line in shown if not any(f"{line} ".startswith(f"{name} ") for name in commands)]
    assert not missing and not unknown


SECTIONS = {  # column "machine" of README's table: page and section with its figures
    "Xeon": ("measurements.md", "A Xeon with AVX-512 and AMX"),
    "N1": ("measurements.md", "A Neoverse N1 server core pair"),
    "H200": ("measurements.md", "An NVIDIA H200"),
}
FIGURE = re.compile(r"\d[\d.]*(?:x\b| [un]s\b)?")


def section(page: str, title: str) -> str:
    """Text below a heading of the second level."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def absent(figures: list[str], text: str) -> list[str]:
    """Figures that the text does not have: with their unit, and not as a part of a longer number."""
    return [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", text)]


def test_figures_of_the_readme_are_those_measured() -> None:
    """Each result of the table, and each time below it, stands in the section on the same machine."""
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## How fast")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (\w+) \|$", shown, re.MULTILINE)[1:]
    assert len(rows) >= 10 and {row[3] for row in rows} == set(SECTIONS)
    for case, _, result, machine in rows:
        figures = FIGURE.findall(result)
        assert figures, case
        assert absent(figures, section(*SECTIONS[machine])) == [], case
    below = shown.rpartition("|\n")[2]
    times = re.findall(r"[\d.]+ ms|\d+(?= to \d+ ms)", below)
    measured = "\n".join(section(*place) for place in SECTIONS.values())
    assert len(times) >= 3 and absent(times, measured) == []


def test_figures_of_the_page_for_choosing_are_those_measured() -> None:
    """Ratios, times and rates of docs/why.md stand in the measurements of these machines, targets included."""
    shown = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    figures = re.findall(r"[\d.,]*\d(?:x\b| us\b| ms\b| s\b)|\d+(?= TFLOP/s)", shown)
    measured = "\n".join(section(*place) for place in SECTIONS.values())
    assert len(figures) > 25
    numbers = [figure.removesuffix(" us") for figure in figures]  # gpu.md writes several times before one unit
    assert absent(numbers, measured) == []


def test_a_figure_without_its_unit_is_absent() -> None:
    """A figure counts only as a whole."""
    assert absent(["2.4x", "205 us", "28"], "2.4x; 205 us and 28 TFLOP/s") == []
    assert absent(["2.4x", "205 us", "28"], "12.4x, 2.45x; 1205 us; 280") == ["2.4x", "205 us", "28"]


def test_the_page_on_errors_names_every_class() -> None:
    """Each has a row of docs/errors.md, with the built-in classes it derives from."""
    import morpho as mo
    from morpho.cluster.transport import frame
    from morpho.serve.engine import request
    from morpho.tensor.interop import interop

    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    root = mo.errors.MorphoError
    kinds = [kind for module in (mo.errors, mo.weights, mo.logic, interop, request, frame)
             for kind in vars(module).values()
             if isinstance(kind, type) and issubclass(kind, root) and kind is not root]
    assert set(rows) == {kind.__name__ for kind in kinds}
    for kind in kinds:
        plain = [base.__name__ for base in kind.__bases__ if base is not root]
        assert re.findall(r"`(\w+)`", rows[kind.__name__]) == plain, kind


def test_pages_link_to_files_that_exist() -> None:
    """Relative links of README.md and docs/, code aside: `kernel[grid](x)` is a call."""
    for path in FILES:
        text = re.sub(r"`[^`\n]+`", "", path.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_the_reader_of_blocks() -> None:
    """It keeps order, lines, longer fences and indented blocks, and refuses one that is never closed."""
    text = "a\n```python\nx = 1\n```\n\n````text\n```python\nno\n```\n````\n- item\n  ```python\n  y = x\n  ```\n"
    text += "~~~sh\nls\n~~~\n"
    assert blocks(text) == [
        Block("python", "x = 1\n", 3),
        Block("text", "```python\nno\n```\n", 7),
        Block("python", "y = x\n", 13),
        Block("sh", "ls\n", 16),
    ]
    with pytest.raises(ValueError, match="line 2"):
        blocks("a\n```python\nx = 1\n")


def test_a_failing_block_fails_at_its_line(tmp_path: Path) -> None:
    """Blocks share one namespace, and an error carries the line of the document."""
    good = tmp_path / "good.md"
    good.write_text("```python\nx = 1\n```\n```python\nassert x == 1\n```\n", encoding="utf-8")
    assert run(good, "good.md") == 2
    bad = tmp_path / "bad.md"
    bad.write_text("text\n\n```python\nx = 1\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        run(bad, "bad.md")
    last = traceback.extract_tb(caught.tb)[-1]
    assert (last.filename, last.lineno) == ("bad.md", 5)


def test_shown_output_is_compared(tmp_path: Path) -> None:
    """An `output` block must be what the block before it prints, with `...` for what changes."""
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('took 17 ms')\n```\n```output\ntook ... ms\n```\n", encoding="utf-8")
    assert run(page, "page.md") == 1
    page.write_text("```python\nprint(1)\n```\n```output\n2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"page\.md:5: the page shows"):
        run(page, "page.md")
