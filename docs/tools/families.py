"""The table of families in docs/families.md, from their records: `python -m docs.tools.families [--check]`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docs.tools.measurements import table
from morpho.models.registry import families
from morpho.plan.model.configs import is_planned

PAGE = Path(__file__).resolve().parent.parent / "families.md"
BEGIN, END = "<!-- of the records: python -m docs.tools.families -->", "<!-- end -->"


def rows() -> str:
    """The table: what each record gives."""
    def yes(there: bool) -> str:
        return "yes" if there else ""

    lines = [[f"`{family.name}`", ", ".join(f"`{name}`" for name in family.sizes),
              "" if family.gguf is None else f"`{family.gguf.architecture}`" + (" with experts" * family.gguf.experts),
              yes(is_planned(family.name)), yes(family.cuts is not None), yes(bool(family.model.config_class.shared))]
             for family in families().values()]
    return table(["`model_type`", "names for `create`", "GGUF", "plan", "pipeline", "shares"], lines)


def page(text: str) -> str:
    """The page with the table as the records have it now."""
    old = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return old.sub(lambda _: f"{BEGIN}\n{rows()}\n{END}", text)


if __name__ == "__main__":
    text = PAGE.read_text()
    if "--check" in sys.argv and page(text) != text:
        sys.exit(f"{PAGE.name} is not what the records say: run python -m docs.tools.families")
    PAGE.write_text(page(text))
