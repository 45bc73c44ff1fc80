"""Nodes of Morpho's graphs as nodes of ONNX: one function for each operation, compositions for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.onnx.export.builder import Builder
from morpho.onnx.export.message import kind_of

# Operations whose ONNX name needs nothing else; broadcasting is ONNX's own.
ELEMENTWISE = {
    "absolute": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "bitwise_and": "BitwiseAnd", "bitwise_invert": "BitwiseNot", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "divide": "Div", "equal": "Equal",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "isinf": "IsInf", "isnan": "IsNaN", "less": "Less", "less_equal": "LessOrEqual", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor", "maximum": "Max",
    "minimum": "Min", "mish": "Mish", "multiply": "Mul", "negative": "Neg", "pow": "Pow", "reciprocal": "Reciprocal",
    "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh", "where": "Where",
}
REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
Emit = Callable[["Lowering", Node, list[str]], Any]
EMIT: dict[str, Emit] = {}


def emits(*names: str) -> Callable[[Emit], Emit]:
    """Register how an operation is written."""
    def add(function: Emit) -> Emit:
        for name in names:
            EMIT[name] = function
        return function

    return add


class Lowering:
    """The walk over a graph; `names` has the ONNX value of each node, a list where it has several outputs."""

    def __init__(self, builder: Builder, parameters: Sequence[str]) -> None:
        self.builder, self.parameters = builder, parameters
        self.names: dict[int, Any] = {}
        self.missing: Counter[str] = Counter()

    def run(self, graph: Graph) -> list[str]:
        """The names of a graph's outputs."""
        for node in graph.nodes:
            self.value(node)
        return [self.names[node.serial] for node in graph.outputs]

    def value(self, node: Node) -> Any:
        """The name of a node's value, which is written if it is not yet."""
        if node.serial in self.names:
            return self.names[node.serial]
        name = node.op.name
        made: Any
        if name in ELEMENTWISE:
            made = self._elementwise(ELEMENTWISE[name], node)
        elif name in EMIT:
            made = EMIT[name](self, node, [self.value(child) for child in node.inputs])
        elif node.op.composition is not None:
            made = self._composed(node)
        else:
            self.missing[name] += 1
            made = "" if len(node.outputs) == 1 else [""] * len(node.outputs)
        if isinstance(made, list) and len(node.outputs) == 1:
            made = made[0]
        self.names[node.serial] = made
        return made

    def _composed(self, node: Node) -> Any:
        assert node.op.composition is not None
        found: Any = node.op.composition(node)
        parts = [found] if isinstance(found, Node) else [*found]
        for part in parts:
            for inner in Graph((part,)).nodes:
                self.value(inner)
        made = [self.names[part.serial] for part in parts]
        return made[0] if isinstance(found, Node) else made

    def _elementwise(self, op: str, node: Node) -> str:
        """Operands that were only broadcast are taken as they were, if another one has the full shape."""
        full = [child for child in node.inputs if child.op.name != "expand"]
        inputs = [self.value(child) for child in node.inputs]
        if any(child.shape == node.shape for child in full):
            inputs = [self.value(child.inputs[0]) if child.op.name == "expand" else given
                      for child, given in zip(node.inputs, inputs)]
        return str(self.builder.node(op, inputs))

    def refuse_missing(self) -> None:
        """One error for all operations that ONNX has no words for."""
        if self.missing:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(self.missing.items()))
            raise fail(ArgumentError, "onnx", f"the function uses operations that have no form in ONNX: {listed}")


# -- sources -----------------------------------------------------------------------------------------------------------
@emits("parameter")
def _parameter(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.parameters[node["index"]])


@emits("constant")
def _constant(to: Lowering, node: Node, inputs: list[str]) -> str:
    return to.builder.scalar(node["value"], node.dtype)


@emits("data")
def _data(to: Lowering, node: Node, inputs: list[str]) -> str:
    from morpho.tensor.core import Tensor

    return to.builder.tensor(Tensor.of_node(node))


@emits("dimension")
def _dimension(to: Lowering, node: Node, inputs: list[str]) -> str:
    size = next(iter(node.attributes.values()))
    number = to.builder.node("Squeeze", [to.builder.size(size)])
    return str(to.builder.node("Cast", [number], to=kind_of(node.dtype).code))


@emits("iota")
def _iota(to: Lowering, node: Node, inputs: list[str]) -> str:
    shape, axis, build = node["shape"], node["axis"], to.builder
    count = build.node("Squeeze", [build.size(shape[axis])])
    line = build.node("Range", [build.scalar(0, mo.int64), count, build.scalar(1, mo.int64)])
    line = build.node("Cast", [line], to=kind_of(node.dtype).code)
    line = build.node("Reshape", [line, build.array(np.asarray([-1 if at == axis else 1 for at in range(len(shape))],
                                                               np.int64))])
    return str(build.node("Expand", [line, build.sizes(shape)]))


# -- elementwise with a twist ------------------------------------------------------------------------------------------
@emits("cast")
def _cast(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Cast", inputs, to=kind_of(node.dtype).code))


@emits("square")
def _square(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Mul", inputs * 2))


@emits("gelu", "gelu_tanh")
def _gelu(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Gelu", inputs, approximate="tanh" if node.op.name == "gelu_tanh" else "none"))


@emits("silu")
def _silu(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Mul", [inputs[0], to.builder.node("Sigmoid", inputs)]))


@emits("trunc")
def _trunc(to: Lowering, node: Node, inputs: list[str]) -> str:
    size = to.builder.node("Floor", [to.builder.node("Abs", inputs)])
    return str(to.builder.node("Mul", [to.builder.node("Sign", inputs), size]))


@emits("remainder")
def _remainder(to: Lowering, node: Node, inputs: list[str]) -> str:
    if node.dtype.is_integer:
        return str(to.builder.node("Mod", inputs))
    quotient = to.builder.node("Floor", [to.builder.node("Div", inputs)])
    return str(to.builder.node("Sub", [inputs[0], to.builder.node("Mul", [quotient, inputs[1]])]))


@emits("floor_divide")
def _floor_divide(to: Lowering, node: Node, inputs: list[str]) -> str:
    if not node.dtype.is_integer:
        return str(to.builder.node("Floor", [to.builder.node("Div", inputs)]))
    rest = to.builder.node("Mod", inputs)  # has the sign of the divisor, so that what is left divides exactly
    return str(to.builder.node("Div", [to.builder.node("Sub", [inputs[0], rest]), inputs[1]]))


@emits("not_equal")
def _not_equal(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Not", [to.builder.node("Equal", inputs)]))


@emits("isfinite")
def _isfinite(to: Lowering, node: Node, inputs: list[str]) -> str:
    odd = to.builder.node("Or", [to.builder.node("IsInf", inputs), to.builder.node("IsNaN", inputs)])
    return str(to.builder.node("Not", [odd]))


def _of_logarithm(base: float) -> Emit:
    def emit(to: Lowering, node: Node, inputs: list[str]) -> str:
        factor = to.builder.scalar(1 / np.log(base), node.dtype)
        return str(to.builder.node("Mul", [to.builder.node("Log", inputs), factor]))

    return emit


EMIT["log2"], EMIT["log10"] = _of_logarithm(2.0), _of_logarithm(10.0)


@emits("expm1", "log1p", "exp2", "erfc", "logit", "cbrt")
def _simple_composition(to: Lowering, node: Node, inputs: list[str]) -> str:
    build, one = to.builder, to.builder.scalar(1, node.dtype)
    if node.op.name == "expm1":
        return str(build.node("Sub", [build.node("Exp", inputs), one]))
    if node.op.name == "log1p":
        return str(build.node("Log", [build.node("Add", [inputs[0], one])]))
    if node.op.name == "erfc":
        return str(build.node("Sub", [one, build.node("Erf", inputs)]))
    if node.op.name == "logit":
        return str(build.node("Log", [build.node("Div", [inputs[0], build.node("Sub", [one, inputs[0]])])]))
    if node.op.name == "cbrt":
        root = build.node("Pow", [build.node("Abs", inputs), build.scalar(1 / 3, node.dtype)])
        return str(build.node("Mul", [build.node("Sign", inputs), root]))
    return str(build.node("Pow", [build.scalar(2, node.dtype), inputs[0]]))


# -- reductions and rows -----------------------------------------------------------------------------------------------
@emits(*REDUCTIONS)
def _reduce(to: Lowering, node: Node, inputs: list[str]) -> str:
    axes = to.builder.array(np.asarray(node["axes"], np.int64))
    return str(to.builder.node(REDUCTIONS[node.op.name], [inputs[0], axes], keepdims=1))


@emits("all", "any")
def _reduce_bools(to: Lowering, node: Node, inputs: list[str]) -> str:
    axes = to.builder.array(np.asarray(node["axes"], np.int64))
    number = to.builder.node("Cast", inputs, to=kind_of(mo.int32).code)
    found = to.builder.node("ReduceMin" if node.op.name == "all" else "ReduceMax", [number, axes], keepdims=1)
    return str(to.builder.node("Cast", [found], to=kind_of(mo.bool).code))


@emits("softmax", "log_softmax")
def _softmax(to: Lowering, node: Node, inputs: list[str]) -> Any:
    axes = node.attributes.get("axes", ())
    if len(axes) != 1:
        return to._composed(node)
    return to.builder.node("Softmax" if node.op.name == "softmax" else "LogSoftmax", inputs, axis=int(axes[0]))


@emits("cumulative_sum")
def _cumulative_sum(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("CumSum", [inputs[0], to.builder.scalar(node["axis"], mo.int64)]))


@emits("sort", "argsort")
def _sort(to: Lowering, node: Node, inputs: list[str]) -> str:
    size = to.builder.size(node.inputs[0].shape[node["axis"]])
    found = to.builder.node("TopK", [inputs[0], size], 2, axis=int(node["axis"]), largest=int(node["descending"]),
                            sorted=1)
    if node.op.name == "sort":
        return str(found[0])
    return str(to.builder.node("Cast", [found[1]], to=kind_of(node.dtype).code))


# -- movement ----------------------------------------------------------------------------------------------------------
@emits("reshape")
def _reshape(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Reshape", [inputs[0], to.builder.sizes(node.shape)], allowzero=1))


@emits("expand")
def _expand(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Expand", [inputs[0], to.builder.sizes(node.shape)]))


@emits("permute")
def _permute(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Transpose", inputs, perm=[*node["axes"]]))


@emits("slice")
def _slice(to: Lowering, node: Node, inputs: list[str]) -> str:
    starts, ends = [], []
    for start, size, step in zip(node["starts"], node["sizes"], node["steps"]):
        end = start + size * step
        starts.append(start)
        ends.append(end if step > 0 or not isinstance(end, int) or end >= 0 else -(1 << 62))
    axes = to.builder.array(np.arange(len(starts)))
    return str(to.builder.node("Slice", [inputs[0], to.builder.sizes(starts), to.builder.sizes(ends), axes,
                                         to.builder.array(np.asarray(node["steps"], np.int64))]))


@emits("pad")
def _pad(to: Lowering, node: Node, inputs: list[str]) -> str:
    widths = to.builder.sizes([*node["before"], *node["after"]])
    return str(to.builder.node("Pad", [inputs[0], widths, to.builder.scalar(node["value"], node.dtype)]))


@emits("concatenate")
def _concatenate(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("Concat", inputs, axis=int(node["axis"])))


@emits("window")
def _window(to: Lowering, node: Node, inputs: list[str]) -> str:
    """Sliding windows as new last axes: each axis gathered at the places of its windows."""
    name, source = inputs[0], node.inputs[0].shape
    taken = 0
    for axis, size, step, gap in zip(node["axes"], node["sizes"], node["steps"], node["dilations"]):
        count = node.shape[axis]
        if not isinstance(count, int):
            to.missing["window of a dynamic size"] += 1
            return name
        places = np.arange(count)[:, None] * step + np.arange(size) * gap
        name = to.builder.node("Gather", [name, to.builder.array(places)], axis=int(axis))
        rank = len(source) + taken
        order = [at for at in range(rank + 1) if at != axis + 1] + [axis + 1]
        name, taken = to.builder.node("Transpose", [name], perm=order), taken + 1
    return str(name)


@emits("copy", "detach", "mark", "checkpoint", "remat_barrier")
def _same(to: Lowering, node: Node, inputs: list[str]) -> str:
    return inputs[0]


@emits("pick")
def _pick(to: Lowering, node: Node, inputs: list[Any]) -> str:
    return str(inputs[0][node["index"]] if isinstance(inputs[0], list) else inputs[0])


# -- lookups -----------------------------------------------------------------------------------------------------------
@emits("gather")
def _gather(to: Lowering, node: Node, inputs: list[str]) -> str:
    """Along an axis, the other axes side by side."""
    table, places = node.inputs
    axis, index = node["axis"], node.inputs[1]
    if index.op.name == "expand" and all(size == 1 for at, size in enumerate(index.inputs[0].shape) if at != axis):
        line = to.builder.node("Reshape", [to.value(index.inputs[0]), to.builder.array(np.asarray([-1], np.int64))])
        return str(to.builder.node("Gather", [inputs[0], line], axis=int(axis)))
    return str(to.builder.node("GatherElements", inputs, axis=int(axis)))


@emits("scatter")
def _scatter(to: Lowering, node: Node, inputs: list[str]) -> str:
    how = {"set": "none", "add": "add", "sum": "add", "prod": "mul", "multiply": "mul", "max": "max", "min": "min"}
    if node["mode"] not in how:
        to.missing[f"scatter {node['mode']}"] += 1
        return inputs[0]
    return str(to.builder.node("ScatterElements", inputs, axis=int(node["axis"]), reduction=how[node["mode"]]))


# -- products ----------------------------------------------------------------------------------------------------------
@emits("matmul")
def _matmul(to: Lowering, node: Node, inputs: list[str]) -> str:
    return str(to.builder.node("MatMul", inputs))


@emits("conv")
def _conv(to: Lowering, node: Node, inputs: list[str]) -> str:
    pads = [*node["before"], *node["after"]]
    return str(to.builder.node("Conv", inputs, pads=pads, strides=[*node["steps"]], dilations=[*node["dilations"]],
                               group=int(node["groups"])))


@emits("attention")
def _attention(to: Lowering, node: Node, inputs: list[str]) -> Any:
    """Products, a mask and a softmax; the row sums that training keeps are not written."""
    build, (q, k, v) = to.builder, inputs[:3]
    heads, shared = node.inputs[0].shape[1], node.inputs[1].shape[1]
    if node["window"] or node["moving"] or (heads != shared):
        return to._composed(node) if node.op.composition else _unwritten(to, "attention with a window, shared heads or "
                                                                             "a moving offset", 2)
    turned = build.node("Transpose", [k], perm=[0, 1, 3, 2])
    scores = build.node("Mul", [build.node("MatMul", [q, turned]), build.scalar(node["scale"], node.dtype)])
    if node["masked"]:
        mask = node.inputs[3]
        scores = build.node("Where", [inputs[3], scores, build.scalar(-np.inf, node.dtype)]) if mask.dtype is mo.bool \
            else build.node("Add", [scores, inputs[3]])
    if node["causal"]:
        rows, columns = node.inputs[0].shape[2], node.inputs[1].shape[2]
        if not isinstance(rows, int) or not isinstance(columns, int) or not isinstance(node["offset"], int):
            return _unwritten(to, "causal attention of dynamic length", 2)
        seen = np.arange(columns) <= np.arange(rows)[:, None] + node["offset"]
        scores = build.node("Where", [build.array(seen), scores, build.scalar(-np.inf, node.dtype)])
    y = build.node("MatMul", [build.node("Softmax", [scores], axis=-1), v])
    return [y, ""]


def _unwritten(to: Lowering, what: str, count: int) -> list[str]:
    to.missing[what] += 1
    return [""] * count
