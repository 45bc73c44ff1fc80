"""The regression gate: ratios of this run against the stored ones.

    morpho bench core --save-baseline       # store the ratios of this machine in benchmarks/baseline.json
    morpho bench core --gate                # exit 1 when one is more than 20 % worse
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASELINE = Path(__file__).parents[1] / "baseline.json"
ALLOWED_LOSS = 0.20


@dataclass(frozen=True)
class Regression:
    """A ratio that got worse than allowed; ``current`` is None when it vanished although its theme ran."""

    name: str
    stored: float
    current: float | None

    def line(self) -> str:
        """One sentence for the reader."""
        if self.current is None:
            return f"{self.name}: stored {self.stored:.3f}x, not measured in this run"
        return f"{self.name}: {self.current:.3f}x, stored {self.stored:.3f}x ({self.current / self.stored - 1:+.0%})"


def compare(stored: dict[str, float], current: dict[str, float], required: set[str]) -> list[Regression]:
    """Regressions, worst first. ``required`` names those that must be present now (their theme and size ran)."""
    found: list[Regression] = []
    for name, value in stored.items():
        if name not in current:
            if name in required:
                found.append(Regression(name, value, None))
        elif current[name] < value * (1.0 - ALLOWED_LOSS):
            found.append(Regression(name, value, current[name]))
    return sorted(found, key=lambda item: -1.0 if item.current is None else item.current / item.stored)


def load(path: Path) -> dict[str, Any]:
    """The stored baseline; an absent file is an empty one."""
    if not path.exists():
        return {"machine": None, "ratios": {}}
    return json.loads(path.read_text())


def save(path: Path, machine: dict[str, Any], ratios: dict[str, float]) -> None:
    """Store ratios over the old ones; those not measured now are kept if the machine is the same."""
    old = load(path)
    same = old["machine"] is not None and old["machine"].get("cpu") == machine["cpu"]
    merged = {**(old["ratios"] if same else {}), **ratios}
    content = {"machine": machine, "ratios": {name: round(merged[name], 4) for name in sorted(merged)}}
    path.write_text(json.dumps(content, indent=1) + "\n")
