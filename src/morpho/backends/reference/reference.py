"""The reference backend: NumPy, one op at a time, slow and obviously right. The living definition of every op.

Between ops a bfloat16 is a float32 array whose values are bfloat16 values; half floats compute in float32 and round
once per op, as the kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from morpho.backends.reference import control
from morpho.base.dims import evaluate, settled
from morpho.base.dtypes import DType, bfloat16
from morpho.ir.node import Node, toposort
from morpho.ir.op import REGISTRY
from morpho.ir.views import CHANNELS_LAST
from morpho.ops.special import round_bfloat16

Leaf = Callable[[Node], Any]
STATIC: Mapping[str, int] = MappingProxyType({})


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
        return np.asarray(round_bfloat16(np.asarray(array, np.float32)))
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype.numpy)


def run_node(node: Node, arrays: list[Any], sizes: Mapping[str, int] = STATIC) -> Any:
    """One op on arrays; several outputs come as a tuple. `sizes` are the numbers of dynamic sizes."""
    if node.op.kind == "control":
        return control.run(node, arrays, sizes, run_graph)
    if "body" in node.attributes:
        given = body_arrays(node, arrays, sizes)
        found = run_graph(node["body"].outputs, lambda leaf: given[leaf["index"]], sizes)
        return tuple(found) if len(found) > 1 else found[0]
    if node.op.name == "dimension":
        return np.asarray(evaluate(node["size"], sizes), node.dtype.compute.numpy)
    if node.op.name == "pick":  # from a tuple of arrays, each of its own dtype and rounded already
        return node.op.reference(node.attributes, *arrays)
    attributes = {name: settled(value, sizes) for name, value in node.attributes.items()} if sizes else node.attributes
    if "by dtype" in node.op.properties:  # arrays of half floats do not tell it
        attributes = {**attributes, "dtype": node.dtype}
    with np.errstate(all="ignore"):  # infinities and NaN are results here, not accidents
        widened = [a.astype(np.float32) if a.dtype == np.float16 and node.op.kind != "move" else a for a in arrays]
        result = node.op.reference(attributes, *widened)
    if len(node.outputs) > 1:
        return tuple(rounded(part, spec.dtype) for part, spec in zip(result, node.outputs, strict=True))
    return rounded(result, node.dtype)


def body_arrays(node: Node, arrays: list[Any], sizes: Mapping[str, int] = STATIC) -> list[Any]:
    """Inputs of the body of a fused node: its own, or, after a product, that product among the others."""
    if node.op.name != "gemm":
        return arrays
    widened = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays[:2]]
    how = dict(node["windows"]) if node["windows"] else {"kind": node["kind"]}
    product = REGISTRY[node["by"]].reference(how, *widened)
    product = np.transpose(product, CHANNELS_LAST) if node["last"] else product
    product = rounded(product, node["dtype"]).reshape(settled(node["space"], sizes))
    return [*arrays[2:2 + node["product"]], product, *arrays[2 + node["product"]:]]


def run_graph(outputs: Iterable[Node], leaf: Leaf, sizes: Mapping[str, int] = STATIC,
              run: Callable[[Node, list[Any], Mapping[str, int]], Any] = run_node) -> list[Any]:
    """Values of nodes; `leaf` gives those of parameters and data, `run` those of the others."""
    outputs = tuple(outputs)
    values: dict[int, Any] = {}
    for node in toposort(outputs):
        if node.op.name in ("parameter", "data"):
            values[node.serial] = leaf(node)
        else:
            values[node.serial] = run(node, [values[child.serial] for child in node.inputs], sizes)
    return [values[node.serial] for node in outputs]


