"""The table of op cases on a GPU, real or emulated: what it computes against the CPU's own bits and the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from case_values import operands
from cases import SHAPED
from elementwise_cases import CASTS, PLAIN
from running import parameter
from test_ops import LENGTH, draw_inputs

from morpho.base.dtypes import DType
from morpho.ir.node import Node, toposort

Case = tuple[str, Node, list[Any], list[DType], dict[str, int]]


def elementwise_cases(rng: np.random.Generator, length: int = 67) -> Iterator[Case]:
    """Every elementwise op of every dtype."""
    for case in (*PLAIN, *CASTS):
        for dtype in case.dtypes:
            if case in CASTS and dtype.is_complex and not case.attributes["dtype"].is_complex:
                continue
            kinds = case.inputs(dtype)
            arrays = [np.ascontiguousarray(array[:length]) for array in operands(rng, kinds, length)]
            node = case.build(*[parameter(i, arrays[0].shape, kind) for i, kind in enumerate(kinds)])
            yield f"{case.op} {case.attributes or ''} {dtype}", node, arrays, list(kinds), {}


def shaped_cases(rng: np.random.Generator, most: int = 3) -> Iterator[Case]:
    """Every other op."""
    for case in SHAPED:
        for dtype in case.dtypes[:most]:
            length = case.lengths[min(6, len(case.lengths) - 1)]
            arrays = draw_inputs(case, dtype, length, rng)
            specs = case.specs(dtype, LENGTH if case.dynamic else length)
            node = case.make(*[parameter(i, shape, kind) for i, (shape, kind) in enumerate(specs)])
            if any("body" in one.attributes for one in toposort([node])):
                continue  # groups are made by the passes of a backend
            yield f"{case} {dtype}", node, arrays, [kind for _, kind in specs], {"n": length} if case.dynamic else {}


def all_cases(rng: np.random.Generator) -> Sequence[Case]:
    """The whole table."""
    return [*elementwise_cases(rng), *shaped_cases(rng)]
