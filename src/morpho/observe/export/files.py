"""Which file a trace becomes, by the ending of its name."""

from __future__ import annotations

from pathlib import Path

from morpho.base.checks import as_path
from morpho.base.errors import ArgumentError, fail
from morpho.observe.export import flame, html, perfetto, pftrace, text
from morpho.observe.trace.model import Trace
from morpho.weights.atomic import write_text

ENDINGS = (".html", ".svg", ".perfetto.json", ".pftrace", ".json", ".txt")


def save(trace: Trace, path: str | Path) -> Path:
    """Write a report (.html, .txt), a flame graph (.svg), a Perfetto trace (.perfetto.json, .pftrace) or the
    trace (.json)."""
    where = as_path("profile", "path", path)
    if not where.absolute().parent.is_dir():
        raise fail(ArgumentError, "profile", f"there is no folder {where.parent} for {where.name}", "make it first")
    if where.name.endswith(".perfetto.json"):
        return perfetto.write(trace, where)
    if where.suffix == ".pftrace":
        return pftrace.write(trace, where)
    if where.suffix == ".json":
        return trace.save(where)
    written = {".html": html.page, ".svg": flame.svg, ".txt": text.report}.get(where.suffix)
    if written is None:
        raise fail(ArgumentError, "profile", f"{where.name} has none of the endings {', '.join(ENDINGS)}")
    write_text(where, written(trace))
    return where
