"""Findings of a check, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field

FAULTS = ("WRONG", "UNPROVEN")


@dataclass
class Report:
    """A line for each thing looked at: "ok", "WRONG", "UNPROVEN" (claimed, and not shown), or "open" (not looked at).

    `ok` says that nothing is wrong and nothing that the plan claims is unproven; `open` are the lines of what could not
    be looked at, such as inputs that were not given.

    >>> from morpho import plan
    >>> card = plan.ModelCard.from_config("gpt2", dtype="f32")
    >>> rates = {"a": 2e11, "b": 1e11}
    >>> nodes = [plan.Node(name, 8 << 30, 1e10, {"f32": rates[name]}) for name in rates]
    >>> p = plan.solve(card, plan.Cluster.uniform(nodes, 1e9, 1e-4))
    >>> report = plan.check(p)
    >>> report.ok, len(report.lines) > 0
    (True, True)
    """

    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong or unproven."""
        return not any(line.startswith(FAULTS) for line in self.lines)

    @property
    def open(self) -> list[str]:
        """Parts that were not checked."""
        return [line for line in self.lines if line.startswith("open")]

    def note(self, good: bool, what: str, wrong: str = "") -> bool:
        """Add a line on something that is true or false."""
        self.lines.append(f"ok     {what}" if good else f"WRONG  {what}: {wrong}" if wrong else f"WRONG  {what}")
        return good

    def unproven(self, what: str, why: str) -> None:
        """Add a line on a claim that could not be shown."""
        self.lines.append(f"UNPROVEN  {what}: {why}")

    def leave(self, what: str) -> None:
        """Add a line on something that was not looked at."""
        self.lines.append(f"open   {what}")
