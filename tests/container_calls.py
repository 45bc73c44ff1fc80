"""Tensors for calls with containers, and what tests ask of those calls."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo


def vector(*numbers: float) -> mo.Tensor:
    """A float32 tensor with memory of its own."""
    return mo.asarray(np.array(numbers, np.float32), copy=True)


def slow(f: Any) -> int:
    """Calls that went through Python."""
    return int(f.stats["calls"] - f.stats["native_calls"])


def plain(tree: Any) -> Any:
    if isinstance(tree, mo.Tensor | np.ndarray):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(item) for item in tree] if isinstance(tree, tuple | list) else tree


A, B, C = vector(1, 2), vector(3, 5), vector(10, 20)
