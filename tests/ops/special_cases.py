"""Special functions: native code against the same formulas in NumPy. How near both are to the truth is a matter of
tests/tensor/test_special.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from running import stored
from shaped_case import Array, Shaped

from morpho.base.dtypes import DType, float32, float64
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY
from morpho.ops.special_functions.records import FORMULAS

DOMAINS: dict[str, list[tuple[float, float]]] = {
    "lgamma": [(0.2, 9)], "digamma": [(1.7, 9)], "erfinv": [(-0.9, 0.9)], "ndtri": [(0.05, 0.95)],
    "erfcinv": [(0.2, 1.8)], "logit": [(0.05, 0.95)], "cbrt": [(0.2, 9)], "trigamma": [(0.3, 9)],
    "bessel_y0": [(1, 3)],
    "bessel_y1": [(0.2, 2)], "bessel_j0": [(-2, 2)], "bessel_j1": [(0.3, 3)], "zeta": [(1.2, 5), (0.2, 9)],
    "gammainc": [(0.2, 9), (0.2, 9)], "gammaincc": [(0.2, 9), (0.2, 9)], "betainc": [(0.2, 9), (0.2, 9), (0.1, 0.9)],
}


def _draw(domains: list[tuple[float, float]]) -> Callable[..., Array]:
    def draw(rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
        return stored(rng.uniform(*domains[position], shape), dtype)

    return draw


def _case(name: str) -> Shaped:
    count = int(REGISTRY[name].arity[1])  # type: ignore[index]
    domains = DOMAINS.get(name, [(-3, 3)])

    def make(*nodes: Node) -> Node:
        return build(name, *nodes)

    return Shaped(name, "line", (float32, float64), lambda dtype, n: [((3, n), dtype)] * count, make, check="close",
                  draw=_draw(domains), gradient=name not in DOMAINS)


SPECIAL: list[Shaped] = [_case(name) for name in FORMULAS]
