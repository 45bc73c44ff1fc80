"""An op with shapes of its own as a row of the table, and what such rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from case_values import of_kinds
from running import stored

from morpho.base.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, uint8
from morpho.ir.node import Node

Array = Any
Specs = list[tuple[tuple[Any, ...], DType]]
SOME = (bool_, uint8, int32, float16, bfloat16, float32, float64)
NUMBERS = of_kinds("iuf")
FLOATS = of_kinds("f")


@dataclass(frozen=True)
class Shaped:
    """An op with shapes of its own, on one layout of inputs.

    `specs(dtype, n)` gives shape and dtype of every input, with `n` a number or a dynamic size; `make` builds the
    node. `check` is exact (bits of the reference), rule (bits of tests/ops/oracle.py), close or spectrum (tolerances),
    or solved (one for factorisations of matrices, whose errors grow with their condition).
    """

    op: str
    label: str
    dtypes: tuple[DType, ...]
    specs: Callable[[DType, Any], Specs]
    make: Callable[..., Node]
    check: str = "exact"
    dynamic: bool = True
    draw: Callable[[np.random.Generator, int, tuple[int, ...], DType], Array] | None = None
    lengths: tuple[int, ...] = (0, 1, 2, 3, 7, 16, 17, 33, 63, 64, 65, 67)
    gradient: bool = True

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"


def one_matrix(dtype: DType, n: Any) -> Specs:
    """Three rows of n."""
    return [((3, n), dtype)]


def draw_calm(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers of everyday size: what sums of functions are compared on."""
    if dtype.is_integer:
        return rng.integers(0, 100, shape).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.normal(0, 2, shape) + 1j * rng.normal(0, 2, shape)).astype(dtype.numpy)
    return stored(rng.normal(0, 2, shape), dtype)
