"""The history of ratios: a line of JSON for every run, shown as sparklines and drawn as SVG or HTML.

    morpho bench history                       # the last 20 runs on this machine
    morpho bench history --case gelu --svg gelu.svg
"""

from __future__ import annotations

import hashlib
import html
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.report import render_table
from benchmarks.harness.results import Table

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_LINE = 4 << 20  # bytes of a line that is read
WIDTH, HEIGHT, MARGIN = 720, 160, 24


def fingerprint(machine: Mapping[str, Any]) -> str:
    """The machine in a few letters: runs are compared with those of the same one."""
    parts = [machine.get(name) for name in ("cpu", "architecture", "cores_usable", "caches")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def append(path: Path, details: Mapping[str, Any], ratios: Mapping[str, float]) -> None:
    """Note a run."""
    machine = details["machine"]
    packages = machine.get("packages") or {}
    row = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "suite": details.get("suite"),
           "version": packages.get("morpho-tensor") or packages.get("morpho"), "commit": commit(),
           "machine": fingerprint(machine), "cpu": machine.get("cpu"), "threads": details.get("threads"),
           "quick": bool(details.get("quick")), "load": (machine.get("load_average") or [None])[0],
           "ratios": {name: round(value, 4) for name, value in sorted(ratios.items())}}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")
    print(f"noted in {path}")


def commit() -> str | None:
    """The commit of this checkout, with a + where files differ from it."""
    root = Path(__file__).parents[2]
    try:
        found = subprocess.run(["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"], cwd=root,
                               capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The runs of a file, oldest first, and how many lines of it are odd: a run that was cut off spoils no other."""
    rows, odd = [], 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line) if len(line) < MOST_LINE else None
            except ValueError:
                row = None
            if isinstance(row, dict) and isinstance(row.get("ratios"), dict) and isinstance(row.get("machine"), str):
                rows.append(row)
            else:
                odd += bool(line.strip())
    return rows, odd


def series(rows: Sequence[Mapping[str, Any]], case: str) -> dict[str, list[float | None]]:
    """By ratio, its value in each run; None where a run did not measure it."""
    names = sorted({name for row in rows for name in row["ratios"] if case in name})
    return {name: [_number(row["ratios"].get(name)) for row in rows] for name in names}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def sparkline(values: Sequence[float | None]) -> str:
    """Values as blocks between their least and their most; a dot where there is none.

    >>> sparkline([1.0, 2.0, None, 1.5])
    '▁█·▅'
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = high - low
    return "".join("·" if value is None else BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] if span else
                   BLOCKS[3] for value in values)


def show(path: Path, case: str = "", last: int = 20, drawing: Path | None = None) -> int:
    """Print the history of this machine's last runs, or the newest machine's; 0, or 2 where there is none."""
    if not path.exists():
        print(f"[bench] there is no history in {path}: `morpho bench core` begins one.")
        return 2
    rows, odd = read(path)
    if not rows:
        print(f"[bench] {path} holds no runs.")
        return 2
    here = rows[-1]["machine"]
    chosen = [row for row in rows if row["machine"] == here][-last:]
    found = series(chosen, case)
    if not found:
        print(f"[bench] no ratio of the last {len(chosen)} runs has {case!r} in its name.")
        return 2
    lines = []
    for name, values in found.items():
        known = [value for value in values if value is not None]
        change = f"{known[-1] / known[0] - 1:+.1%}" if len(known) > 1 else ""
        lines.append([name, sparkline(values), f"{known[0]:.3f}x", f"{known[-1]:.3f}x", change])
    title = (f"{chosen[-1].get('cpu')}: {len(chosen)} runs, {chosen[0].get('time')} to {chosen[-1].get('time')}")
    print(render_table(Table(title, ["ratio", "runs", "first", "last", "change"], lines)))
    if odd:
        print(f"note: {odd} lines of {path} are odd and left out")
    if drawing is not None:
        text = page(title, chosen, found) if drawing.suffix == ".html" else svg(title, chosen, found)
        drawing.write_text(text, encoding="utf-8")
        print(f"drawn in {drawing}")
    return 0


def svg(title: str, rows: Sequence[Mapping[str, Any]], found: Mapping[str, Sequence[float | None]]) -> str:
    """One drawing, a panel for each ratio."""
    panels = [_panel(name, values, rows, number * (HEIGHT + MARGIN) + MARGIN)
              for number, (name, values) in enumerate(found.items())]
    height = len(panels) * (HEIGHT + MARGIN) + MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
            f'<title>{html.escape(title)}</title><rect width="{WIDTH}" height="{height}" fill="white"/>'
            + "".join(panels) + "</svg>\n")


def _panel(name: str, values: Sequence[float | None], rows: Sequence[Mapping[str, Any]], top: int) -> str:
    """A line through the runs, from zero up, with a dot and a tip for each of them."""
    known = [value for value in values if value is not None]
    most = max(known) * 1.1
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = [(MARGIN + number * step, top + HEIGHT - 20 - (HEIGHT - 45) * value / most, value, row)
              for number, (value, row) in enumerate(zip(values, rows, strict=True)) if value is not None]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f6feb"><title>'
                   + html.escape(f"{row.get('time')} {row.get('commit') or ''}: {value:.3f}x") + "</title></circle>"
                   for x, y, value, row in points)
    base = top + HEIGHT - 20
    return (f'<text x="{MARGIN}" y="{top + 12}">{html.escape(name)}  {known[0]:.3f}x to {known[-1]:.3f}x</text>'
            f'<line x1="{MARGIN}" y1="{base}" x2="{WIDTH - MARGIN}" y2="{base}" stroke="#999"/>'
            f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>{dots}')


def page(title: str, rows: Sequence[Mapping[str, Any]], found: Mapping[str, Sequence[float | None]]) -> str:
    """A page with the drawing and a table of the runs, in one file."""
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(str(row.get(name)))}</td>" for name in
                                     ("time", "suite", "version", "commit", "threads", "quick", "load")) + "</tr>"
                    for row in rows)
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
            "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:left}</style>"
            f"<h1>{html.escape(title)}</h1>{svg(title, rows, found)}<table><tr><th>time<th>suite<th>version<th>commit"
            f"<th>threads<th>quick<th>load</tr>{cells}</table></html>\n")
