"""The ops whose inputs and output have one shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from case_values import of_kinds

from morpho.base.dtypes import ALL, DType, bool_, uint32
from morpho.ir.node import Node, build


@dataclass(frozen=True)
class Elementwise:
    """An op of one shape. `accuracy` is 0 for exact ops, else the promised last places."""

    op: str
    kinds: str
    arity: int = 1
    accuracy: float = 0
    domain: tuple[float, float] = (-3.0, 3.0)  # where the gradient check draws its inputs
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return (uint32,) if self.op == "threefry" else ALL if self.op == "cast" else of_kinds(self.kinds)

    def inputs(self, dtype: DType) -> list[DType]:
        """The dtype of each input."""
        return [bool_, dtype, dtype] if self.op == "where" else [dtype] * self.arity

    def build(self, *nodes: Node) -> Node:
        return build(self.op, *nodes, **self.attributes)


def _unary() -> list[Elementwise]:
    table = [Elementwise(name, "iufc") for name in ("negative", "absolute", "sign", "square")]
    table += [Elementwise("sqrt", "fc", domain=(0.1, 3)), Elementwise("reciprocal", "fc", domain=(0.2, 3))]
    table += [Elementwise(name, "f") for name in ("floor", "ceil", "trunc", "round", "signbit")]
    table += [Elementwise(name, "fc") for name in ("isnan", "isinf", "isfinite")]
    table += [Elementwise("logical_not", "b"), Elementwise("bitwise_invert", "biu")]
    table += [Elementwise(name, "c") for name in ("real", "imag", "conj")]
    domains = {"log": (0.1, 3), "log2": (0.1, 3), "log10": (0.1, 3), "log1p": (-0.8, 3), "asin": (-0.9, 0.9),
               "acos": (-0.9, 0.9), "acosh": (1.1, 3), "atanh": (-0.9, 0.9), "tan": (-1.2, 1.2)}
    table += [Elementwise(name, "fc", accuracy=1, domain=domains.get(name, (-3, 3))) for name in ("exp", "log", "tanh")]
    table += [Elementwise(name, "f", accuracy=1) for name in ("erf", "sigmoid")]
    table += [Elementwise(name, "fc", accuracy=2, domain=domains.get(name, (-3, 3))) for name in (
        "expm1", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh",
        "acosh", "atanh")]
    table += [Elementwise("gelu_slope", "f", accuracy=5), Elementwise("erfc", "f", accuracy=3)]
    table += [Elementwise(name, "f", accuracy=2) for name in (
        "exp2", "gelu", "gelu_tanh", "silu", "softplus", "mish")]
    return table


def _several() -> list[Elementwise]:
    table = [Elementwise(name, "iufc", 2) for name in ("add", "subtract", "multiply")]
    table += [Elementwise("divide", "fc", 2, domain=(0.5, 3))]
    table += [Elementwise(name, "iuf", 2, domain=(0.3, 3)) for name in ("floor_divide", "remainder")]
    table += [Elementwise("pow", "iufc", 2, 2, domain=(0.3, 2))]
    table += [Elementwise(name, "f", 2, 2) for name in ("atan2", "hypot", "logaddexp")]
    table += [Elementwise(name, "f", 2) for name in ("copysign", "nextafter", "multiply_from_zero")]
    table += [Elementwise(name, "iuf", 2) for name in ("maximum", "minimum", "less", "less_equal", "greater",
                                                       "greater_equal")]
    table += [Elementwise(name, "biufc", 2) for name in ("equal", "not_equal")]
    table += [Elementwise(name, "b", 2) for name in ("logical_and", "logical_or", "logical_xor")]
    table += [Elementwise(name, "biu", 2) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")]
    table += [Elementwise(name, "iu", 2) for name in ("bitwise_left_shift", "bitwise_right_shift")]
    table += [Elementwise("gcd", "iu", 2), Elementwise("where", "biufc", 3), Elementwise("threefry", "u", 3)]
    return table


CASTS = [Elementwise("cast", "biufc", attributes={"dtype": target}) for target in ALL]
PLAIN = [*_unary(), *_several()]
ELEMENTWISE: list[Elementwise] = [*PLAIN, *CASTS]
