"""Calls of functions whose arguments a signature does not tell: one row each, with the same call of every peer.

A row is a name, the arguments, and the call of each library; the tables lie by kind in the files beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.surface import array_forms, layer_forms, numeric_forms
from benchmarks.surface.draws import Call, Draw, Form


def forms() -> list[Form]:
    """All rows."""
    rows: list[Form] = []

    def add(name: str, label: str, draws: Sequence[Draw], own: Call, torch: Call | None = None,
            numpy: Call | None = None, scipy: Call | None = None, **options: Any) -> None:
        peers = {library: call for library, call in (("torch", torch), ("numpy", numpy), ("scipy", scipy)) if call}
        rows.append(Form(name, label, tuple(draws), own, peers, **options))

    for table in (numeric_forms.products, numeric_forms.matrices, numeric_forms.transforms, layer_forms.layers,
                  layer_forms.losses, array_forms.moves, array_forms.orders, array_forms.counts, array_forms.calculus):
        table(add)
    return rows
