"""All families together: which function computes an operator of an opset."""

from __future__ import annotations

from morpho.onnx.operators import families
from morpho.onnx.operators.registry import Operator

TABLE: dict[tuple[str, str], list[tuple[int, Operator]]] = {}
FAMILY_OF: dict[tuple[str, str], str] = {}
for _family in families.FAMILIES:
    for _key, _rows in _family.entries.items():
        TABLE.setdefault(_key, []).extend(_rows)
        FAMILY_OF[_key] = _family.name


def lookup(domain: str, op: str, version: int) -> Operator | None:
    """The function of an operator that holds for an opset: the latest that is not later."""
    found = None
    for since, function in TABLE.get((domain, op), ()):
        if since <= version or found is None:
            found = function
    return found


def operators() -> list[tuple[str, str, str]]:
    """All operators that Morpho runs: (domain, name, family).

    >>> ("ai.onnx", "Conv", "convolution") in mo.onnx.operators()
    True
    """
    return sorted((domain or "ai.onnx", name, FAMILY_OF[domain, name]) for domain, name in TABLE)
