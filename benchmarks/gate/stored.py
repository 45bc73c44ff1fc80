"""The stored counts, and what differs from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gate.counts import ASSEMBLED, Counts

STORED = Path(__file__).with_name("counts.json")
Table = dict[str, dict[str, Counts]]  # case -> target (or "calls") -> name -> count


@dataclass(frozen=True)
class Difference:
    """A count that is not the stored one; None where there is none."""

    case: str
    target: str
    name: str
    stored: int | None
    found: int | None

    @property
    def is_worse(self) -> bool:
        """Whether there is more of it, or it is gone; a new one has nothing to be worse than."""
        return self.found is None or (self.stored is not None and self.found > self.stored)

    def line(self) -> str:
        """One sentence for the reader."""
        where = f"{self.case}, {self.target}: {self.name}"
        if self.stored is None:
            return f"NEW    {where} is {self.found}, and not stored"
        if self.found is None:
            return f"GONE   {where} was {self.stored}, and is no longer counted"
        share = f", {self.found / self.stored - 1:+.1%}" if self.stored else ""
        return f"{'WORSE' if self.is_worse else 'BETTER':6} {where} is {self.found}, stored {self.stored}{share}"


def load(path: Path = STORED) -> tuple[str, Table]:
    """LLVM's version and the counts."""
    if not path.exists():
        return "", {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["llvm"], content["cases"]


def save(llvm: str, table: Table, path: Path = STORED) -> None:
    """One line for each case and target, so that a change can be read."""
    lines = []
    for case in sorted(table):
        rows = [f"   {json.dumps(target)}: {json.dumps(table[case][target])}" for target in sorted(table[case])]
        lines.append(f"  {json.dumps(case)}: {{\n" + ",\n".join(rows) + "\n  }")
    path.write_text(f'{{\n "llvm": {json.dumps(llvm)},\n "cases": {{\n' + ",\n".join(lines) + "\n }\n}\n",
                    encoding="utf-8")


def compare(stored: Table, found: Table, assembled: bool = True, only: str = "") -> list[Difference]:
    """All that differs, what is worse first. Without `assembled`, counts that depend on LLVM's version are left out."""
    differences = []
    for case in dict.fromkeys((*stored, *found)):
        if not case.startswith(only):
            continue
        old, new = stored.get(case, {}), found.get(case, {})
        for target in dict.fromkeys((*old, *new)):
            differences += _between(case, target, old.get(target, {}), new.get(target, {}), assembled)
    return sorted(differences, key=lambda one: not one.is_worse)


def _between(case: str, target: str, old: Mapping[str, int], new: Mapping[str, int], assembled: bool
             ) -> Iterable[Difference]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name) and (assembled or name != ASSEMBLED):
            yield Difference(case, target, name, old.get(name), new.get(name))


def merged(stored: Table, found: Table, only: str) -> Table:
    """What to store after a run of the cases that begin with `only`: the others stay."""
    return {**{case: row for case, row in stored.items() if not case.startswith(only)}, **found}


def as_json(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """For tools."""
    return [vars(difference) for difference in differences]
