"""What the backend did: graphs, operations that stayed in PyTorch and why. Nothing falls back silently."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

log = logging.getLogger("morpho")


@dataclass
class Report:
    """Counts since the process began, or since `reset()`."""

    graphs: Counter[str] = field(default_factory=Counter)  # forward, backward, inference
    functions: int = 0  # native functions made of them
    operations: Counter[str] = field(default_factory=Counter)  # in Morpho
    left: Counter[str] = field(default_factory=Counter)  # in PyTorch, by name
    reasons: dict[str, str] = field(default_factory=dict)  # why, by name
    static: Counter[str] = field(default_factory=Counter)  # dynamic graphs that are compiled for each size, by reason
    calls: int = 0
    compiled: list[object] = field(default_factory=list, repr=False)  # the functions, for `stats` and `explain`

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.graphs.items())) or "none"
        lines = [f"graphs: {kinds}; native functions: {self.functions}; calls: {self.calls}",
                 f"operations in Morpho: {sum(self.operations.values())} of {len(self.operations)} kinds"]
        for name, count in self.left.most_common():
            lines.append(f"left in PyTorch: {name} x {count} ({self.reasons[name]})")
        for reason, count in self.static.most_common():
            lines.append(f"compiled for each size: {count} graphs ({reason})")
        return "\n".join(lines)


_report = Report()


def report() -> Report:
    """What `torch.compile(backend="morpho")` did so far: print it, or read its counters.

    >>> import torch, morpho.torch
    >>> morpho.torch.reset()
    >>> f = torch.compile(lambda x: torch.relu(x) + 1, backend="morpho")
    >>> f(torch.ones(3))
    tensor([2., 2., 2.])
    >>> print(morpho.torch.report())
    graphs: 1 inference; native functions: 1; calls: 1
    operations in Morpho: 2 of 2 kinds
    """
    return _report


def reset() -> None:
    """Set all counters of `report()` to nothing; compiled functions stay.

    >>> morpho.torch.reset()
    >>> morpho.torch.report().calls
    0
    """
    global _report
    _report = Report()


def leave(name: str, reason: str) -> None:
    """Count an operation that stays in PyTorch; the first of a kind is logged."""
    if name not in _report.left:
        log.warning("%s stays in PyTorch: %s", name, reason)
    _report.left[name] += 1
    _report.reasons[name] = reason
