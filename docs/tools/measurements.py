"""docs/measurements.md from the results stored in docs/data/: `python -m docs.tools.measurements [--check]`.

A file there holds either one machine or subject (groups of tables and of figures with their targets), or one run as
`morpho bench ... --json FILE` writes it. `summary.json` holds the table of losses and wins at the head of the page.
`{name}` stands for a figure of figures.json, so that a figure which several pages quote is stored once;
`disagreements` finds a page that quotes another one.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
DATA, PAGE = ROOT / "docs" / "data", ROOT / "docs" / "measurements.md"


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows))


def verdict(figure: dict[str, str]) -> str:
    """The verdict of a figure; a miss stands out."""
    text = figure.get("verdict", "")
    return f"**{text}**" if text.startswith("missed") else text


def figures(measured: list[dict[str, str]]) -> str:
    """Figures with their targets; columns that would be empty are left out."""
    cells = [[each["what"], each["measured"], each.get("target", ""), verdict(each), each.get("note", "")]
             for each in measured]
    headings = ["figure", "measured", "target", "verdict", "remark"]
    used = [number for number, name in enumerate(headings) if number < 2 or any(row[number] for row in cells)]
    return table([headings[number] for number in used], [[row[number] for number in used] for row in cells])


def group(content: dict[str, Any]) -> str:
    """A heading, how it was measured, a table, figures, remarks; what is missing is left out."""
    source = "; ".join(filter(None, [f"`{content['command']}`" if "command" in content else "",
                                     content.get("date", "")]))
    parts = [f"### {content['title']}" if content["title"] else "", f"{source}." if source else "",
             content.get("about", "")]
    if "table" in content:
        parts.append(table(content["table"]["columns"], content["table"]["rows"]))
    if "figures" in content:
        parts.append(figures(content["figures"]))
    return "\n\n".join(filter(None, [*parts, *content.get("remarks", [])]))


def machine(content: dict[str, Any]) -> str:
    """A section: one machine, or one subject."""
    about = f"{content['dates']}: {content['machine']}. {content['software']}."
    return "\n\n".join([f"## {content['title']}", about, *map(group, content["groups"])])


def run(name: str, content: dict[str, Any]) -> str:
    """A section from the JSON of one `morpho bench`."""
    host = content.get("machine", {})
    parts = [f"## Run {name}", f"{host.get('cpu', 'unknown processor')}, {host.get('cores_usable', '?')} cores, Python "
                               f"{host.get('python', '?')}."]
    for theme in content["themes"]:
        rows = [[target["name"], "-" if target["figure"] is None else f"{target['figure']:.3g}{target['unit']}",
                 f"{target['bound']:g}{target['unit']}", "**missed**" if target["verdict"] == "MISS" else "met"]
                for target in theme["targets"]]
        if rows:
            parts += [f"### {theme['theme']}", table(["figure", "measured", "target", "verdict"], rows)]
    return "\n\n".join(parts)


def ratio(text: str) -> str:
    """A ratio of the summary; a loss stands out."""
    return f"**{text}**" if float(text.removesuffix("x")) < 1 else text


def summary() -> str:
    """The table of losses and wins by area."""
    content = json.loads((DATA / "summary.json").read_text(encoding="utf-8"))
    rows, last = [], ""
    for area, case, peer, place, ratios, *_ in content["rows"]:
        anchor = re.sub(r"[^\w\- ]", "", content["machines"][place].lower()).replace(" ", "-")
        rows.append([area if area != last else "", case, peer, "; ".join(map(ratio, ratios)), f"[{place}](#{anchor})"])
        last = area
    return table(["area", "case", "peer", "ratio", "section"], rows)


def known() -> dict[str, Any]:
    """figures.json."""
    return json.loads((DATA / "figures.json").read_text(encoding="utf-8"))


def page() -> str:
    """The whole page."""
    parts = ["<!-- Written by `python -m docs.tools.measurements` from docs/data/: change those files instead. -->",
             (DATA / "opening.md").read_text(encoding="utf-8").strip(), summary(),
             "```{raw} html\n:file: _static/surface.svg\n```"]
    for file in sorted(DATA.glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        if "themes" in content:
            parts.append(run(file.stem, content))
        elif "groups" in content:
            parts.append(machine(content))
    parts.append((DATA / "methods.md").read_text(encoding="utf-8").strip())
    text = "\n\n".join(parts) + "\n"
    for name, value in known()["figures"].items():
        text = text.replace("{" + name + "}", value)
    return text


def disagreements() -> list[str]:
    """Pages that quote a figure, and quote another one."""
    wrong = []
    for name, path, pattern in known()["quoted"]:
        match = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"))
        if match is None or match[1] != known()["figures"][name]:
            wrong.append(f"{path} has {match[1] if match else 'nothing'} for {name}: {known()['figures'][name]}")
    return wrong


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    same = PAGE.read_text(encoding="utf-8") == page()
    print("docs/measurements.md is as stored" if same else "docs/measurements.md differs: run this without --check")
    sys.exit(not same or bool(disagreements()))
