"""Plain-text tables and target lines, without dependencies."""

from __future__ import annotations

from benchmarks.harness.results import Table, ThemeResult


def render_table(table: Table) -> str:
    """Columns as wide as their widest cell; the first flush left, the others flush right."""
    lines = [table.headings, *table.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.headings))]

    def render(line: list[str]) -> str:
        cells = [cell.ljust(width) if column == 0 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(line, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([table.title, render(table.headings), "  ".join("-" * width for width in widths),
                      *(render(row) for row in table.rows)])


def render_theme(result: ThemeResult) -> str:
    """A theme as text: its tables, its targets, its notes, its errors."""
    parts = [f"== {result.theme} =="]
    parts += [render_table(table) for table in result.tables]
    if result.targets:
        parts.append("\n".join(target.line() for target in result.targets))
    if result.notes:
        parts.append("\n".join(f"note: {note}" for note in result.notes))
    if result.errors:
        parts.append("\n".join(f"ERROR {error}" for error in result.errors))
    return "\n\n".join(parts)


def duration(seconds: float | None) -> str:
    """A time in the unit that reads best."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def times(value: float | None) -> str:
    """A ratio such as 1.52x."""
    return "-" if value is None else f"{value:.2f}x"
