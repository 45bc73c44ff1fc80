"""Runs nodes on the CPU backend and on the reference, from NumPy arrays in stored form (bfloat16 as its bits).

Results of native code are written between canaries: a kernel that writes past its output is caught at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import morpho.tensor.jit.compile  # noqa: F401  (tells the driver where things lie inside objects)
from morpho.backends.reference import reference
from morpho.base.dims import Dim, evaluate
from morpho.base.dtypes import DType, bfloat16
from morpho.ir.body import Body
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build, make, toposort
from morpho.ir.op import Spec
from morpho.runtime.plans.evaluate import ExecutionPlan, make_plan, run_plan

Array = Any
CANARY = 64  # bytes before and after every result
_PATTERN = 0xA5


def parameter(index: int, shape: Sequence[Any], dtype: DType, strides: Sequence[int] | None = None) -> Node:
    """Argument number `index`; `strides`, in elements, when its memory is not contiguous."""
    extra = {} if strides is None else {"strides": tuple(strides)}
    return build("parameter", index=index, shape=tuple(shape), dtype=dtype, **extra)


def strides_of(array: Array) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(step // array.itemsize for step in array.strides)


class Native:
    """A compiled graph: call it with arrays of the shapes and strides of its parameters."""

    def __init__(self, outputs: Iterable[Node], own_outputs: bool = True) -> None:
        self.outputs = tuple(outputs)
        graph = Graph(self.outputs)
        inputs = max((node["index"] + 1 for node in graph.parameters), default=0)
        self.plan: ExecutionPlan = make_plan(graph, own_outputs, inputs)
        if any(step.may_fault for step in self.program.steps):  # loops compute what cannot fail before their first turn
            told = any(node.op.may_fault or node.op.kind == "collective" for node in graph.nodes)
            assert told, "an op that may fail does not say so"

    @property
    def program(self) -> Any:
        return self.plan.program

    def __call__(self, arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> list[Array]:
        sizes = sizes or {}
        slots = [slot for slot in self.program.slots if slot.kind == "result"]
        blocks = []
        for slot in slots:
            nbytes = evaluate(slot.elements, sizes) * slot.dtype.itemsize
            blocks.append(np.full(nbytes + 2 * CANARY, _PATTERN, np.uint8))
        inputs = sum(slot.kind == "input" for slot in self.program.slots)
        addresses = [array.ctypes.data for array in arrays]
        addresses = (addresses + [0] * inputs)[:inputs]
        run_plan(self.plan, addresses, [block.ctypes.data + CANARY for block in blocks], sizes)
        for block in blocks:
            edges = np.concatenate([block[:CANARY], block[-CANARY:]])
            assert np.all(edges == _PATTERN), "a kernel wrote outside its result"
        found = []
        for place in self.program.outputs:
            slot = self.program.slots[place.slot]
            assert slot.kind == "result", "own_outputs gives every output memory of its own"
            shape = tuple(evaluate(size, sizes) for size in place.shape)
            found.append(blocks[slot.index][CANARY:-CANARY].view(place.dtype.numpy).reshape(shape))
        return found


def fixed(outputs: Iterable[Node], sizes: Mapping[str, int] | None) -> list[Node]:
    """The same nodes with numbers in place of dynamic sizes."""

    def fix(value: Any) -> Any:
        if isinstance(value, Dim):
            return evaluate(value, sizes or {})
        if isinstance(value, Spec):
            return Spec(fix(value.shape), value.dtype)
        if isinstance(value, Body):
            return Body(fixed(value.outputs, sizes))
        return tuple(fix(item) for item in value) if isinstance(value, tuple) else value

    done: dict[int, Node] = {}
    outputs = tuple(outputs)
    for node in toposort(outputs):
        attributes = {name: fix(value) for name, value in node.attributes.items()}
        inputs = [done[child.serial] for child in node.inputs]
        if node.op.name == "dimension":
            number = float(attributes["size"]) if node.dtype.is_float else int(attributes["size"])
            done[node.serial] = build("constant", value=number, dtype=node.dtype)
        else:
            done[node.serial] = make(node.op, inputs, attributes)
    return [done[node.serial] for node in outputs]


def leaf_of(arrays: Sequence[Array], sizes: Mapping[str, int] | None = None) -> reference.Leaf:
    """How the reference finds the value of a leaf."""

    def leaf(node: Node) -> Array:
        if node.op.name == "dimension":
            return np.asarray(evaluate(node["size"], sizes or {}), node.dtype.compute.numpy)
        return reference.decode(arrays[node["index"]], node.dtype)

    return leaf


def by_reference(outputs: Iterable[Node], arrays: Sequence[Array],
                 sizes: Mapping[str, int] | None = None) -> list[Array]:
    """The values of nodes by NumPy, in stored form."""
    nodes = fixed(outputs, sizes)
    with np.errstate(all="ignore"):
        found = reference.run_graph(nodes, leaf_of(arrays, sizes))
    return [reference.encode(array, node.dtype) for array, node in zip(found, nodes, strict=True)]


def readable(array: Array, dtype: DType) -> Array:
    """Stored form to numbers: bfloat16 bits to float32."""
    return reference.decode(array, dtype) if dtype is bfloat16 else array


def stored(array: Array, dtype: DType) -> Array:
    """Numbers to stored form, rounded or converted as `astype` does."""
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return reference.encode(reference.rounded(array, dtype), dtype)
        return np.asarray(array).astype(dtype.numpy)


def equal_bits(a: Array, b: Array, dtype: DType) -> bool:
    """The same bits everywhere, any NaN being equal to any other."""
    return a.shape == b.shape and bool(np.all(_same(a, b, dtype)))


def _same(a: Array, b: Array, dtype: DType) -> Array:
    if dtype.is_complex:
        half = np.float32 if dtype.itemsize == 8 else np.float64
        one, two = (np.ascontiguousarray(x).reshape(-1).view(half) for x in (a, b))
        return _same_bits(one, two) | (np.isnan(one) & np.isnan(two))
    one, two = readable(a, dtype), readable(b, dtype)
    same = _same_bits(np.ascontiguousarray(a), np.ascontiguousarray(b))
    return same | (np.isnan(one) & np.isnan(two)) if dtype.is_float else same


def _same_bits(a: Array, b: Array) -> Array:
    unsigned = f"u{a.itemsize}"
    return a.view(unsigned) == b.view(unsigned)


def difference(a: Array, b: Array, dtype: DType) -> str:
    """Where two arrays differ first, in words."""
    if a.shape != b.shape:
        return f"shapes {a.shape} and {b.shape}"
    one, two = readable(a, dtype).reshape(-1), readable(b, dtype).reshape(-1)
    if dtype.is_complex:
        wrong = np.flatnonzero(one != two)
    else:
        wrong = np.flatnonzero(~_same(a, b, dtype).reshape(-1))
    return f"{len(wrong)} of {one.size} differ, first at {wrong[:3]}: {one[wrong[:3]]!r} and {two[wrong[:3]]!r}"
