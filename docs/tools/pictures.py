"""The drawings of docs/ from data, as SVG: `python -m docs.tools.pictures [--check]`.

A drawing is at most 420 units wide, so that its text can be read on a phone. It takes its colours from the variables
of the page's theme, so that it follows the reader's choice of light or dark; docs/build.py draws all of them anew.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable
from html import escape
from pathlib import Path

PAGES = Path(__file__).resolve().parent.parent
STATIC, WIDTH = PAGES / "_static", 420
STYLE = """
.drawing text{font-family:var(--font-stack,sans-serif);font-size:13px;fill:var(--color-foreground-primary,#222)}
.drawing .title{font-weight:600}
.drawing .small{font-size:11.5px;fill:var(--color-foreground-secondary,#555)}
.drawing .label{font-size:11.5px;fill:var(--color-brand-content,#0b5cad)}
.drawing .box{fill:var(--color-background-secondary,#f8f9fb);stroke:var(--color-foreground-border,#888)}
.drawing .user{fill:none;stroke:var(--color-brand-content,#0b5cad);stroke-width:2}
.drawing .flow{fill:none;stroke:var(--color-foreground-secondary,#555);stroke-width:1.5}
.drawing .miss{fill:none;stroke:var(--color-brand-content,#0b5cad);stroke-width:1.5;stroke-dasharray:6 4}
.drawing .head{fill:var(--color-foreground-secondary,#555)}
.drawing .win{fill:var(--color-brand-content,#0b5cad)}
.drawing .loss{fill:var(--color-foreground-primary,#222)}
.drawing .line{stroke:var(--color-foreground-border,#888)}
"""


class Drawing:
    """Shapes of one picture, top to bottom."""

    def __init__(self, name: str, label: str) -> None:
        self.name, self.label = name, label
        self.shapes: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        self.shapes.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, lines: list[str], kind: str = "box") -> float:
        """Draw a box with a title and smaller lines; return its lower edge."""
        height = 14 + 17 * len(lines)
        self.shapes.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="5"/>')
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + 21 + 17 * number, line, "small" if number else "title", "middle")
        return y + height

    def arrow(self, *points: tuple[float, float], kind: str = "flow") -> None:
        path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
        self.shapes.append(f'<path class="{kind}" d="{path}" marker-end="url(#{self.name}-head)"/>')

    def svg(self, height: float) -> str:
        """The picture as text that a page includes."""
        marker = (f'<defs><marker id="{self.name}-head" markerWidth="9" markerHeight="8" refX="8" refY="4" '
                  'orient="auto"><path class="head" d="M0,0 L9,4 L0,8 z"/></marker></defs>')
        return "\n".join([
            f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-label="{escape(self.label)}">', f"<style>{STYLE}</style>", marker, *self.shapes, "</svg>", ""])


FIRST = [["trace", "your function, once, in Python"], ["graph", "nodes with shapes and dtypes"],
         ["passes", "fold, fuse, order, plan memory"], ["kernels", "loops, products, attention"],
         ["LLVM", "machine code, kept on disk"], ["plan", "steps, memory, addresses"]]
EVERY = [["f(x)", "your line"], ["native entry", "compares shapes and dtypes"], ["memory", "addresses of all values"],
         ["steps", "kernels on your threads"], ["result", "a tensor on memory of the pool"]]


def call() -> str:
    """The engine: what every call does, and what the first call does beside it."""
    drawing = Drawing("call", "The way of one call: every call runs natively; the first one traces and compiles")
    drawing.text(105, 16, "every call: native", "label", "middle")
    drawing.text(320, 16, "first call: Python, once", "label", "middle")
    y, edges = 26.0, []
    for number, lines in enumerate(EVERY):
        end = drawing.box(10, y, 190, lines, "user" if number in (0, len(EVERY) - 1) else "box")
        edges.append((y, end))
        y = end + 28 if number != 1 else end + 104
    for (_, start), (end, _) in itertools.pairwise(edges):
        drawing.arrow((105, start), (105, end - 2))
    drawing.text(112, edges[1][1] + 56, "known", "label")
    y, rights = edges[1][0], []
    for lines in FIRST:
        end = drawing.box(230, y, 180, lines)
        rights.append((y, end))
        y = end + 18
    for (_, start), (end, _) in itertools.pairwise(rights):
        drawing.arrow((320, start), (320, end - 2))
    middle = (edges[1][0] + edges[1][1]) / 2
    drawing.arrow((200, middle), (228, middle), kind="miss")
    drawing.text(214, middle - 8, "new", "label", "middle")
    last, target = rights[-1], (edges[2][0] + edges[2][1]) / 2
    drawing.arrow((230, (last[0] + last[1]) / 2), (215, (last[0] + last[1]) / 2), (215, target), (202, target),
                  kind="miss")
    return drawing.svg(max(rights[-1][1], edges[-1][1]) + 10)


def pipeline() -> str:
    """A plan of the planner as a pipeline of machines."""
    from morpho import plan

    card = plan.ModelCard.from_config("gpt2-xl", batch=8, context=1024, dtype="f16")
    server = plan.Node("server", 64_000_000_000, memory_bytes_per_s=100e9, flops_per_s={"f32": 2e12, "f16": 4e12})
    desks = [plan.Node(f"desk-{number}", 16_000_000_000, memory_bytes_per_s=40e9, flops_per_s={"f32": 1e12})
             for number in (1, 2, 3)]
    cluster = plan.Cluster.uniform([server, *desks], bandwidth_bytes_per_s=plan.mbit_per_s(10_000), latency_s=5e-5)
    best = plan.solve(card, cluster, objective="throughput", seed=0)
    drawing = Drawing("pipeline", "GPT-2 XL cut into stages over four unequal machines")
    y, edges = 26.0, []
    drawing.text(WIDTH / 2, 16, "gpt2-xl, 8 texts at once, four machines", "label", "middle")
    for stage in best.stages:
        end = drawing.box(70, y, 250, [stage.node, f"layers {stage.start} to {stage.end - 1}, "
                                                   f"{1000 * stage.compute_s:.0f} ms a token"])
        edges.append((y, end))
        y = end + 30
    for (_, start), (end, _) in itertools.pairwise(edges):
        drawing.arrow((195, start), (195, end - 2))
        drawing.text(203, start + 19, "activations", "small")
    first, last = (sum(edge) / 2 for edge in (edges[0], edges[-1]))
    drawing.arrow((320, last), (345, last), (345, first), (322, first), kind="miss")
    drawing.text(351, (first + last) / 2, "next token", "label")
    return drawing.svg(edges[-1][1] + 10)


def surface() -> str:
    """Ratios of docs/data/summary.json on a logarithmic line: wins to the right of 1x, losses to the left."""
    rows = json.loads((PAGES / "data" / "summary.json").read_text(encoding="utf-8"))["rows"]
    drawing = Drawing("surface", "Ratios to other tools by area; the table above has the same figures")
    left, right, low, high = 130, 405, 0.05, 120.0

    def place(ratio: float) -> float:
        return left + (right - left) * (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))

    areas = list(dict.fromkeys(row[0] for row in rows))
    bottom = 34 + 27 * len(areas)
    for tick in (0.1, 0.5, 1, 2, 10, 100):
        drawing.shapes.append(f'<line class="line" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="24" y2="{bottom}" '
                              f'stroke-opacity="{1 if tick == 1 else 0.25}"/>')
        drawing.text(round(place(tick), 1), 16, f"{tick:g}x", "small", "middle")
    for number, area in enumerate(areas):
        y = 42 + 27 * number
        drawing.text(8, y + 4, area, "title")
        for row in rows:
            for value in row[4] if row[0] == area else ():
                size = float(value.removesuffix("x"))
                title = escape(f"{row[1]}, over {row[2]} ({row[3]}): {value}").replace("`", "")
                drawing.shapes.append(f'<circle class="{"win" if size >= 1 else "loss"}" cx="{place(size):.1f}" '
                                      f'cy="{y}" r="5"><title>{title}</title></circle>')
    drawing.text(place(0.6), bottom + 18, "slower", "small", "end")
    drawing.text(place(1.6), bottom + 18, "faster than the peer", "small")
    return drawing.svg(bottom + 28)


def floors() -> str:
    """The packages by floor, from docs/map.md: each imports only packages below it."""
    text = (PAGES / "map.md").read_text(encoding="utf-8")
    packages: dict[int, list[str]] = {}
    for floor, package in re.findall(r"^\| (\d+) \| `(\w+)/` \|", text, re.MULTILINE):
        packages.setdefault(int(floor), []).append(package)
    drawing = Drawing("floors", "The packages by floor; each imports only packages on lower floors")
    y = 10.0
    for floor in sorted(packages, reverse=True):
        names = ", ".join(packages[floor])
        lines = textwrap.wrap(names, 44)
        height = 8 + 17 * len(lines)
        drawing.shapes.append(f'<rect class="box" x="40" y="{y:g}" width="370" height="{height}" rx="4"/>')
        drawing.text(28, y + height / 2 + 4, str(floor), "label", "end")
        for number, line in enumerate(lines):
            drawing.text(225, y + 17 + 17 * number, line, "", "middle")
        y += height + 4
    return drawing.svg(y + 6)


PICTURES: dict[str, Callable[[], str]] = {"call": call, "pipeline": pipeline, "surface": surface, "floors": floors}


def stale() -> list[str]:
    """Pictures whose file differs from what would be drawn."""
    return [name for name, draw in PICTURES.items()
            if not (STATIC / f"{name}.svg").exists() or (STATIC / f"{name}.svg").read_text(encoding="utf-8") != draw()]


def draw_all() -> None:
    """Write every picture."""
    for name, draw in PICTURES.items():
        (STATIC / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    if "--check" not in sys.argv:
        draw_all()
    sys.exit(bool(stale()))
