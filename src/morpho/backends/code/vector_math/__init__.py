"""Vector math by own polynomials: one Python function per operation, for float and double at any lane count.

Every function uses only operations that IEEE 754 defines exactly, so the same input gives the same bits at every lane
count and on every instruction set. Measured errors stand in docs/numerics.md; `benchmarks/ulp_exhaustive.py` checks
all float32 inputs.
"""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code.emit import Value
from morpho.backends.code.vector_math.activations import (
    gelu,
    gelu_slope,
    gelu_tanh,
    mish,
    sigmoid,
    silu,
    softplus,
)
from morpho.backends.code.vector_math.error_function import erf
from morpho.backends.code.vector_math.exponential import exp, exp2, expm1
from morpho.backends.code.vector_math.formulas import SPECIAL
from morpho.backends.code.vector_math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from morpho.backends.code.vector_math.inverse_trigonometric import acos, asin, atan, atan2
from morpho.backends.code.vector_math.logarithm import log, log1p, log2, log10
from morpho.backends.code.vector_math.modulo import floor_divide, nextafter, remainder
from morpho.backends.code.vector_math.power import hypot, logaddexp, pow
from morpho.backends.code.vector_math.special_float import SINGLE, erfc
from morpho.backends.code.vector_math.trigonometric import cos, sin, tan

ONE_ARGUMENT: dict[str, Callable[..., Value]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "erf": erf,
    "erfc": erfc,
    "sigmoid": sigmoid,
    "gelu": gelu,
    "gelu_slope": gelu_slope,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "softplus": softplus,
    "mish": mish,
}
TWO_ARGUMENTS: dict[str, Callable[..., Value]] = {
    "pow": pow,
    "atan2": atan2,
    "hypot": hypot,
    "logaddexp": logaddexp,
    "remainder": remainder,
    "floor_divide": floor_divide,
    "nextafter": nextafter,
}
FUNCTIONS: dict[str, Callable[..., Value]] = {**ONE_ARGUMENT, **TWO_ARGUMENTS, **SPECIAL}

# These are by tables in float32 (`piecewise.py`).
BY_TABLE = frozenset({"gelu", "gelu_slope"})
# Rare arguments of these take a way of their own, most of them one by one; those of `BY_TABLE` in float32 only.
WITH_RARE_ARGUMENTS = frozenset({"gelu", "gelu_slope", "sin", "cos", "tan", "remainder", "floor_divide", "gcd",
                                 *SPECIAL})

def is_by_table(name: str, element: str) -> bool:
    """Whether a function of floats or doubles is looked up."""
    return name in BY_TABLE and element == "float"


def has_branches(name: str, element: str) -> bool:
    """Whether the code of a function is no straight line."""
    if name in SINGLE and element == "float":
        return False
    return name in WITH_RARE_ARGUMENTS and (name not in BY_TABLE or is_by_table(name, element))


__all__ = ["BY_TABLE", "FUNCTIONS", "ONE_ARGUMENT", "SPECIAL", "TWO_ARGUMENTS", "WITH_RARE_ARGUMENTS", "has_branches",
           "is_by_table"]
