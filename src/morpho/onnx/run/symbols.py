"""Named sizes of a model's inputs as bounded symbols of a compiled function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import morpho as mo
from morpho.onnx.proto.errors import refuse
from morpho.onnx.proto.model import Value

LARGEST = 1 << 16


def symbols_of(inputs: Sequence[Value], dynamic: Mapping[str, Any] | bool) -> dict[str, dict[int, mo.Dim]]:
    """By input and axis; `dynamic` is True for all named sizes, or their bounds by name: `{"batch": (1, 64)}`."""
    if not dynamic:
        return {}
    named = {size for value in inputs if value.type and value.type.shape for size in value.type.shape
             if isinstance(size, str)}
    bounds: dict[str, Any] = {name: (1, LARGEST) for name in named} if dynamic is True else dict(dynamic)
    if unknown := sorted(set(bounds) - named):
        raise refuse(f"dynamic= names the size {unknown[0]!r}; the model has {', '.join(sorted(named)) or 'none'}")
    dims = {}
    for name, bound in bounds.items():
        try:
            low, high = (1, bound) if isinstance(bound, int) else bound
        except (TypeError, ValueError):
            raise refuse(f"dynamic= gives {bound!r} for {name!r}; give (least, most)") from None
        dims[name] = mo.Dim("d_" + re.sub(r"\W", "_", name), low, high)
    return {value.name: axes for value in inputs if value.type and value.type.shape
            and (axes := {axis: dims[size] for axis, size in enumerate(value.type.shape) if size in dims})}
