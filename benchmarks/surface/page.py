"""docs/surface.md from stored results: losses first, then every function."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.surface.command import CLIFF, EVEN, ROOT, Outcome, geometric_mean, outcomes, read, share_below

PAGE, DATA = ROOT / "docs" / "surface.md", ROOT / "docs" / "data" / "surface"
OPENING = """<!-- Written by `morpho bench surface --page FOLDER` from docs/data/surface/. -->

# Every function beside its best peer

After this page you know which calls are slower than the best of eager PyTorch, NumPy and SciPy, and by how much.

```sh
morpho bench surface --quick                     # a look, some ten minutes
morpho bench surface --threads 1,2 --json FOLDER # everything
```

A ratio above 1 means that Morpho takes less time. Each function is compiled alone by `mo.compile` and called with the
same values as every peer, alternating in one process; what both give is compared, and a peer that gives another
result is left out. A ratio is of the least times: with one thread the processor's, with more the clock's.
"""


def compact(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """What is stored of a run: key, microseconds of each library, first call, temporary bytes, kernels, differences."""
    return [
        [
            row["key"],
            row.get("us", {}),
            row.get("first_ms"),
            row.get("temporary_bytes"),
            row.get("kernels"),
            row.get("differs", {}),
            row.get("refused", ""),
        ]
        for row in rows
    ]


def expand(stored: list[list[Any]]) -> list[dict[str, Any]]:
    names = ("key", "us", "first_ms", "temporary_bytes", "kernels", "differs", "refused")
    return [dict(zip(names, row, strict=True)) for row in stored]


def write(folder: Path) -> int:
    """Store the results of a folder and write the page of all stored ones."""
    DATA.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.glob("threads-*.jsonl")):
        rows = compact(read(file))
        text = "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"
        (DATA / f"{file.stem}.json").write_text(text, encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")
    return 0


def page() -> str:
    """The whole page."""
    runs = {
        int(file.stem.split("-")[1]): expand(json.loads(file.read_text(encoding="utf-8")))
        for file in sorted(DATA.glob("threads-*.json"))
    }
    results = {threads: outcomes(rows) for threads, rows in sorted(runs.items())}
    note = DATA / "note.md"
    parts = [OPENING, note.read_text(encoding="utf-8").strip() + "\n" if note.exists() else "", "## Summary\n"]
    parts.append(
        _table(
            [
                "threads",
                "cases",
                "geometric mean",
                f"below {EVEN}x",
                f"below {CLIFF}x",
                "first call, median",
                "first call, longest",
            ],
            [_summary(threads, found, runs[threads]) for threads, found in results.items()],
        )
    )
    for threads, found in results.items():
        losses = [outcome for outcome in found if outcome.ratio < EVEN]
        parts.append(f"## Losses, {threads} thread{'s' * (threads > 1)}\n")
        parts.append(
            _table(
                ["ratio", "case", "best peer", "Morpho, us", "peer, us", "kernels", "temporary, kB"],
                [
                    [
                        f"{o.ratio:.2f}x",
                        _cell(o.key),
                        o.peer,
                        f"{o.row['us']['morpho']:.1f}",
                        f"{o.row['us'][o.peer]:.1f}",
                        o.row.get("kernels") or "",
                        f"{(o.row.get('temporary_bytes') or 0) / 1000:.0f}",
                    ]
                    for o in losses
                ],
            )
        )
    parts.append("## Every function\n\nThe geometric mean of all cases of a function, and its worst.\n")
    by_name: dict[str, dict[int, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for threads, found in results.items():
        for outcome in found:
            by_name[outcome.key.split(" | ")[0]][threads].append(outcome)
    titles = [title for threads in results for title in (f"mean, {threads}", f"worst, {threads}")]
    lines = []
    for name, groups in sorted(
        by_name.items(), key=lambda item: min(o.ratio for group in item[1].values() for o in group)
    ):
        cells: list[Any] = [name, max(len(group) for group in groups.values())]
        for threads in results:
            group = groups.get(threads, [])
            cells += (
                [f"{geometric_mean(o.ratio for o in group):.2f}x", f"{group[0].ratio:.2f}x"] if group else ["", ""]
            )
        lines.append(cells)
    parts.append(_table(["function", "cases", *titles], lines))
    parts.append("## Not compared\n\nCases that no peer has with the same result, or that one side refuses.\n")
    seen = {}
    for rows in runs.values():
        for row in rows:
            reason = row["refused"] or "; ".join(f"{peer}: {problem}" for peer, problem in row["differs"].items())
            if reason:
                seen[row["key"]] = reason
    parts.append(_table(["case", "reason"], [[_cell(key), _cell(reason)] for key, reason in sorted(seen.items())]))
    return "\n".join(part for part in parts if part)


def _summary(threads: int, found: list[Outcome], rows: list[dict[str, Any]]) -> list[Any]:
    first = sorted(row["first_ms"] for row in rows if row.get("first_ms") is not None)
    return [
        threads,
        len(found),
        f"{geometric_mean(o.ratio for o in found):.2f}x",
        f"{share_below(found, EVEN):.1%}",
        f"{share_below(found, CLIFF):.1%}",
        f"{first[len(first) // 2]:.0f} ms" if first else "",
        f"{first[-1]:.0f} ms" if first else "",
    ]


def _cell(text: str) -> str:
    return text.replace(" | ", ", ").replace("|", "/").replace("\n", " ").replace("<", "&lt;")


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"
