"""A small canvas: boxes, lines and words, written as SVG by itself or as PNG with the `plot` extra.

>>> picture = Drawing(200, 60, "a box")
>>> picture.box(10, 10, 80, 40, hatch="/")
>>> picture.words(50, 35, "stage 1", anchor="middle")
>>> picture.svg().count("<rect")
3

Everything is black, white and grey, so that it prints; what differs does so by hatching, dashes and words.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, DeviceError, fail
from morpho.weights.atomic import write_bytes

FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
CHARACTER = 0.6  # mean width of a letter, in units of its height
# Paths inside a tile of 8 x 8 for each kind of hatching.
_HATCHES = {"/": "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", "\\": "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4",
            "x": "M0,8 l8,-8 M0,0 l8,8", ".": "M3,4 h2"}


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str
    line: float
    dashed: bool
    hatch: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, perhaps with an arrow head at its end."""

    points: tuple[tuple[float, float], ...]
    stroke: str
    line: float
    dashed: bool
    arrow: bool


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text at its base line; `halo` puts white around it so that it stands out from lines."""

    x: float
    y: float
    text: str
    size: float
    anchor: str
    bold: bool
    halo: bool


@dataclass
class Drawing:
    """A canvas of `width` x `height` pixels; y grows downwards."""

    width: float
    height: float
    title: str
    items: list[Box | Line | Words] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, fill: str = "white", stroke: str = "black",
            line: float = 1.0, dashed: bool = False, hatch: str = "") -> None:
        """Draw a rectangle; `hatch` is one of / \\ x . or empty."""
        self.items.append(Box(x, y, width, height, fill, stroke, line, dashed, hatch))

    def line(self, points: Iterable[tuple[float, float]], stroke: str = "black", line: float = 1.0,
             dashed: bool = False, arrow: bool = False) -> None:
        """Draw a line through points."""
        self.items.append(Line(tuple(points), stroke, line, dashed, arrow))

    def words(self, x: float, y: float, text: str, size: float = 12.0, anchor: str = "start", bold: bool = False,
              halo: bool = False) -> None:
        """Write text that begins, ends or has its middle at x."""
        self.items.append(Words(x, y, text, size, anchor, bold, halo))

    def save(self, path: str | Path) -> Path:
        """Write the picture, whole or not at all; the ending of the name decides: .svg, or .png with `pip install
        'morpho-tensor[plot]'`."""
        path = require_ending(path)
        write_bytes(path, self.svg().encode() if path.suffix == ".svg" else self.png())
        return path

    def png(self) -> bytes:
        """The picture as the bytes of a PNG file; needs the `plot` extra."""
        buffer = io.BytesIO()
        _figure(self).savefig(buffer, format="png")
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as SVG text."""
        used = sorted({item.hatch for item in self.items if isinstance(item, Box) and item.hatch})
        tiles = "".join(
            f'<pattern id="hatch{ord(name)}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<path d="{_HATCHES[name]}" stroke="black" stroke-width="{2 if name == "." else 0.8}"/></pattern>\n'
            for name in used)
        body = "\n".join(_SHAPES[type(item)](item) for item in self.items)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}" '
                f'viewBox="0 0 {self.width:g} {self.height:g}" font-family={quoteattr(FONT)} role="img">\n'
                f"<title>{escape(self.title)}</title>\n<defs>\n{tiles}</defs>\n"
                f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def require_ending(path: str | Path) -> Path:
    """The path, if its ending is one that pictures can have."""
    path = Path(path)
    if path.suffix not in (".svg", ".png"):
        raise fail(ArgumentError, "plot", f"{path.name} ends neither in .svg nor in .png", "choose one of the two")
    return path


def _svg_box(box: Box) -> str:
    place = f'x="{box.x:.2f}" y="{box.y:.2f}" width="{max(0.0, box.width):.2f}" height="{max(0.0, box.height):.2f}"'
    dashes = ' stroke-dasharray="5 3"' if box.dashed else ""
    text = f'<rect {place} fill="{box.fill}" stroke="{box.stroke}" stroke-width="{box.line:g}"{dashes}/>'
    return text + (f'<rect {place} fill="url(#hatch{ord(box.hatch)})"/>' if box.hatch else "")


def _svg_line(line: Line) -> str:
    dashes = ' stroke-dasharray="5 3"' if line.dashed else ""
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in line.points)
    text = f'<polyline points="{points}" fill="none" stroke="{line.stroke}" stroke-width="{line.line:.2f}"{dashes}/>'
    if line.arrow:
        corners = " ".join(f"{x:.2f},{y:.2f}" for x, y in arrow_head(line))
        text += f'<polygon points="{corners}" fill="{line.stroke}"/>'
    return text


def _svg_words(words: Words) -> str:
    weight = ' font-weight="bold"' if words.bold else ""
    start = (f'<text x="{words.x:.2f}" y="{words.y:.2f}" font-size="{words.size:g}" '
             f'text-anchor="{words.anchor}"{weight}')
    # Twice, not paint-order: half of the programs that show SVG do not know that one.
    halo = f'{start} stroke="white" stroke-width="4" stroke-linejoin="round">{escape(words.text)}</text>'
    return (halo if words.halo else "") + f"{start}>{escape(words.text)}</text>"


_SHAPES: dict[type, Any] = {Box: _svg_box, Line: _svg_line, Words: _svg_words}


def arrow_head(line: Line) -> Sequence[tuple[float, float]]:
    """The corners of the head at the end of a line."""
    (x0, y0), (x1, y1) = line.points[-2:]
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy, size = (x1 - x0) / length, (y1 - y0) / length, 7 + 1.5 * line.line
    back = (x1 - size * dx, y1 - size * dy)
    side = 0.45 * size
    return ((x1, y1), (back[0] - side * dy, back[1] + side * dx), (back[0] + side * dy, back[1] - side * dx))


def _figure(drawing: Drawing) -> Any:
    """The same items on a canvas of matplotlib."""
    try:
        from matplotlib import patches, patheffects
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise fail(DeviceError, "plot", "PNG needs matplotlib, which is not installed",
                   f"{install('plot')}, or write an .svg, which needs nothing") from None
    figure = Figure(figsize=(drawing.width / 100, drawing.height / 100), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for order, item in enumerate(drawing.items, start=1):
        if isinstance(item, Box):
            hatch = {"x": "xxx", ".": "...", "": None}.get(item.hatch, item.hatch * 3)
            axes.add_patch(patches.Rectangle((item.x, item.y), item.width, item.height, facecolor=item.fill,
                                             edgecolor=item.stroke if item.stroke != "none" else "black",
                                             linewidth=item.line * 0.72 if item.stroke != "none" else 0,
                                             linestyle="--" if item.dashed else "-", hatch=hatch, zorder=order))
        elif isinstance(item, Line):
            axes.plot(*zip(*item.points), color=item.stroke, linewidth=item.line * 0.72,
                      linestyle="--" if item.dashed else "-", solid_capstyle="butt", zorder=order)
            if item.arrow:
                axes.add_patch(patches.Polygon(arrow_head(item), closed=True, color=item.stroke, linewidth=0,
                                               zorder=order))
        else:
            effects = [patheffects.withStroke(linewidth=3, foreground="white")] if item.halo else None
            axes.text(item.x, item.y, item.text.replace("$", r"\$"), fontsize=item.size * 0.72,
                      ha={"start": "left", "middle": "center", "end": "right"}[item.anchor], va="baseline",
                      fontweight="bold" if item.bold else "normal", path_effects=effects,
                      zorder=order)
    return figure
