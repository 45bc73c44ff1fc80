"""The table of operators: name and domain -> (since version, function).

>>> table = Family("example")
>>> @table.op("Twice", since=7)
... def twice(call, x):
...     return x + x
>>> table.entries[("", "Twice")]
[(7, <function twice at ...>)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Operator = Callable[..., Any]
MICROSOFT = "com.microsoft"
ML = "ai.onnx.ml"


class Family:
    """The operators of one file."""

    def __init__(self, name: str, domain: str = "") -> None:
        self.name, self.domain = name, domain
        self.entries: dict[tuple[str, str], list[tuple[int, Operator]]] = {}

    def op(self, *names: str, since: int = 1, domain: str | None = None) -> Callable[[Operator], Operator]:
        """Register a function for operators, from an opset on; it gets a `Call` and the inputs."""
        def add(function: Operator) -> Operator:
            for name in names:
                rows = self.entries.setdefault((self.domain if domain is None else domain, name), [])
                rows.append((since, function))
                rows.sort(key=lambda row: row[0])
            return function

        return add
