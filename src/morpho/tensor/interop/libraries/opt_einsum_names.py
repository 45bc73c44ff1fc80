"""The names that opt_einsum looks for in a backend: see `backends.py`."""

from __future__ import annotations

from typing import Any

from morpho.tensor.functions.move import permute_dims
from morpho.tensor.functions.products.einsum import einsum as einsum
from morpho.tensor.functions.products.products import tensordot as tensordot


def transpose(x: Any, axes: Any) -> Any:
    """The axes in another order."""
    return permute_dims(x, tuple(axes))
