"""The tables of docs/onnx.md: operators from the registry, counts from the log of ONNX's own cases.

    python -m docs.tools.onnx_tables       # writes the page's tables anew
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path

import morpho as mo

PAGE = Path(__file__).resolve().parents[1] / "onnx.md"
LOG = PAGE.parent / "data" / "onnx_cases.json"


def operators_table() -> str:
    """A row for each family."""
    lines = ["| domain | family | operators |", "|---|---|---|"]
    rows = sorted((domain, family, name) for domain, name, family in mo.onnx.operators())
    for (domain, family), group in groupby(rows, key=lambda row: row[:2]):
        lines.append(f"| {domain} | {family} | {', '.join(name for *_, name in group)} |")
    return "\n".join(lines)


def cases_table() -> str:
    """A row for each kind of cases."""
    log = json.loads(LOG.read_text(encoding="utf-8"))
    lines = ["| cases | | Morpho | ONNX Runtime " + log["versions"]["onnxruntime"] + " |", "|---|--:|--:|--:|"]
    for kind, entry in log["kinds"].items():
        lines.append(f"| {kind} | {entry['cases']} | {entry['morpho']['passed']} | {entry['onnxruntime']['passed']} |")
    failed = [name for entry in log["kinds"].values() for name in entry["morpho"]["failed"]]
    return "\n".join([*lines, "", f"Morpho fails {', '.join(f'`{name}`' for name in failed)}."])


def written(text: str) -> str:
    """The page with its tables."""
    for name, table in (("operators", operators_table()), ("cases", cases_table())):
        pattern = re.compile(f"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)
        text = pattern.sub(lambda _, n=name, t=table: f"<!-- {n} -->\n{t}\n<!-- end of {n} -->", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
