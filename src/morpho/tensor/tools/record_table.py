"""The page of operations, from their records: `python -m morpho.tensor.tools.record_table > docs/operations.md`."""

from __future__ import annotations

import math

import morpho.ops  # noqa: F401  (fills the registry)
from morpho.ir.op import REGISTRY, NoGradient, Op

HEAD = """# Operations

Every operation is one record in `src/morpho/ops/`; this page is written from them by
`python -m morpho.tensor.tools.record_table > docs/operations.md`, and a test compares. Numerics are those of
[numerics](numerics.md); under `amp.autocast` the class "full" is float32, a family takes the low dtype.
"""


def page() -> str:
    """The whole page: a table per kind of operation."""
    kinds: dict[str, list[Op]] = {}
    for op in REGISTRY.values():
        if op.name not in ("group", "gemm"):  # what fusion makes has no meaning of its own
            kinds.setdefault(op.kind, []).append(op)
    parts = [HEAD]
    for kind in sorted(kinds):
        rows = "\n".join(row(op) for op in sorted(kinds[kind], key=lambda op: op.name))
        parts.append(f"## {kind}\n\n| operation | inputs | numerics | autocast | gradient | function |\n"
                     f"|---|---|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def row(op: Op) -> str:
    """One line of a table."""
    function = f"`mo.{op.name}`: {op.summary}" if op.summary else ""
    gradient = ("missing" if op.vjp.missing else "none") if isinstance(op.vjp, NoGradient) else "yes"
    cells = (f"`{op.name}`", _inputs(op), op.numerics, op.autocast, gradient, function)
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _inputs(op: Op) -> str:
    if op.arity is None:
        return "any"
    least, most = op.arity
    return f"{least}" if least == most else f"{least} or more" if most == math.inf else f"{least} to {most:.0f}"


if __name__ == "__main__":
    print(page(), end="")
