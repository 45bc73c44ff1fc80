"""The reference backend: NumPy, one op at a time, slow and obviously right. The living definition of every op.

Between ops a bfloat16 is a float32 array whose values are bfloat16 values; half floats compute in float32 and round
once per op, as the kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16
from morpho.ir.node import Node, toposort
from morpho.ops.contract import MATMUL
from morpho.ops.convolution import CONV
from morpho.ops.special import round_bfloat16

Leaf = Callable[[Node], Any]


def decode(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array as stored to one to compute with."""
    if dtype is bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def encode(array: Any, dtype: DType) -> np.ndarray:
    """A computed array as it is stored: bfloat16 as its bits."""
    if dtype is bfloat16:
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16).reshape(np.shape(array))
    return np.asarray(array, dtype.numpy)


def rounded(array: Any, dtype: DType) -> np.ndarray:
    """A result at its dtype's precision, in the form reference ops take."""
    if dtype is bfloat16:
        return round_bfloat16(np.asarray(array, np.float32))
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype.numpy)


def run_node(node: Node, arrays: list[Any]) -> Any:
    """One op on arrays; several outputs come as a tuple."""
    if "body" in node.attributes:
        given = body_arrays(node, arrays)
        found = run_graph(node["body"].outputs, lambda leaf: given[leaf["index"]])
        return tuple(found) if len(found) > 1 else found[0]
    if node.op.name == "pick":  # from a tuple of arrays, each of its own dtype and rounded already
        return node.op.reference(node.attributes, *arrays)
    with np.errstate(all="ignore"):  # infinities and NaN are results here, not accidents
        widened = [a.astype(np.float32) if a.dtype == np.float16 and node.op.kind != "move" else a for a in arrays]
        result = node.op.reference(node.attributes, *widened)
    if len(node.outputs) > 1:
        return tuple(rounded(part, spec.dtype) for part, spec in zip(result, node.outputs, strict=True))
    return rounded(result, node.dtype)


def body_arrays(node: Node, arrays: list[Any]) -> list[Any]:
    """What the body of a fused node reads: its inputs, or, after a product, that product among the others."""
    if node.op.name != "gemm":
        return arrays
    widened = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays[:2]]
    found = CONV.reference(dict(node["windows"]), *widened) if node["windows"] else MATMUL.reference({}, *widened)
    product = rounded(found, node["dtype"]).reshape(node["space"])
    return [*arrays[2:2 + node["product"]], product, *arrays[2 + node["product"]:]]


def run_graph(outputs: Iterable[Node], leaf: Leaf) -> list[Any]:
    """Values of nodes; `leaf` gives the arrays of parameters, data and dynamic sizes."""
    outputs = tuple(outputs)
    values: dict[int, Any] = {}
    for node in toposort(outputs):
        if node.op.name in ("parameter", "data", "dimension"):
            values[node.serial] = leaf(node)
        else:
            values[node.serial] = run_node(node, [values[child.serial] for child in node.inputs])
    return [values[node.serial] for node in outputs]


