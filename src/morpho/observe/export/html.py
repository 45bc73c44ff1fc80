"""The report as one HTML file: no script, no font, no picture from elsewhere; light and dark as the reader has it."""

from __future__ import annotations

from html import escape

from morpho.base.units import format_bytes, format_seconds
from morpho.observe.analyse.analyser import analyse
from morpho.observe.export.flame import svg
from morpho.observe.export.text import HEADER, WORDS, row_cells
from morpho.observe.trace.model import Trace

MOST_ROWS = 100
COLOURS = {"kernels": "#2f7fd8", "host": "#b8652b", "network": "#8a5cc2", "data": "#2a9d74", "transfer": "#d1477a",
           "device": "#5a6bd0", "compile": "#c9a227", "trace": "#a58a2a", "launch": "#7f8c99", "python": "#e07b39"}
STYLE = """:root{color-scheme:light dark;
--ink:#1d2228;--soft:#5d6873;--paper:#fff;--card:#f5f7f9;--line:#dde3e8;--edge:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa5b0;--paper:#14181c;--card:#1d2329;--line:#333c45;
--edge:#14181c}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1280px;padding:24px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}
.soft{color:var(--soft)}.verdict{background:var(--card);border-left:4px solid #2f7fd8;padding:14px 18px;font-size:18px;
border-radius:6px;margin:14px 0}.also{margin:6px 0 0;padding-left:20px}
.bar{display:flex;height:26px;border-radius:6px;overflow:hidden;background:var(--line)}.bar div{min-width:1px}
.keys{display:flex;flex-wrap:wrap;gap:4px 18px;margin-top:8px;font-size:13px}.keys i{display:inline-block;width:10px;
height:10px;border-radius:3px;margin-right:6px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}th{color:var(--soft);font-weight:600}
td:first-child{font-family:ui-monospace,monospace}svg{display:block}
"""


def page(trace: Trace) -> str:
    """The whole file."""
    verdicts = analyse(trace)
    first = str(verdicts[0]) if verdicts else "Nothing was recorded."
    others = "".join(f"<li>{escape(str(one))}</li>" for one in verdicts[1:5])
    machine = ", ".join(f"{name} {trace.machine[name]}" for name in ("isa", "cores", "threads")
                        if name in trace.machine)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(trace.name)}: Morpho profile</title><style>{STYLE}</style></head><body>
<h1>{escape(trace.name)}</h1><div class="soft">{format_seconds(trace.wall_s)}{", " if machine else ""}{escape(machine)}{
    f", {trace.ranks} ranks" if trace.ranks > 1 else ""}</div>
<div class="verdict">{escape(first)}</div>{f'<ul class="also soft">{others}</ul>' if others else ""}
<h2>Where the time went</h2>{_bar(trace)}
<h2>Operations</h2><div class="scroll">{_table(trace)}</div>
<h2>Memory</h2>{_memory(trace)}
<h2>Flame graph</h2><div class="soft">Kernels are measured, Python is sampled.</div>{svg(trace)}
{_notes(trace)}</body></html>
"""


def _bar(trace: Trace) -> str:
    parts = [(name, seconds) for name, seconds in sorted(trace.seconds.items(), key=lambda pair: -pair[1])
             if seconds > 0.002 * trace.wall_s]
    if not parts:
        return "<p class='soft'>No time was recorded.</p>"
    bars = "".join(f'<div style="flex:{seconds / trace.wall_s:.4f};background:{COLOURS.get(name, "#888")}" '
                   f'title="{escape(WORDS.get(name, name))}"></div>' for name, seconds in parts)
    keys = "".join(f'<span><i style="background:{COLOURS.get(name, "#888")}"></i>{escape(WORDS.get(name, name))} '
                   f'{format_seconds(seconds)} ({100 * seconds / trace.wall_s:.1f} %)</span>'
                   for name, seconds in parts)
    return f'<div class="bar">{bars}</div><div class="keys">{keys}</div>'


def _table(trace: Trace) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADER)
    rows = "".join("<tr>" + "".join(
        f'<td title="{escape(row.line if i == 1 else row.name if i == 0 else "")}">{escape(cell)}</td>'
        for i, cell in enumerate(row_cells(row, trace.wall_s))) + "</tr>" for row in trace.ops[:MOST_ROWS])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _memory(trace: Trace) -> str:
    """Tensors and resident set over time, and who held the peak."""
    if not trace.memory:
        return "<p class='soft'>Memory was not recorded.</p>"
    most = max(max(row.live_bytes, row.rss_bytes) for row in trace.memory) or 1
    end = max(trace.wall_s, trace.memory[-1].at_s) or 1.0

    def line(name: str, colour: str) -> str:
        points = " ".join(f"{1200 * row.at_s / end:.1f},{128 - 120 * getattr(row, name) / most:.1f}"
                          for row in trace.memory)
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    peak = 1200 * trace.peak_s / end
    chart = (f'<svg viewBox="0 0 1200 132" width="100%" role="img" aria-label="memory over time">'
             f'<line x1="0" y1="128" x2="1200" y2="128" stroke="#8886"/>'
             f'<line x1="{peak:.1f}" y1="4" x2="{peak:.1f}" y2="128" stroke="#d1477a" stroke-dasharray="4 4"/>'
             f'{line("rss_bytes", "#7f8c99")}{line("live_bytes", "#2f7fd8")}</svg>')
    held = "".join(f"<tr><td>{escape(place or 'before the profile')}</td><td></td><td>{format_bytes(nbytes)}</td>"
                   f"<td>{blocks}</td></tr>" for place, nbytes, blocks in trace.holders[:20])
    rss = max(row.rss_bytes for row in trace.memory)
    return (f'<div class="keys"><span><i style="background:#2f7fd8"></i>tensors and arenas, at most '
            f'{format_bytes(trace.peak_bytes)}</span><span><i style="background:#7f8c99"></i>the process, at most '
            f'{format_bytes(rss)}</span></div>{chart}<div class="scroll"><table><thead><tr><th>held at the peak by</th>'
            f'<th></th><th>bytes</th><th>blocks</th></tr></thead><tbody>{held}</tbody></table></div>')


def _notes(trace: Trace) -> str:
    notes = []
    if trace.dropped:
        notes.append(f"{trace.dropped} events are in the totals and not in the timeline.")
    if trace.lost:
        notes.append(f"{trace.lost} events were lost: the rings were full.")
    return f'<p class="soft">{" ".join(notes)}</p>' if notes else ""
