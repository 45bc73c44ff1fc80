# ruff: noqa: E501
"""Random small ONNX models: one function for each family, drawn from a NumPy generator; `adversary` runs them.

A case is what `helper.make_graph` needs. Inputs that an operator reads as numbers (axes, shapes, pads) are sometimes
weights and sometimes inputs of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Rng = np.random.Generator
FLOATS = (np.float32, np.float64, np.float16)
INTEGERS = (np.int32, np.int64, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
node = helper.make_node


@dataclass
class Case:
    """Nodes, the arrays fed by name, the names of outputs, the opset, the arrays stored in the file, later feeds."""

    nodes: list[Any]
    feed: dict[str, Any]
    outputs: list[str]
    opset: int
    weights: dict[str, Any] = field(default_factory=dict)
    later: list[dict[str, Any]] = field(default_factory=list)

    def model(self, named: bool) -> bytes:
        """The file; `named`: every size is open, and a name."""
        inputs = [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{at}" for at in range(array.ndim)] if named else list(array.shape))
            for name, array in self.feed.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs,
                                  [numpy_helper.from_array(np.asarray(a), n) for n, a in self.weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return bytes(model.SerializeToString())


FAMILIES: dict[str, Callable[[Rng], Case]] = {}


def family(function: Callable[[Rng], Case]) -> Callable[[Rng], Case]:
    """Enter a generator of cases under its name."""
    FAMILIES[function.__name__] = function
    return function


def pick(rng: Rng, items: Any) -> Any:
    """One of them, not converted by NumPy."""
    return items[int(rng.integers(0, len(items)))]


def chance(rng: Rng, p: float = 0.5) -> bool:
    """True with this probability."""
    return bool(rng.random() < p)


def shape_of(rng: Rng, rank: int | None = None, least: int = 1, most: int = 5) -> tuple[int, ...]:
    """A random shape; a size of none now and then where `least` is 0."""
    rank = int(rng.integers(0, 5)) if rank is None else rank
    return tuple(int(n) for n in rng.integers(least, most + 1, rank))


def array_of(rng: Rng, shape: Any, dtype: Any = np.float32, special: bool = False) -> Any:
    """Values with ties and signs; with `special` also infinities, NaN and extremes."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        values = rng.integers(max(info.min, -9), 10, shape)
        out = np.asarray(values).astype(kind)
        if special and out.size:
            out.flat[int(rng.integers(0, out.size))] = pick(rng, (info.min, info.max))
        return out
    out = np.asarray(np.round(rng.standard_normal(shape) * 3, int(rng.integers(0, 3)))).astype(kind)
    if special and out.size:
        for value in (np.nan, np.inf, -np.inf, -0.0, 0.5, 1.5, -2.5):
            if chance(rng):
                out.flat[int(rng.integers(0, out.size))] = value
    return out


def broadcast_pair(rng: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast, by rank and by ones; sometimes empty."""
    full = shape_of(rng, int(rng.integers(0, 5)), 0 if chance(rng, 0.15) else 1, 4)

    def part() -> tuple[int, ...]:
        cut = full[int(rng.integers(0, len(full) + 1)):] if chance(rng, 0.4) else full
        return tuple(1 if chance(rng, 0.25) else n for n in cut)

    return part(), part()


def axis_of(rng: Rng, rank: int) -> int:
    """Any axis, counted from either end."""
    return int(rng.integers(-rank, rank))


@family
def binary(rng: Rng) -> Case:
    """Arithmetic and comparisons with broadcasting, of all dtypes."""
    name = pick(rng, ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Equal", "Less", "Greater", "LessOrEqual",
                      "GreaterOrEqual", "Min", "Max", "PRelu"))
    a, b = broadcast_pair(rng)
    opset = int(pick(rng, (7, 8, 9, 10, 12, 13, 14, 18, 20, 22)))
    dtype = pick(rng, FLOATS + INTEGERS)
    attributes: dict[str, Any] = {}
    if name == "Mod":
        opset = max(opset, 10)
        attributes = {"fmod": 1} if np.dtype(dtype).kind == "f" or chance(rng) else {}
    if name in ("LessOrEqual", "GreaterOrEqual", "Pow"):
        opset = max(opset, 12)
    x, y = array_of(rng, a, dtype, chance(rng, 0.3)), array_of(rng, b, dtype, chance(rng, 0.2))
    if name in ("Div", "Mod"):
        y = np.where(y == 0, np.asarray(3, dtype), y).astype(dtype)
        if np.dtype(dtype).kind == "i":
            y = np.where(y == -1, np.asarray(2, dtype), y).astype(dtype)
    if name == "Pow":
        exponent = pick(rng, (dtype, np.float32, np.int32, np.int64))
        y = np.abs(array_of(rng, b, np.int8)).astype(exponent) % 4
        y = y.astype(exponent)
    return Case([node(name, ["x", "y"], ["z"], **attributes)], {"x": x, "y": y}, ["z"], opset)


@family
def unary(rng: Rng) -> Case:
    """Pointwise functions, with special values."""
    names = ("Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Relu", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Erf", "Softplus",
             "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Shrink",
             "IsNaN", "IsInf", "Reciprocal", "Atan", "Asinh", "Gelu", "Mish", "Not", "BitwiseNot", "Clip", "Hardmax",
             "Softmax", "LogSoftmax")
    name = pick(rng, names)
    dtype: Any = pick(rng, (np.float32, np.float32, np.float64, np.float16))
    opset = int(pick(rng, (13, 15, 18, 20, 22)))
    attributes: dict[str, Any] = {}
    shape = shape_of(rng, None, 0 if chance(rng, 0.15) else 1)
    feed, inputs = {}, ["x"]
    if name in ("Abs", "Neg", "Sign", "Relu") and chance(rng):
        dtype, opset = pick(rng, (np.int32, np.int64, np.int8, np.int16)), max(opset, 14)
    if name in ("Elu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Celu") and chance(rng, 0.7):
        attributes["alpha"] = float(pick(rng, (0.25, 2.0, 0.0 if name != "Celu" else 1.5, -0.5 if name != "Celu" else 0.5)))
    if name == "Selu" and chance(rng):
        attributes = {"alpha": 2.0, "gamma": 0.5}
    if name == "HardSigmoid" and chance(rng):
        attributes["beta"] = 0.1
    if name == "Shrink":
        attributes = {"lambd": float(pick(rng, (0.5, 1.5))), "bias": float(pick(rng, (0.0, 0.75)))}
    if name == "IsInf":
        opset, attributes = max(opset, 20), {"detect_negative": int(chance(rng)), "detect_positive": int(chance(rng))}
    if name == "Gelu":
        opset, attributes = 20, {"approximate": pick(rng, ("none", "tanh"))}
    if name == "Mish":
        opset = max(opset, 18)
    if name == "Not":
        dtype = np.bool_
    if name == "BitwiseNot":
        opset, dtype = max(opset, 18), pick(rng, INTEGERS)
    if name in ("Softmax", "LogSoftmax", "Hardmax"):
        shape = shape_of(rng, int(rng.integers(1, 5)))
        opset = int(pick(rng, (7, 9, 11, 12, 13, 18)))
        if chance(rng, 0.7):
            attributes["axis"] = axis_of(rng, len(shape)) if opset >= 11 else int(rng.integers(0, len(shape)))
    x = array_of(rng, shape, dtype, chance(rng, 0.4) and name not in ("Softmax", "LogSoftmax", "Hardmax"))
    feed["x"] = x
    if name == "Clip":
        opset = int(pick(rng, (7, 11, 12, 13)))
        low, high = sorted(float(v) for v in rng.integers(-4, 5, 2))
        if chance(rng, 0.15):
            low, high = high, low
        if opset < 11:
            attributes = {k: v for k, v in (("min", low), ("max", high)) if chance(rng, 0.7)}
        else:
            if opset >= 12 and chance(rng):
                x = feed["x"] = array_of(rng, shape, pick(rng, (np.int8, np.int32, np.uint8, np.int64)))
            if np.dtype(x.dtype).kind == "u":
                low, high = abs(low), abs(high)
            inputs = ["x", "low" if chance(rng, 0.7) else "", "high" if chance(rng, 0.7) else ""]
            feed |= {k: np.asarray(v).astype(x.dtype) for k, v in (("low", low), ("high", high)) if k in inputs}
    return Case([node(name, inputs, ["z"], **attributes)], feed, ["z"], opset)


@family
def casts(rng: Rng) -> Case:
    """Cast between all types, of values that fit."""
    kinds: tuple[Any, ...] = (*FLOATS, *INTEGERS, np.bool_)
    source, target = np.dtype(pick(rng, kinds)), np.dtype(pick(rng, kinds))
    x = array_of(rng, shape_of(rng), source)
    if target.kind == "u":
        x = np.abs(x) if source.kind != "b" else x
    attributes = {"to": helper.np_dtype_to_tensor_dtype(target)}
    return Case([node("Cast", ["x"], ["z"], **attributes)], {"x": x}, ["z"], int(pick(rng, (9, 13, 19, 21))))


@family
def logic(rng: Rng) -> Case:
    """Truth values, bits, Where."""
    name = pick(rng, ("And", "Or", "Xor", "Where", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Equal"))
    a, b = broadcast_pair(rng)
    if name == "Where":
        dtype = pick(rng, (np.float32, np.int64, np.bool_, np.uint8, np.float16, np.int32))
        c = tuple(1 if chance(rng, 0.3) else n for n in np.broadcast_shapes(a, b))
        feed = {"c": array_of(rng, c, np.bool_), "x": array_of(rng, a, dtype), "y": array_of(rng, b, dtype)}
        return Case([node(name, ["c", "x", "y"], ["z"])], feed, ["z"], int(pick(rng, (9, 16))))
    dtype = np.bool_ if name in ("And", "Or", "Xor", "Equal") else pick(rng, INTEGERS)
    attributes = {}
    if name == "BitShift":
        dtype, attributes = pick(rng, (np.uint8, np.uint32, np.uint64)), {"direction": pick(rng, ("LEFT", "RIGHT"))}
    feed = {"x": array_of(rng, a, dtype), "y": array_of(rng, b, dtype) % 8 if name == "BitShift" else array_of(rng, b, dtype)}
    feed = {k: np.asarray(v, dtype) for k, v in feed.items()}
    return Case([node(name, ["x", "y"], ["z"], **attributes)], feed, ["z"], 18)


@family
def reductions(rng: Rng) -> Case:
    """Reduce*, over none, some and all axes, as attribute and as input, of empty arrays too."""
    name = pick(rng, ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                      "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"))
    opset = int(pick(rng, (7, 11, 12, 13, 18, 20)))
    empty = opset >= 18 and chance(rng, 0.2) and name not in ("ReduceMean",)
    shape = shape_of(rng, int(rng.integers(0 if opset >= 13 else 1, 5)), 0 if empty else 1)
    dtype = pick(rng, (np.float32, np.float32, np.float64, np.int32, np.int64, np.float16))
    if name in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean") and np.dtype(dtype).kind != "f":
        dtype = np.float32
    x = array_of(rng, shape, dtype, name in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp") and chance(rng, 0.3))
    x = np.abs(x) + np.asarray(1, dtype) if name == "ReduceLogSum" else x
    attributes: dict[str, Any] = {"keepdims": int(chance(rng))} if chance(rng, 0.8) else {}
    count = int(rng.integers(0, len(shape) + 1))
    axes = [int(a) - (len(shape) if chance(rng) else 0) for a in rng.permutation(len(shape))[:count]]
    case = Case([], {"x": np.asarray(x, dtype)}, ["z"], opset)
    inputs = ["x"]
    if opset >= (13 if name == "ReduceSum" else 18):
        if chance(rng, 0.3):
            attributes["noop_with_empty_axes"] = int(chance(rng))
        if chance(rng, 0.8):
            inputs.append("axes")
            (case.weights if chance(rng, 0.7) else case.feed)["axes"] = np.asarray(axes, np.int64)
    elif axes:
        attributes["axes"] = axes
    case.nodes = [node(name, inputs, ["z"], **attributes)]
    return case


@family
def arguments(rng: Rng) -> Case:
    """ArgMax, ArgMin, TopK, CumSum, with ties."""
    name = pick(rng, ("ArgMax", "ArgMin", "TopK", "CumSum"))
    shape = shape_of(rng, int(rng.integers(1, 5)))
    axis = axis_of(rng, len(shape))
    dtype = pick(rng, (np.float32, np.int32, np.float64, np.int64))
    x = np.round(array_of(rng, shape, dtype) / 3).astype(dtype)
    if name == "CumSum":
        attributes = {"exclusive": int(chance(rng)), "reverse": int(chance(rng))}
        return Case([node(name, ["x", "a"], ["z"], **attributes)], {"x": x}, ["z"], 14,
                    {"a": np.asarray(axis, pick(rng, (np.int32, np.int64)))})
    if name == "TopK":
        k = int(rng.integers(0 if chance(rng, 0.1) else 1, shape[axis] + 1))
        case = Case([node(name, ["x", "k"], ["v", "i"], axis=axis, largest=int(chance(rng)), sorted=1)],
                    {"x": x}, ["v", "i"], 11)
        (case.weights if chance(rng) else case.feed)["k"] = np.asarray([k], np.int64)
        return case
    attributes = {"keepdims": int(chance(rng)), "axis": axis}
    if chance(rng):
        attributes["select_last_index"] = int(chance(rng))
    return Case([node(name, ["x"], ["z"], **attributes)], {"x": x}, ["z"], 13)


@family
def slices(rng: Rng) -> Case:
    """Slice with steps of both signs, ends out of range, axes and steps left out."""
    shape = shape_of(rng, int(rng.integers(1, 5)), 0 if chance(rng, 0.1) else 1, 6)
    x = array_of(rng, shape, pick(rng, (np.float32, np.int64, np.bool_, np.uint8)))
    count = int(rng.integers(1, len(shape) + 1))
    ends = (-2**63, 2**63 - 1, -2**31, 2**31 - 1, -100, 100)
    plain = chance(rng, 0.2)
    axes = list(range(count)) if plain else [int(a) - (len(shape) if chance(rng) else 0)
                                             for a in rng.permutation(len(shape))[:count]]
    starts = [int(rng.integers(-8, 8)) if chance(rng, 0.8) else pick(rng, ends) for _ in axes]
    stops = [int(rng.integers(-8, 8)) if chance(rng, 0.7) else pick(rng, ends) for _ in axes]
    steps = [int(pick(rng, (1, 1, 2, 3, -1, -2, -3, 100))) for _ in axes]
    if chance(rng, 0.2):
        attributes = {"starts": starts, "ends": stops} | ({} if plain else {"axes": [a % len(shape) for a in axes]})
        return Case([node("Slice", ["x"], ["z"], **attributes)], {"x": x}, ["z"], 9)
    names = {"starts": starts, "ends": stops} | ({} if plain else {"axes": axes})
    inputs = ["x", "starts", "ends", "" if plain else "axes"]
    if chance(rng, 0.8):
        inputs.append("steps")
        names["steps"] = steps
    case = Case([node("Slice", inputs, ["z"])], {"x": x}, ["z"], int(pick(rng, (10, 11, 13))))
    for name, values in names.items():
        (case.weights if chance(rng, 0.6) else case.feed)[name] = np.asarray(values, np.int64)
    return case


@family
def gathers(rng: Rng) -> Case:
    """Gather, GatherElements, GatherND, Scatter*, with negative indices and repeats."""
    name = pick(rng, ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "OneHot", "Compress"))
    shape = shape_of(rng, int(rng.integers(1, 5)), 1, 4)
    rank = len(shape)
    axis = axis_of(rng, rank)
    x = array_of(rng, shape, pick(rng, (np.float32, np.int64, np.int32)))
    kind = pick(rng, (np.int64, np.int32))
    if name == "Gather":
        indices = rng.integers(-shape[axis], shape[axis], shape_of(rng, int(rng.integers(0, 3)), 0 if chance(rng, 0.1) else 1))
        return Case([node(name, ["x", "i"], ["z"], axis=axis)], {"x": x, "i": np.asarray(indices, kind)}, ["z"], 13)
    if name in ("GatherElements", "ScatterElements"):
        part = [int(rng.integers(1, n + 1)) for n in shape]
        indices = np.asarray(rng.integers(-shape[axis], shape[axis], part), kind)
        if name == "GatherElements":
            return Case([node(name, ["x", "i"], ["z"], axis=axis)], {"x": x, "i": indices}, ["z"], 13)
        reduction = pick(rng, ("none", "add", "mul", "max", "min"))
        if reduction == "none":
            spread = np.argsort(rng.random(part), axis=axis)
            indices = np.asarray(spread, kind) - (shape[axis] if chance(rng) else 0)
            indices = np.asarray(indices, kind)
        return Case([node(name, ["x", "i", "u"], ["z"], axis=axis, reduction=reduction)],
                    {"x": x, "i": indices, "u": array_of(rng, part, x.dtype)}, ["z"], 18)
    if name == "OneHot":
        values = np.asarray([0, 1], pick(rng, (np.float32, np.int64)))
        depth = int(rng.integers(1, 6))
        indices = np.asarray(rng.integers(-depth - 1, depth + 2, shape), pick(rng, (np.int64,)))
        return Case([node(name, ["i", "d", "v"], ["z"], axis=int(rng.integers(-rank - 1, rank + 1)))],
                    {"i": indices}, ["z"], 11, {"d": np.asarray(depth, np.int64), "v": values})
    if name == "Compress":
        whole = chance(rng, 0.3)
        size = x.size if whole else shape[axis]
        mask = array_of(rng, (int(rng.integers(1, size + 1)),), np.bool_)
        return Case([node(name, ["x", "c"], ["z"], **({} if whole else {"axis": axis}))], {"x": x, "c": mask}, ["z"], 11)
    depth = int(rng.integers(1, rank + 1))
    lead = shape_of(rng, int(rng.integers(1, 3)), 1, 3)
    limits = np.asarray(shape[:depth])
    indices = rng.integers(-limits, limits, (*lead, depth)).astype(np.int64)
    if name == "GatherND":
        return Case([node(name, ["x", "i"], ["z"])], {"x": x, "i": indices}, ["z"], int(pick(rng, (11, 12, 13))))
    reduction = pick(rng, ("add", "mul", "max", "min"))
    return Case([node(name, ["x", "i", "u"], ["z"], reduction=reduction)],
                {"x": x, "i": indices, "u": array_of(rng, (*lead, *shape[depth:]), x.dtype)}, ["z"], 18)


@family
def shapes(rng: Rng) -> Case:
    """Reshape with 0 and -1, Transpose, Squeeze, Unsqueeze, Concat, Split, Expand, Tile, Flatten, ..."""
    name = pick(rng, ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "Expand", "Tile", "Flatten", "Shape",
                      "DepthToSpace", "SpaceToDepth", "Trilu", "EyeLike", "Range", "ConstantOfShape", "Size"))
    shape = shape_of(rng, int(rng.integers(1, 5)), 0 if chance(rng, 0.1) else 1, 4)
    rank = len(shape)
    dtype = pick(rng, (np.float32, np.int64, np.bool_, np.int32, np.float64))
    x = array_of(rng, shape, dtype)
    feed, weights, attributes, inputs, opset = {"x": x}, {}, {}, ["x"], 13
    outputs = ["z"]
    if name == "Reshape":
        target = list(rng.permutation(shape)) if 0 not in shape else list(shape)
        if chance(rng, 0.3):
            target = [x.size, 1]
        if 0 not in shape and chance(rng):
            target[int(rng.integers(0, len(target)))] = -1
        inputs, opset = ["x", "s"], 14
        (weights if chance(rng) else feed)["s"] = np.asarray(target, np.int64)
        if 0 in shape:
            attributes["allowzero"] = int(chance(rng))
    elif name == "Transpose":
        attributes = {"perm": [int(a) for a in rng.permutation(rank)]} if chance(rng, 0.8) else {}
    elif name in ("Squeeze", "Unsqueeze"):
        if name == "Squeeze":
            feed["x"] = x = array_of(rng, [1 if chance(rng) else n for n in shape], dtype)
            axes = [a - (rank if chance(rng) else 0) for a, n in enumerate(x.shape) if n == 1 and chance(rng, 0.8)]
        else:
            more = int(rng.integers(1, 3))
            axes = [int(a) - (rank + more if chance(rng) else 0) for a in rng.permutation(rank + more)[:more]]
        if axes or name == "Unsqueeze":
            inputs = ["x", "a"]
            (weights if chance(rng) else feed)["a"] = np.asarray(axes, np.int64)
    elif name == "Concat":
        axis = axis_of(rng, rank)
        others = list(shape)
        others[axis] = int(rng.integers(0, 4))
        feed["y"] = array_of(rng, others, dtype)
        inputs, attributes = ["x", "y", "x"], {"axis": axis}
    elif name == "Split":
        axis = axis_of(rng, rank)
        size = shape[axis]
        attributes = {"axis": axis}
        if chance(rng) and size >= 1:
            parts = int(rng.integers(1, min(size, 3) + 1))
            opset, outputs = 18, [f"z{i}" for i in range(-(-size // -(-size // parts)))]
            attributes["num_outputs"] = len(outputs)
        else:
            cut = int(rng.integers(0, size + 1))
            inputs, outputs = ["x", "s"], ["z0", "z1"]
            (weights if chance(rng) else feed)["s"] = np.asarray([cut, size - cut], np.int64)
    elif name == "Expand":
        feed["x"] = x = array_of(rng, [1 if chance(rng) else n for n in shape], dtype)
        target = [1 if chance(rng, 0.3) else n for n in shape] if chance(rng) else [2, *shape]
        inputs = ["x", "s"]
        (weights if chance(rng) else feed)["s"] = np.asarray(target[int(rng.integers(0, 2)):], np.int64)
    elif name == "Tile":
        inputs = ["x", "s"]
        (weights if chance(rng) else feed)["s"] = rng.integers(0 if chance(rng, 0.2) else 1, 4, rank).astype(np.int64)
    elif name == "Flatten":
        attributes = {"axis": int(rng.integers(-rank, rank + 1))}
    elif name == "Shape":
        opset = 15
        attributes = {k: int(rng.integers(-6, 7)) for k in ("start", "end") if chance(rng)}
    elif name in ("DepthToSpace", "SpaceToDepth"):
        b = int(rng.integers(1, 4))
        attributes = {"blocksize": b}
        if name == "DepthToSpace":
            feed["x"] = array_of(rng, (2, b * b * 2, 2, 3))
            attributes["mode"] = pick(rng, ("DCR", "CRD"))
        else:
            feed["x"] = array_of(rng, (2, 2, b * 2, b * 3))
    elif name == "Trilu":
        feed["x"] = array_of(rng, shape_of(rng, int(rng.integers(2, 4)), 0 if chance(rng, 0.1) else 1), pick(rng, (np.float32, np.int64)))
        attributes, opset = {"upper": int(chance(rng))}, 14
        if chance(rng):
            inputs = ["x", "k"]
            (weights if chance(rng) else feed)["k"] = np.asarray(int(rng.integers(-6, 7)), np.int64)
    elif name == "EyeLike":
        feed["x"] = array_of(rng, shape_of(rng, 2), pick(rng, (np.float32, np.int64)))
        attributes = {"k": int(rng.integers(-6, 7))}
    elif name == "Range":
        kind = pick(rng, (np.int64, np.int32, np.float32, np.float64))
        feed = {k: np.asarray(v, kind) for k, v in (("a", rng.integers(-5, 6)), ("b", rng.integers(-5, 6)), ("c", pick(rng, (1, 2, -1, -3))))}
        inputs = ["a", "b", "c"]
    elif name == "ConstantOfShape":
        feed = {"s": np.asarray(shape, np.int64)}
        inputs, attributes = ["s"], {"value": helper.make_tensor("v", TensorProto.INT64, [1], [7])} if chance(rng) else {}
    return Case([node(name, inputs, outputs, **attributes)], feed, outputs, opset, weights)
