"""The flame graph: time from the whole down to lines and operations, as an SVG that needs nothing else.

Kernels are exact: program, line, operation. Python's part is sampled stacks, scaled to the time that was Python's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from os.path import basename

from morpho.base.units import format_seconds
from morpho.observe.export.text import WORDS
from morpho.observe.trace.model import Trace

WIDTH, ROW, LEAST_PIXELS, LETTER = 1200.0, 18.0, 0.6, 6.6
STYLE = """text{font:11px ui-monospace,monospace;pointer-events:none;fill:#1b1b1b}
rect{stroke:var(--edge,#fff);stroke-width:.5}rect:hover{stroke:#000;stroke-width:1.5}"""


@dataclass
class Frame:
    """A node of the flame graph."""

    name: str
    seconds: float = 0.0
    children: dict[str, Frame] = field(default_factory=dict)

    def add(self, path: list[str], seconds: float) -> None:
        """Add time to a path below this frame, and to everything on the way."""
        self.seconds += seconds
        if path:
            self.children.setdefault(path[0], Frame(path[0])).add(path[1:], seconds)

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children.values()), default=0)


def tree(trace: Trace) -> Frame:
    """All time of the profile as frames; those below the root add up to the wall time."""
    root = Frame(trace.name)
    whole = sum(row.seconds for row in trace.ops)
    native_s = sum(trace.seconds.get(name, 0.0) for name in ("kernels", "host", "network"))
    spans_network = max(0.0, trace.seconds.get("network", 0.0) - sum(
        row.seconds for row in trace.ops if row.kind == "collective"))
    scale = min(1.0, (native_s - spans_network) / whole) if whole else 0.0  # other threads ran beside the caller
    for row in trace.ops:
        root.add([WORDS[{"kernel": "kernels", "host": "host", "collective": "network"}[row.kind]], row.program,
                  basename(row.line) or "no line", row.name], scale * row.seconds)
    for name in ("data", "transfer", "device", "compile", "trace", "launch"):
        if trace.seconds.get(name, 0.0) > 0:
            root.add([WORDS[name]], trace.seconds[name])
    if spans_network > 0:
        root.add([WORDS["network"], "outside of programs"], spans_network)
    python_s, sampled = trace.seconds.get("python", 0.0), sum(trace.stacks.values())
    for stack, seconds in trace.stacks.items() if sampled > 0 else ():
        root.add([WORDS["python"], *stack.split(";")], python_s * seconds / sampled)
    if not sampled > 0 and python_s > 0:
        root.add([WORDS["python"]], python_s)
    return root


def svg(trace: Trace) -> str:
    """The picture, widest frames first on each level, the root on top."""
    root = tree(trace)
    height = ROW * (root.depth + 0.5)
    parts: list[str] = []
    _draw(root, 0.0, 0, WIDTH / root.seconds if root.seconds else 0.0, root.seconds, parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" width="100%" '
            f'role="img" aria-label="flame graph"><style>{STYLE}</style>{"".join(parts)}</svg>')


def _draw(frame: Frame, x: float, level: int, pixels_per_s: float, whole_s: float, parts: list[str]) -> None:
    width = frame.seconds * pixels_per_s
    if width < LEAST_PIXELS:
        return
    told = f"{frame.name}: {format_seconds(frame.seconds)}, {100 * frame.seconds / whole_s:.1f} %"
    parts.append(f'<g><title>{escape(told)}</title><rect x="{x:.1f}" y="{level * ROW:.1f}" width="{width:.1f}" '
                 f'height="{ROW - 1:.1f}" rx="2" fill="{_colour(frame.name, level)}"/>')
    letters = int((width - 6) / LETTER)
    if letters >= 3:
        text = frame.name if len(frame.name) <= letters else frame.name[:letters - 1] + "…"
        parts.append(f'<text x="{x + 3:.1f}" y="{level * ROW + 12.5:.1f}">{escape(text)}</text>')
    parts.append("</g>")
    for child in sorted(frame.children.values(), key=lambda one: -one.seconds):
        _draw(child, x, level + 1, pixels_per_s, whole_s, parts)
        x += child.seconds * pixels_per_s


def _colour(name: str, level: int) -> str:
    """The same name has the same colour: warm ones, light enough for dark letters."""
    number = sum((i + 1) * ord(letter) for i, letter in enumerate(name))
    return f"hsl({20 + number % 190}, {55 + number % 20}%, {70 + (level + number) % 12}%)"
