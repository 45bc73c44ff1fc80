"""What a theme hands back: tables to read, targets to judge, ratios for the gate, raw figures for the JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """Rows of text under headings."""

    title: str
    headings: list[str]
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Target:
    """A figure and the bound it must keep; ``figure`` is None when it could not be measured."""

    name: str
    figure: float | None
    bound: float
    at_least: bool = True
    unit: str = "x"

    @property
    def verdict(self) -> str:
        """PASS, MISS, or N/A when there is no figure."""
        if self.figure is None or math.isnan(self.figure):
            return "N/A"
        kept = self.figure >= self.bound if self.at_least else self.figure <= self.bound
        return "PASS" if kept else "MISS"

    def line(self) -> str:
        """One line for the reader: verdict, figure, bound."""
        figure = "no figure" if self.figure is None else f"{self.figure:.3g}{self.unit}"
        sign = ">=" if self.at_least else "<="
        return f"{self.verdict:4}  {self.name}: {figure} (target {sign} {self.bound:g}{self.unit})"


@dataclass
class ThemeResult:
    """All that one benchmark theme found. In ``ratios`` higher is better: baseline's cost / Morpho's cost."""

    theme: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain data, tables left out: they repeat the figures."""
        targets = [{**vars(target), "verdict": target.verdict} for target in self.targets]
        return {"theme": self.theme, "targets": targets, "ratios": self.ratios, "figures": self.figures,
                "errors": self.errors, "notes": self.notes}


def geometric_mean(values: list[float]) -> float | None:
    """The geometric mean, or None of nothing."""
    if not values:
        return None
    return math.exp(sum(math.log(value) for value in values) / len(values))


def ratio(baseline: float | None, cost: float | None) -> float | None:
    """How many times cheaper ``cost`` is than ``baseline``; None when either is missing or zero."""
    if not baseline or not cost:
        return None
    return baseline / cost
