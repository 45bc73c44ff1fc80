"""The tables of families in docs/families.md, from their records and the log of parity:
`python -m docs.tools.families [--check]`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from docs.tools.measurements import table
from morpho.models.registry import families
from morpho.plan.model.configs import is_planned

PAGE = Path(__file__).resolve().parent.parent / "families.md"
LOG = PAGE.parent.parent / "benchmarks" / "models" / "parity" / "log.json"
BEGIN, END = "<!-- of the records: python -m docs.tools.families -->", "<!-- end -->"
CHECKED = "<!-- of the log: python -m docs.tools.families -->"


def rows() -> str:
    """The table: what each record gives."""
    def yes(there: bool) -> str:
        return "yes" if there else ""

    lines = [[f"`{family.name}`", ", ".join(f"`{name}`" for name in family.sizes),
              "" if family.gguf is None else f"`{family.gguf.architecture}`" + (" with experts" * family.gguf.experts),
              yes(is_planned(family.name)), yes(family.cuts is not None), yes(bool(family.model.config_class.shared))]
             for family in families().values()]
    return table(["`model_type`", "names for `create`", "GGUF", "plan", "pipeline", "shares"], lines)


def checked() -> str:
    """The table of what was compared with the transformers library."""
    cases: dict[str, list[tuple[str, float]]] = {}
    for name, result in json.loads(LOG.read_text())["cases"].items():
        family, _, variant = name.partition(": ")
        variant = variant.replace("the turn", "rotation").replace("turns", "is rotated")  # the glossary's word
        cases.setdefault(family, []).append((variant, max(result["error"], result.get("cached", 0))))
    lines = [[f"`{family}`", str(len(found)), f"{max(error for _, error in found):.0e}".replace("e-0", "e-"),
              "; ".join(variant for variant, _ in found)] for family, found in sorted(cases.items())]
    return table(["`model_type`", "cases", "largest error", "the cases"], lines)


def page(text: str) -> str:
    """The page with the tables as the records and the log have them."""
    for begin, lines in ((BEGIN, rows()), (CHECKED, checked())):
        old = re.compile(f"{re.escape(begin)}.*?{re.escape(END)}", re.DOTALL)
        text = old.sub(lambda _, begin=begin, lines=lines: f"{begin}\n{lines}\n{END}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    text = PAGE.read_text()
    if "--check" in sys.argv and page(text) != text:
        sys.exit(f"{PAGE.name} is not what the records say: run python -m docs.tools.families")
    PAGE.write_text(page(text))
