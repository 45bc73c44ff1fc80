"""Report of the backend: graphs, operations that stayed in PyTorch, and the reasons. Nothing falls back silently."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

log = logging.getLogger("morpho")


def _graph_breaks() -> Counter[str]:
    """Reasons for which PyTorch's tracer ended graphs so far in this process, in a line each."""
    from torch._dynamo.utils import counters

    breaks: Counter[str] = Counter()
    for text, count in counters["graph_break"].items():
        lines = [line.strip() for line in str(text).splitlines()]
        reason = next((line for line in lines if line), "no reason")
        context = [line.partition(": ")[2] for line in lines if line.startswith("Developer debug context: ")]
        breaks[f"{reason}: {context[0]}" if context and context[0] else reason] += count
    return breaks


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
    _earlier_breaks: Counter[str] = field(default_factory=_graph_breaks, repr=False)

    @property
    def breaks(self) -> Counter[str]:
        """Graph breaks by reason: code around them runs in eager PyTorch. PyTorch counts those of all backends, and
        starts anew with `torch._dynamo.reset()` or a cleared counter."""
        breaks = _graph_breaks()
        if any(breaks[reason] < count for reason, count in self._earlier_breaks.items()):
            self._earlier_breaks = Counter()
        return breaks - self._earlier_breaks

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.graphs.items())) or "none"
        lines = [f"graphs: {kinds}; native functions: {self.functions}; calls: {self.calls}",
                 f"operations in Morpho: {sum(self.operations.values())} of {len(self.operations)} kinds"]
        for name, count in self.left.most_common():
            lines.append(f"left in PyTorch: {name} x {count} ({self.reasons[name]})")
        for reason, count in self.breaks.most_common():
            lines.append(f"graph break, eager PyTorch from there: {reason} x {count}")
        for reason, count in self.static.most_common():
            lines.append(f"compiled for each size: {count} graphs ({reason})")
        return "\n".join(lines)


_report = Report()


def report() -> Report:
    """Report on `torch.compile(backend="morpho")` so far: print it, or read its counters.

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
