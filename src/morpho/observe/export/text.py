"""A trace in words: the verdict, where the time went, a table of operations, memory."""

from __future__ import annotations

from os.path import basename

from morpho.base.units import format_bytes, format_seconds
from morpho.observe.analyse.analyser import analyse
from morpho.observe.trace.model import OpRow, Trace

MOST_ROWS = 20
COLUMNS = 48  # of memory over time
BARS = "▁▂▃▄▅▆▇█"
WORDS = {"kernels": "kernels", "host": "steps in NumPy", "network": "waiting for ranks", "data": "waiting for data",
         "transfer": "copies: devices, NumPy", "device": "waiting for a device", "compile": "compiling",
         "trace": "tracing", "launch": "between kernels", "python": "Python"}


def short_name(name: str, width: int = 40) -> str:
    """A name that fits."""
    return name if len(name) <= width else name[:width - 3] + "..."


def row_cells(row: OpRow, wall_s: float) -> tuple[str, ...]:
    """An operation as the cells of a table."""
    return (short_name(row.name), basename(row.line), str(row.calls), format_seconds(row.seconds),
            f"{100 * row.seconds / wall_s:.1f} %" if wall_s else "-",
            f"{100 * row.share:.0f} % {row.bound}" if row.limit_s else "-",
            format_bytes(int(row.bytes)) if row.bytes else "-", f"{row.flops:.3g}" if row.flops else "-",
            f"{row.threads_busy:.1f}/{row.threads}")


HEADER = ("operation", "line", "calls", "time", "share", "of roofline", "bytes", "flops", "threads")


def table(cells: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need, the first two to the left."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  " + "  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in cells]


def report(trace: Trace) -> str:
    """Everything, the verdict first."""
    verdicts = analyse(trace)
    lines = [str(verdicts[0]) if verdicts else "Nothing was recorded."]
    lines += [f"  then: {verdict}" for verdict in verdicts[1:4]]
    waited = trace.counters.get("waited_share", 0.0)
    if waited > 0.1:
        lines.append(f"  ranks: all of this is of rank {trace.counters['slowest_rank']:.0f}, for which others wait up "
                     f"to {100 * waited:.0f} % of their time; less work there, or a faster machine, helps all of them")
    lines += ["", f"time of the calling thread, {format_seconds(trace.wall_s)} in all"]
    for name, seconds in sorted(trace.seconds.items(), key=lambda pair: -pair[1]):
        if seconds > 0.001 * trace.wall_s:
            lines.append(f"  {WORDS.get(name, name):28s} {format_seconds(seconds):>9s}  "
                         f"{100 * seconds / trace.wall_s:5.1f} %")
    if trace.ops:
        lines += ["", "operations"]
        lines += table([HEADER, *(row_cells(row, trace.wall_s) for row in trace.ops[:MOST_ROWS])])
        if len(trace.ops) > MOST_ROWS:
            rest = sum(row.seconds for row in trace.ops[MOST_ROWS:])
            lines.append(f"  and {len(trace.ops) - MOST_ROWS} more, {format_seconds(rest)}")
    lines += ["", *_memory(trace)]
    if trace.lost:
        lines.append(f"{trace.lost} events were lost: the rings were full")
    return "\n".join(lines)


def over_time(trace: Trace, columns: int = COLUMNS) -> str:
    """Memory of tensors and arenas from the beginning to the end, the most in each part of the time.

    >>> from morpho.observe.trace.model import MemoryRow
    >>> over_time(Trace("t", 4.0, memory=[MemoryRow(0.0, 0, 1), MemoryRow(1.0, 7, 1), MemoryRow(3.5, 2, 1)]), 4)
    '▁██▃'
    """
    end = max(trace.wall_s, trace.memory[-1].at_s) or 1.0
    levels: list[int | None] = [None] * columns
    for row in trace.memory:
        column = max(0, min(columns - 1, int(columns * row.at_s / end)))
        levels[column] = max(levels[column] or 0, row.live_bytes)
    drawn, last, most = "", trace.memory[0].live_bytes, max(row.live_bytes for row in trace.memory) or 1
    for level in levels:
        last = last if level is None else level  # nobody looked then: as it was
        drawn += BARS[max(0, min(len(BARS) - 1, (len(BARS) - 1) * last // most))]
    return drawn


def _memory(trace: Trace) -> list[str]:
    """The peak, the way to it, and who held it."""
    if not trace.memory:
        return []
    rss = max(row.rss_bytes for row in trace.memory)
    lines = [f"memory: at most {format_bytes(trace.peak_bytes)} in tensors and arenas, at "
             f"{format_seconds(trace.peak_s)}; the process at most {format_bytes(rss)}"]
    lines.append(f"  over time  {over_time(trace)}  {format_seconds(max(trace.wall_s, trace.memory[-1].at_s))}")
    for line, nbytes, blocks in trace.holders[:8]:
        lines.append(f"  {format_bytes(nbytes):>10s} in {blocks} {'block' if blocks == 1 else 'blocks'}  "
                     f"{line or 'before the profile'}")
    return lines
