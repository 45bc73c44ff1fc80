"""A machine and a direction of a line, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from morpho.base.checks import shown
from morpho.base.errors import ValueFault, fail

# Where a node has no rate for a type, that of the first of these it has: what hardware does with such weights.
COMPUTES_AS = {
    "q4": ("q4", "int8", "f16", "bf16", "f32"), "int8": ("int8", "f16", "bf16", "f32"),
    "f16": ("f16", "bf16", "f32"), "bf16": ("bf16", "f16", "f32"), "f32": ("f32",),
}


def mbit_per_s(megabits: float) -> float:
    """Bytes per second of a line sold in megabits: 1000 Mbit/s is 125 MB/s.

    >>> mbit_per_s(1000)
    125000000.0
    """
    return megabits * 1e6 / 8


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


@dataclass(frozen=True, slots=True)
class Node:
    """A machine: memory, bandwidth of that memory, FLOP/s by dtype, and what was measured on it.

    `efficiency` scales the roofline for layers nobody has measured. `measured` maps `Layer.key` to the seconds of that
    layer (prefill, decode), which then replace the roofline. `group` is a label for people and files; which nodes are
    interchangeable is found from their figures and links (`Cluster.kinds`).

    >>> from morpho import plan
    >>> plan.Node("a", 8_000_000_000, memory_bytes_per_s=1e10, flops_per_s={"f32": 1e11}).rate("f32")
    100000000000.0
    """

    name: str
    memory_bytes: int
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    group: str = ""
    efficiency: float = 1.0
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rates = {f"flops_per_s[{dtype}]": rate for dtype, rate in self.flops_per_s.items()}
        for what, value in {"memory_bytes": self.memory_bytes, "memory_bytes_per_s": self.memory_bytes_per_s,
                            "efficiency": self.efficiency, **rates}.items():
            if not (_is_finite(value) and value > 0):
                raise fail(ValueFault, "plan", f"node {self.name!r} has {what} = {shown(value)}",
                           "give a positive number")
        for key, times in self.measured.items():
            if len(times) != 2 or not all(_is_finite(seconds) and seconds >= 0 for seconds in times):
                raise fail(ValueFault, "plan", f"node {self.name!r} has measured[{key!r}] = {shown(times)}",
                           "give the seconds of a prompt and of a token, 0 or more")
        for dtype in self.flops_per_s:
            if dtype not in COMPUTES_AS:
                raise fail(ValueFault, "plan", f"node {self.name!r} has a rate for the unknown dtype {dtype!r}",
                           f"use {', '.join(COMPUTES_AS)}")
        if "f32" not in self.flops_per_s:
            raise fail(ValueFault, "plan", f"node {self.name!r} has no FLOP/s for f32", "every node needs that one")

    def rate(self, dtype: str) -> float:
        """FLOP/s with weights of a dtype: its own figure, or that of the type the hardware computes it as.

        >>> Node("a", 1, 1.0, {"f32": 1e12, "bf16": 4e12}).rate("q4")
        4000000000000.0
        """
        return next(self.flops_per_s[name] for name in COMPUTES_AS[dtype] if name in self.flops_per_s)

    def figures(self) -> tuple[Any, ...]:
        """Everything that matters for speed and memory: equal figures and links make nodes interchangeable."""
        return (self.memory_bytes, self.memory_bytes_per_s, tuple(sorted(self.flops_per_s.items())), self.efficiency,
                tuple(sorted((key, tuple(value)) for key, value in self.measured.items())))


@dataclass(frozen=True, slots=True)
class Link:
    """A direction of a line: `latency_s` plus bytes over bandwidth. No bandwidth means no line.

    >>> from morpho import plan
    >>> plan.Link("a", "b", bandwidth_bytes_per_s=1e9, latency_s=1e-4).seconds(1_000_000)
    0.0011
    """

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def seconds(self, size_bytes: float) -> float:
        """How long a message takes; infinite where there is no line."""
        if self.bandwidth_bytes_per_s <= 0:
            return math.inf
        return self.latency_s + size_bytes / self.bandwidth_bytes_per_s
