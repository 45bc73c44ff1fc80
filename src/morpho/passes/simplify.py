"""Algebraic simplification: a table of rewrite rules, each of which is exact to the bit.

x + 0.0 is not x (it turns -0.0 into 0.0), x * 0 is not 0 (NaN, infinities), x - x is not 0: such rules are absent
for floats on purpose, and tests hold the table to it.
"""

from __future__ import annotations

import math

from morpho.base.dtypes import DType, float16, float32, float64, int8, int32, uint8
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, rebuild
from morpho.ir.rewrite import RuleTable, rewrite
from morpho.ops.algebra import constant, expand, permute, reshape
from morpho.ops.order import remat_barrier

RULES = RuleTable()
rule = RULES.rule


def scalar(node: Node) -> float | int | bool | None:
    """The number a node has in every element, seen through views, or None."""
    while node.op.name in ("expand", "reshape", "permute"):
        node = node.inputs[0]
    return node["value"] if node.op.name == "constant" else None


def _is(node: Node, value: float) -> bool:
    found = scalar(node)
    if found is None or isinstance(found, complex):
        return False
    return found == value and math.copysign(1, found) == math.copysign(1, value)


# -- arithmetic with neutral elements --------------------------------------------------------------------------------
@rule("multiply")
def multiply_by_one(node: Node) -> Node | None:
    a, b = node.inputs
    return a if _is(b, 1) else b if _is(a, 1) else None


@rule("divide")
def divide_by_one(node: Node) -> Node | None:
    return node.inputs[0] if _is(node.inputs[1], 1) else None


@rule("divide")
def divide_by_power_of_two(node: Node) -> Node | None:
    """Exact: the reciprocal of a power of two is one too, and the product rounds as the quotient does."""
    a, b = node.inputs
    value = scalar(b)
    if not node.dtype.is_float or value is None or value == 0 or not math.isfinite(value):
        return None
    mantissa, exponent = math.frexp(abs(value))
    if mantissa != 0.5 or not -100 < exponent < 100 or node.dtype.itemsize < 4:
        return None
    return build("multiply", a, expand(constant(1 / value, node.dtype), node.shape))


@rule("add")
def add_nothing(node: Node) -> Node | None:
    """Integers: 0. Floats: only -0.0 leaves every x alone."""
    a, b = node.inputs
    nothing = -0.0 if node.dtype.is_float else 0
    return a if _is(b, nothing) else b if _is(a, nothing) else None


@rule("subtract")
def subtract_zero(node: Node) -> Node | None:
    return node.inputs[0] if _is(node.inputs[1], 0.0 if node.dtype.is_float else 0) else None


@rule("subtract")
def integer_minus_itself(node: Node) -> Node | None:
    a, b = node.inputs
    return expand(constant(0, node.dtype), node.shape) if a is b and node.dtype.is_integer else None


@rule("multiply")
def integer_times_zero(node: Node) -> Node | None:
    if not node.dtype.is_integer:
        return None
    return expand(constant(0, node.dtype), node.shape) if any(_is(x, 0) for x in node.inputs) else None


@rule("negative")
def twice_negative(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op is node.op else None


@rule("subtract")
def subtract_negative(node: Node) -> Node | None:
    a, b = node.inputs
    return build("add", a, b.inputs[0]) if b.op.name == "negative" else None


@rule("absolute")
def absolute_of_absolute(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op.name == "absolute":
        return inner
    return build("absolute", inner.inputs[0]) if inner.op.name == "negative" and node.dtype.is_float else None


@rule("logical_not", "bitwise_invert")
def twice_not(node: Node) -> Node | None:
    inner = node.inputs[0]
    return inner.inputs[0] if inner.op is node.op else None


@rule("maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
def same_operands(node: Node) -> Node | None:
    a, b = node.inputs
    return a if a is b else None


@rule("where")
def where_known(node: Node) -> Node | None:
    mask, a, b = node.inputs
    known = scalar(mask)
    if known is not None:
        return a if known else b
    return a if a is b else None


@rule("where")
def relu_is_maximum(node: Node) -> Node | None:
    """x where it is not below 0 or equal, else 0: NaN stays and -0.0 becomes 0.0, as in `maximum`."""
    mask, a, b = node.inputs
    if mask.op.name != "less_equal" or mask.inputs[0] is not b or not _is(a, 0) or not _is(mask.inputs[1], 0):
        return None
    return build("maximum", b, a)


# -- casts -----------------------------------------------------------------------------------------------------------
def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
    if wide is narrow:
        return True
    if narrow.kind == wide.kind:
        return wide.itemsize > narrow.itemsize
    if narrow.kind == "b":
        return True
    if (narrow.kind, wide.kind) == ("u", "i"):
        return wide.itemsize > narrow.itemsize
    return order[wide.kind] == 2 and order[narrow.kind] == 1 and wide.itemsize > narrow.itemsize


@rule("cast")
def cast_to_itself(node: Node) -> Node | None:
    return node.inputs[0] if node.inputs[0].dtype is node.dtype else None


@rule("cast")
def cast_there_and_back(node: Node) -> Node | None:
    """narrow -> wide -> narrow is nothing; narrow -> wide -> other is narrow -> other when the first is exact."""
    inner = node.inputs[0]
    if inner.op.name != "cast":
        return None
    source = inner.inputs[0]
    if not _holds(inner.dtype, source.dtype) or node.dtype.is_complex or inner.dtype.is_complex:
        return None
    if inner.dtype.is_float and source.dtype.is_integer and node.dtype.is_integer \
            and not _holds(node.dtype, source.dtype):
        return None  # a float saturates where an integer wraps
    return source if source.dtype is node.dtype else build("cast", source, dtype=node.dtype)


# -- products --------------------------------------------------------------------------------------------------------
def _bytes_behind(node: Node) -> Node | None:
    """The integers of one byte that a node widens, seen as the node sees them."""
    if node.op.name == "cast":
        return node.inputs[0] if node.inputs[0].dtype in (int8, uint8) else None
    if node.op.name not in ("reshape", "permute", "expand", "slice"):
        return None
    inner = _bytes_behind(node.inputs[0])
    return None if inner is None else rebuild(node, [inner])


@rule("matmul")
def product_of_bytes(node: Node) -> Node | None:
    """A product of int8 or uint8 widened to int32 reads the bytes themselves: exact either way."""
    if node.dtype is not int32:
        return None
    operands = [_bytes_behind(child) for child in node.inputs]
    return build("matmul_int8", *operands) if None not in operands else None  # type: ignore[arg-type]


@rule("matmul")
def product_of_one(node: Node) -> Node | None:
    """A chain of one product needs no packing and joins the loops around it. bfloat16 adds the zero of an odd chain."""
    a, b = node.inputs
    if a.shape[-1] != 1 or node.dtype not in (float16, float32, float64) or node.attributes:
        return None
    return build("multiply_from_zero", expand(a, node.shape), expand(b, node.shape))


# -- views -----------------------------------------------------------------------------------------------------------
@rule("reshape")
def reshape_of_reshape(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.shape == node.shape:
        return inner
    return reshape(inner.inputs[0], node.shape) if inner.op.name == "reshape" else None


@rule("permute")
def permute_of_permute(node: Node) -> Node | None:
    inner, axes = node.inputs[0], node["axes"]
    if axes == tuple(range(len(axes))):
        return inner
    return permute(inner.inputs[0], tuple(inner["axes"][a] for a in axes)) if inner.op.name == "permute" else None


@rule("expand")
def expand_of_expand(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.shape == node.shape:
        return inner
    return build("expand", inner.inputs[0], shape=node.shape) if inner.op.name == "expand" else None


@rule("slice")
def slice_of_everything(node: Node) -> Node | None:
    whole = node["sizes"] == node.inputs[0].shape and all(s == 0 for s in node["starts"])
    return node.inputs[0] if whole and all(s == 1 for s in node["steps"]) else None


@rule("slice")
def slice_of_slice(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op.name != "slice":
        return None
    starts = tuple(a + b * s for a, b, s in zip(inner["starts"], node["starts"], inner["steps"], strict=True))
    steps = tuple(a * b for a, b in zip(inner["steps"], node["steps"], strict=True))
    return build("slice", inner.inputs[0], starts=starts, sizes=node["sizes"], steps=steps)


@rule("remat_barrier")
def barrier_of_a_number(node: Node) -> Node | None:
    """Constants and index numbers are in no memory: they cost nothing to have once more."""
    found = remat_barrier(*node.inputs)
    return found if found is not node else None


@rule("remat_barrier")
def barrier_of_a_barrier(node: Node) -> Node | None:
    inner = node.inputs[0]
    if inner.op.name != "remat_barrier":
        return None
    return remat_barrier(inner.inputs[0], *dict.fromkeys((*inner.inputs[1:], *node.inputs[1:])))


@rule("copy")
def copy_is_the_value(node: Node) -> Node | None:
    return node.inputs[0] if node.inputs[0].op.kind not in ("source", "move") else None


def simplify(graph: Graph, applied: dict[str, int] | None = None) -> Graph:
    """Apply the table to a fixpoint."""
    return rewrite(graph, RULES, applied)
