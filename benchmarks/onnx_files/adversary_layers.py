# ruff: noqa: E501
"""Random small ONNX models, continued: windows, resizing, recurrence, quantisation, norms, products, control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.onnx_files.adversary_cases import Case, Rng, array_of, axis_of, chance, family, node, pick, shape_of


def windows(rng: Rng, spatial: int, kernel: list[int], stride_most: int = 3) -> dict[str, Any]:
    """Strides, dilations and pads (explicit, uneven, or by a rule), each sometimes left out."""
    attributes: dict[str, Any] = {}
    if chance(rng, 0.7):
        attributes["strides"] = [int(n) for n in rng.integers(1, stride_most + 1, spatial)]
    if chance(rng, 0.4):
        attributes["dilations"] = [int(n) for n in rng.integers(1, 3, spatial)]
    if chance(rng, 0.3):
        attributes["auto_pad"] = pick(rng, ("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif chance(rng, 0.7):
        attributes["pads"] = [int(rng.integers(0, k)) for k in kernel + kernel]
    return attributes


@family
def convolution(rng: Rng) -> Case:
    """Conv and ConvTranspose in one to three dimensions, grouped."""
    spatial = int(pick(rng, (1, 2, 2, 3)))
    groups = int(pick(rng, (1, 1, 2, 3)))
    kernel = [int(n) for n in rng.integers(1, 4, spatial)]
    cin, cout = groups * int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    dtype = pick(rng, (np.float32, np.float32, np.float64))
    size = [int(n) for n in rng.integers(7, 10, spatial)]
    x = array_of(rng, (int(rng.integers(1, 3)), cin, *size), dtype)
    transposed = chance(rng, 0.4)
    attributes = windows(rng, spatial, kernel)
    if groups > 1:
        attributes["group"] = groups
    if chance(rng):
        attributes["kernel_shape"] = kernel
    if transposed:
        w = array_of(rng, (cin, cout // groups, *kernel), dtype)
        strides = attributes.get("strides", [1] * spatial)
        if chance(rng, 0.4):
            attributes["output_padding"] = [int(rng.integers(0, s)) for s in strides]
        if chance(rng, 0.2):
            attributes.pop("pads", None)
            attributes["output_shape"] = [n * s + int(rng.integers(0, 2)) for n, s in zip(size, strides, strict=True)]
    else:
        w = array_of(rng, (cout, cin // groups, *kernel), dtype)
    case = Case([], {"x": x}, ["z"], 11)
    inputs = ["x", "w"]
    (case.weights if chance(rng) else case.feed)["w"] = w
    if chance(rng):
        inputs.append("b")
        (case.weights if chance(rng) else case.feed)["b"] = array_of(rng, (cout,), dtype)
    case.nodes = [node("ConvTranspose" if transposed else "Conv", inputs, ["z"], **attributes)]
    return case


@family
def pooling(rng: Rng) -> Case:
    """MaxPool with indices, AveragePool, LpPool, global pools; ceil_mode, dilations, padding counted or not."""
    name = pick(rng, ("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"))
    spatial = int(pick(rng, (1, 2, 2, 3)))
    x = array_of(rng, (int(rng.integers(1, 3)), 2, *(int(n) for n in rng.integers(5, 10, spatial))))
    if name.startswith("Global"):
        return Case([node(name, ["x"], ["z"])], {"x": x}, ["z"], 13)
    kernel = [int(n) for n in rng.integers(1, 4, spatial)]
    attributes = windows(rng, spatial, kernel) | {"kernel_shape": kernel}
    opset = int(pick(rng, (10, 12, 19, 22)))
    if name in ("AveragePool", "LpPool") and opset < 19:
        attributes.pop("dilations", None)
    if name == "LpPool":
        opset = max(opset, 11)
        attributes["p"] = int(pick(rng, (1, 2, 3)))
        if opset < 18:
            attributes.pop("dilations", None)
    if (name != "LpPool" or opset >= 18) and "auto_pad" not in attributes and chance(rng):
        attributes["ceil_mode"] = int(chance(rng, 0.8))
    if name == "AveragePool" and chance(rng):
        attributes["count_include_pad"] = int(chance(rng, 0.7))
    outputs = ["z", "i"] if name == "MaxPool" and chance(rng, 0.4) else ["z"]
    if len(outputs) == 2 and chance(rng, 0.3):
        attributes["storage_order"] = 1
    return Case([node(name, ["x"], outputs, **attributes)], {"x": x}, outputs, opset)


@family
def padding(rng: Rng) -> Case:
    """Pad: all modes, negative pads, axes, a constant of the type."""
    rank = int(rng.integers(1, 5))
    mode = pick(rng, ("constant", "constant", "reflect", "edge", "wrap"))
    shape = shape_of(rng, rank, 2, 5)
    dtype = pick(rng, (np.float32, np.float32, np.int64, np.float64))
    opset = int(pick(rng, (2 if False else 7, 11, 13, 18, 19, 21)))
    if mode == "wrap":
        opset = max(opset, 19)
    if opset < 11:
        dtype = np.float32
    low = -1 if chance(rng, 0.3) else 0
    axes = [int(a) - (rank if chance(rng) else 0) for a in rng.permutation(rank)[:int(rng.integers(1, rank + 1))]]
    use_axes = opset >= 18 and chance(rng)
    count = len(axes) if use_axes else rank
    pads = [int(rng.integers(low, 2 if mode == "reflect" else 3)) for _ in range(2 * count)]
    if opset < 11:
        more = {"value": 1.5} if chance(rng) and mode == "constant" else {}
        return Case([node("Pad", ["x"], ["z"], mode=mode, pads=pads, **more)], {"x": array_of(rng, shape, dtype)}, ["z"], opset)
    case = Case([], {"x": array_of(rng, shape, dtype)}, ["z"], opset)
    (case.weights if chance(rng) else case.feed)["p"] = np.asarray(pads, np.int64)
    inputs = ["x", "p", ""]
    if mode == "constant" and chance(rng):
        inputs[2] = "v"
        (case.weights if chance(rng) else case.feed)["v"] = array_of(rng, (), dtype)
    if use_axes:
        inputs.append("a")
        case.weights["a"] = np.asarray(axes, pick(rng, (np.int64, np.int32)))
    case.nodes = [node("Pad", inputs, ["z"], mode=mode)]
    return case


@family
def resizing(rng: Rng) -> Case:
    """Resize: modes, coordinate rules, scales and sizes, exclude_outside, axes; Upsample before opset 10."""
    spatial = int(pick(rng, (1, 2, 2)))
    shape = (1, 2, *shape_of(rng, spatial, 2, 6))
    x = array_of(rng, shape)
    mode = pick(rng, ("nearest", "linear", "cubic") if spatial == 2 else ("nearest", "linear"))
    attributes: dict[str, Any] = {"mode": mode}
    if chance(rng, 0.8):
        attributes["coordinate_transformation_mode"] = pick(
            rng, ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"))
    if mode == "nearest":
        attributes["nearest_mode"] = pick(rng, ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": float(pick(rng, (-0.5, -0.75)))}
    opset = int(pick(rng, (13, 18, 19)))
    if opset == 13 and attributes.get("coordinate_transformation_mode") == "half_pixel_symmetric":
        opset = 19
    if mode == "cubic" and chance(rng, 0.4):
        attributes["exclude_outside"] = 1
    if opset >= 18 and mode != "nearest" and chance(rng, 0.3):
        attributes["antialias"] = 1
    case = Case([], {"x": x}, ["z"], opset)
    if chance(rng):
        inputs = ["x", "", "", "s"]
        case.weights["s"] = np.asarray([1, 2, *rng.integers(1, 11, spatial)], np.int64)
    else:
        inputs = ["x", "", "s"]
        case.weights["s"] = np.asarray([1, 1, *(pick(rng, (0.5, 0.6, 1.0, 1.5, 2.0, 2.3, 3.0)) for _ in range(spatial))], np.float32)
    case.nodes = [node("Resize", inputs, ["z"], **attributes)]
    return case


@family
def recurrent(rng: Rng) -> Case:
    """LSTM, GRU, RNN: both directions, lengths, initial states, peepholes, layout, clip, activations, linear_before_reset."""
    name = pick(rng, ("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    steps, batch, size, hidden = (int(n) for n in rng.integers(1, 4, 4))
    direction = pick(rng, ("forward", "reverse", "bidirectional"))
    ways = 1 + (direction == "bidirectional")
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}

    def small(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    feed: dict[str, Any] = {"x": small(steps, batch, size)}
    weights = {"w": small(ways, gates * hidden, size), "r": small(ways, gates * hidden, hidden)}
    inputs = ["x", "w", "r", "", "", "", "", ""]
    if chance(rng):
        inputs[3], weights["b"] = "b", small(ways, 2 * gates * hidden)
    if chance(rng, 0.5):
        inputs[4], feed["n"] = "n", rng.integers(1, steps + 1, batch).astype(np.int32)
    if chance(rng):
        inputs[5], feed["h"] = "h", small(ways, batch, hidden)
    if name == "LSTM":
        if chance(rng):
            inputs[6], feed["c"] = "c", small(ways, batch, hidden)
        if chance(rng, 0.3):
            inputs[7], weights["p"] = "p", small(ways, 3 * hidden)
        if chance(rng, 0.2):
            attributes["input_forget"] = 1
    else:
        inputs = inputs[:6]
    if name == "GRU" and chance(rng):
        attributes["linear_before_reset"] = int(chance(rng, 0.7))
    if chance(rng, 0.2):
        attributes["clip"] = 0.3
    if chance(rng, 0.2):
        per = {"LSTM": ("Sigmoid", "Relu", "Tanh"), "GRU": ("HardSigmoid", "Tanh"), "RNN": ("Relu",)}[name]
        attributes["activations"] = list(per) * ways
    outputs = ["y", "yh", "yc"][:2 + (name == "LSTM")]
    return Case([node(name, inputs, outputs, **attributes)], feed, outputs, 14, weights)


@family
def quantised(rng: Rng) -> Case:
    """QuantizeLinear, DequantizeLinear by tensor, axis and block; MatMulInteger, ConvInteger, QLinearMatMul, dynamic."""
    name = pick(rng, ("QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "DynamicQuantizeLinear",
                      "QLinearConv"))
    kind = pick(rng, (np.int8, np.uint8))
    info = np.iinfo(kind)
    if name in ("QuantizeLinear", "DequantizeLinear"):
        shape = shape_of(rng, int(rng.integers(1, 4)), 1, 6)
        axis = axis_of(rng, len(shape))
        by_axis = chance(rng)
        opset = int(pick(rng, (13, 19, 21)))
        kind = pick(rng, (np.int8, np.uint8, np.int16, np.uint16)) if opset == 21 else kind
        info = np.iinfo(kind)
        scale = np.asarray(rng.integers(1, 9, (shape[axis],) if by_axis else ()) / 4, np.float32)
        zero = np.asarray(rng.integers(max(info.min, -99), 99, scale.shape), kind)
        if name == "QuantizeLinear":
            x = (array_of(rng, shape) * pick(rng, (1, 30))).astype(np.float32)
        else:
            x = np.asarray(rng.integers(max(info.min, -128), min(info.max, 255) + 1, shape), kind)
        given = chance(rng, 0.7) or (name == "QuantizeLinear" and kind != np.uint8)
        return Case([node(name, ["x", "s", *(["p"] if given else [])], ["z"], **({"axis": axis} if by_axis else {}))],
                    {"x": x}, ["z"], opset, {"s": scale} | ({"p": zero} if given else {}))
    if name == "DynamicQuantizeLinear":
        return Case([node(name, ["x"], ["z", "s", "p"])], {"x": array_of(rng, shape_of(rng, None, 1))}, ["z", "s", "p"], 11)
    m, k, n = (int(v) for v in rng.integers(1, 5, 3))

    def codes(*shape: int) -> Any:
        return rng.integers(info.min, info.max + 1, shape).astype(kind)

    if name == "MatMulInteger":
        return Case([node(name, ["x", "y", *(["p", "q"] if chance(rng) else [])], ["z"])], {"x": codes(2, m, k), "y": codes(k, n)}, ["z"], 10,
                    {"p": codes(), "q": codes()})
    if name == "QLinearMatMul":
        names = ["a", "as", "ap", "b", "bs", "bp", "ys", "yp"]
        return Case([node(name, names, ["z"])], {"a": codes(m, k), "b": codes(k, n)}, ["z"], 10,
                    {"as": np.float32(0.05), "bs": np.float32(0.02), "ys": np.float32(0.7), "ap": codes(), "bp": codes(), "yp": codes()})
    kernel = [int(v) for v in rng.integers(1, 4, 2)]
    attributes = windows(rng, 2, kernel, 2)
    attributes.pop("auto_pad", None)
    x, w = codes(1, 2, 5, 6), codes(3, 2, *kernel)
    if name == "ConvInteger":
        return Case([node(name, ["x", "w", *(["p", "q"] if chance(rng) else [])], ["z"], **attributes)], {"x": x}, ["z"], 10,
                    {"w": w, "p": codes(), "q": np.asarray(0, kind)})
    names = ["x", "xs", "xp", "w", "ws", "wp", "ys", "yp"]
    return Case([node(name, names, ["z"], **attributes)], {"x": x}, ["z"], 10,
                {"w": w, "xs": np.float32(0.05), "ws": np.asarray([0.02, 0.5, 0.1], np.float32), "ys": np.float32(0.7), "xp": codes(),
                 "wp": np.zeros(3, kind), "yp": codes()})


@family
def products(rng: Rng) -> Case:
    """MatMul of all ranks, Gemm with broadcast C, Einsum."""
    name = pick(rng, ("MatMul", "MatMul", "Gemm", "Einsum"))
    m, k, n = (int(v) for v in rng.integers(0 if chance(rng, 0.1) else 1, 5, 3))
    dtype = pick(rng, (np.float32, np.float32, np.float64, np.int32))
    if name == "Gemm":
        dtype = pick(rng, (np.float32, np.float64))
        ta, tb = int(chance(rng)), int(chance(rng))
        attributes = {k2: v for k2, v in (("transA", ta), ("transB", tb), ("alpha", 0.5), ("beta", float(pick(rng, (0.0, 2.0)))))
                      if k2.startswith("trans") or chance(rng)}
        feed = {"a": array_of(rng, (k, m) if ta else (m, k), dtype), "b": array_of(rng, (n, k) if tb else (k, n), dtype)}
        inputs = ["a", "b"]
        if chance(rng, 0.7):
            inputs.append("c")
            feed["c"] = array_of(rng, pick(rng, ((), (1,), (n,), (1, n), (m, 1), (m, n))), dtype)
        return Case([node(name, inputs, ["z"], **attributes)], feed, ["z"], 13)
    if name == "Einsum":
        text, a, b = pick(rng, (("ij,jk->ik", (m, k), (k, n)), ("bij,bjk", (2, m, k), (2, k, n)), ("...ij,jk->...k", (2, m, k), (k, n)),
                                ("ij,ij->", (m, k), (m, k)), ("ii,ij->j", (m, m), (m, k)), ("i j , k -> kji", (m, k), (n,))))
        return Case([node(name, ["a", "b"], ["z"], equation=text)], {"a": array_of(rng, a), "b": array_of(rng, b)}, ["z"], 12)
    lead = shape_of(rng, int(rng.integers(0, 3)), 1, 3)
    a: tuple[int, ...] = (k,) if chance(rng, 0.2) else (*(1 if chance(rng, 0.3) else v for v in lead), m, k)
    b: tuple[int, ...] = (k,) if chance(rng, 0.2) else (*lead[int(rng.integers(0, len(lead) + 1)):], k, n)
    return Case([node(name, ["a", "b"], ["z"])], {"a": array_of(rng, a, dtype), "b": array_of(rng, b, dtype)}, ["z"], 13)


@family
def norms(rng: Rng) -> Case:
    """Batch, instance, layer, group and Lp norms, LRN, MeanVarianceNormalization."""
    name = pick(rng, ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LRN",
                      "LpNormalization", "MeanVarianceNormalization", "RMSNormalization"))
    channels = int(pick(rng, (2, 4, 6)))
    shape = (int(rng.integers(1, 4)), channels, *shape_of(rng, int(rng.integers(1, 3))))
    x = array_of(rng, shape)
    one = array_of(rng, (channels,))
    if name == "BatchNormalization":
        more = {"epsilon": 0.1} if chance(rng) else {}
        if chance(rng, 0.3):
            return Case([node(name, ["x", "s", "b", "m", "v"], ["z", "rm", "rv"], training_mode=1, momentum=0.7, **more)], {"x": x},
                        ["z", "rm", "rv"], 15, {"s": one, "b": one + 1, "m": one, "v": np.abs(one)})
        return Case([node(name, ["x", "s", "b", "m", "v"], ["z"], **more)], {"x": x}, ["z"], int(pick(rng, (9, 14, 15))),
                    {"s": one, "b": one + 1, "m": one, "v": np.abs(one)})
    if name == "InstanceNormalization":
        return Case([node(name, ["x", "s", "b"], ["z"])], {"x": x}, ["z"], 6 if False else 7, {"s": one, "b": one + 1})
    if name in ("LayerNormalization", "RMSNormalization"):
        axis = axis_of(rng, len(shape))
        tail = shape[axis:]
        bias = name == "LayerNormalization" and chance(rng)
        outputs = ["z", "mean", "inv"] if name == "LayerNormalization" and chance(rng, 0.3) else ["z"]
        return Case([node(name, ["x", "s", *(["b"] if bias else [])], outputs, axis=axis, **({"epsilon": 0.1} if chance(rng) else {}))],
                    {"x": x}, outputs, 17 if name[0] == "L" else 23, {"s": array_of(rng, tail)} | ({"b": array_of(rng, tail)} if bias else {}))
    if name == "GroupNormalization":
        return Case([node(name, ["x", "s", "b"], ["z"], num_groups=2)], {"x": x}, ["z"], 21, {"s": one, "b": one + 1})
    if name == "LRN":
        return Case([node(name, ["x"], ["z"], size=int(rng.integers(1, 5)), alpha=0.1, beta=0.5, bias=2.0)],
                    {"x": array_of(rng, (*shape[:2], 3, 2))}, ["z"], 13)
    if name == "LpNormalization":
        return Case([node(name, ["x"], ["z"], axis=axis_of(rng, len(shape)), p=int(pick(rng, (1, 2))))], {"x": x}, ["z"], 7)
    axes = [0, 2] if chance(rng) else [0, 2, 3]
    return Case([node(name, ["x"], ["z"], axes=axes)], {"x": array_of(rng, (*shape[:2], 3, 2))}, ["z"], 13)


def _step(rng: Rng, name: str, left: str, right: str, out: str) -> Any:
    """One of a few operators of two values."""
    return node(pick(rng, ("Add", "Sub", "Mul", "Max")), [left, right], [out], name=name)


def _value(name: str, kind: int = TensorProto.FLOAT, shape: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


@family
def control(rng: Rng) -> Case:
    """If, Loop and Scan whose bodies capture values, nested, with and without turns."""
    name = pick(rng, ("If", "Loop", "Scan", "IfInLoop"))
    rows, columns = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    x = array_of(rng, (rows, columns))
    k = array_of(rng, (columns,))
    if name == "If":
        other = _step(rng, "e", "x", "x", "q") if chance(rng) else node("ReduceSum", ["x"], ["q"], keepdims=0)
        then = helper.make_graph([_step(rng, "t", "x", "k", "p")], "t", [], [_value("p")])
        return Case([node("If", ["c"], ["y"], then_branch=then, else_branch=helper.make_graph([other], "e", [], [_value("q")])),
                     _step(rng, "last", "y", "k", "z")], {"x": x, "k": k, "c": np.asarray(chance(rng))}, ["y", "z"], 16)
    if name == "Scan":
        body = helper.make_graph([_step(rng, "a", "s", "r", "t"), _step(rng, "b", "t", "k", "o")], "body", [_value("s", 1, [columns]), _value("r", 1, [columns])],
                                 [_value("t", 1, [columns]), _value("o", 1, [columns])])
        attributes: dict[str, Any] = {"num_scan_inputs": 1}
        if chance(rng):
            attributes["scan_input_directions"] = [int(chance(rng))]
        if chance(rng):
            attributes["scan_output_directions"] = [int(chance(rng))]
        if chance(rng, 0.4):
            attributes["scan_output_axes"] = [int(pick(rng, (0, 1, -1)))]
        if chance(rng, 0.3):
            x, attributes["scan_input_axes"] = np.ascontiguousarray(x.T), [int(pick(rng, (1, -1)))]
        return Case([node("Scan", ["k", "x"], ["last", "rows"], body=body, **attributes)], {"x": x, "k": k}, ["last", "rows"], 16)
    turns = int(rng.integers(0, 5))
    nodes = [_step(rng, "a", "v", "k", "w0"), node("Cast", ["i"], ["f"], to=1), node("Add", ["w0", "f"], ["w1"])]
    if name == "IfInLoop":
        inner = [helper.make_graph([_step(rng, n, "w1", right, n + "o")], n, [], [_value(n + "o")]) for n, right in (("t", "k"), ("e", "v"))]
        nodes += [node("ReduceSum", ["w1"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["cc"]),
                  node("If", ["cc"], ["w"], then_branch=inner[0], else_branch=inner[1])]
    else:
        nodes += [node("Identity", ["w1"], ["w"])]
    if chance(rng):
        nodes += [node("ReduceMax", ["w"], ["m"], keepdims=0), node("Less", ["m", "limit"], ["on"])]
    else:
        nodes += [node("Identity", ["c"], ["on"])]
    collects = chance(rng)
    body = helper.make_graph([*nodes, node("Mul", ["w", "k"], ["row"])] if collects else nodes, "body",
                             [_value("i", 7, []), _value("c", 9, []), _value("v", 1, [rows, columns])],
                             [_value("on", 9, []), _value("w", 1, [rows, columns])] + ([_value("row", 1, [rows, columns])] if collects else []))
    outputs = ["y", "rows"] if collects else ["y"]
    case = Case([node("Loop", ["n", "go" if chance(rng, 0.7) else "", "x"], outputs, body=body)], {"x": x, "k": k}, outputs, 16,
                {"go": np.asarray(True), "limit": np.float32(20), "zero": np.float32(0)})
    (case.weights if chance(rng) else case.feed)["n"] = np.asarray(turns, np.int64)
    return case


@family
def chains(rng: Rng) -> Case:
    """Several operators on x of sizes (n, m, 4) that compute with sizes, fed with other sizes one after another."""
    nodes: list[Any] = [node("Shape", ["x"], ["shape"]), node("Shape", ["x"], ["n"], start=0, end=1),
                        node("Shape", ["x"], ["m"], start=1, end=2)]
    at, outputs = "x", []
    for turn in range(int(rng.integers(1, 4))):
        out = f"v{turn}"
        nodes += _link(rng, turn, at, out)
        at = out
        outputs.append(out)
    sizes = [(int(a), int(b), 4) for a, b in rng.integers(1, 5, (4, 2))] + [(1, 1, 4), (1, 3, 4), (3, 3, 4)]
    feeds = [{"x": array_of(rng, size)} for size in rng.permutation(sizes)]
    weights = {"one": np.int64([1]), "minus": np.int64([-1]), "zero": np.int64([0]), "two": np.int64([2]), "s0": np.int64(0), "s1": np.int64(1),
               "huge": np.int64([2**62]), "four": array_of(rng, (4, 4))}
    return Case(nodes, feeds[0], outputs, 18, weights, feeds[1:])


def _link(rng: Rng, turn: int, at: str, out: str) -> list[Any]:
    """One operator, or a few that compute a shape first."""
    t = f"t{turn}_"
    return pick(rng, (
        [node("Transpose", [at], [out])],
        [node("Softmax", [at], [out], axis=int(pick(rng, (0, -1))))],
        [node("Concat", ["minus", "m"], [t + "s"], axis=0), node("Reshape", [at, t + "s"], [out])],
        [node("Concat", ["n", "minus"], [t + "s"], axis=0), node("Reshape", [at, t + "s"], [out])],
        [node("Mul", ["n", "m"], [t + "p"]), node("Concat", [t + "p", "minus"], [t + "s"], axis=0), node("Reshape", [at, t + "s"], [out])],
        [node("Squeeze", [at], [out])],
        [node("Flatten", [at], [out], axis=int(pick(rng, (0, 1, -1))))],
        [node("Slice", [at, "one", "huge", "zero"], [out])], [node("Slice", [at, "zero", "minus", "zero"], [out])],
        [node("Slice", [at, "minus", "huge", "zero"], [out])], [node("Slice", [at, "two", "m", "zero", "one"], [out])],
        [node("Slice", [at, "minus", "huge", "zero", "minus"], [out])],
        [node("ReduceSum", [at, "zero"], [out], keepdims=int(chance(rng)))],
        [node("ReduceMax", [at], [out])], [node("ArgMax", [at], [t + "a"], axis=0), node("Cast", [t + "a"], [out], to=1)],
        [node("Shape", [at], [t + "s"]), node("ConstantOfShape", [t + "s"], [t + "c"]), node("Add", [at, t + "c"], [out])],
        [node("Expand", [at, "shape"], [out])], [node("Add", [at, "x"], [out])], [node("Mul", [at, at], [out])],
        [node("Gather", ["n", "s0"], [t + "k"]), node("Range", ["s0", t + "k", "s1"], [t + "r"]), node("Cast", [t + "r"], [t + "f"], to=1),
         node("ReduceSum", [t + "f"], [t + "q"]), node("Add", [at, t + "q"], [out])],
        [node("Unsqueeze", [at, "zero"], [t + "u"]), node("Concat", [t + "u", t + "u"], [out], axis=0)],
        [node("Concat", [at, at], [out], axis=int(pick(rng, (0, -1))))], [node("CumSum", [at, "s0"], [out])],
        [node("Split", [at], [out, t + "b"], num_outputs=2, axis=0)] if chance(rng, 0.3) else [node("Neg", [at], [out])],
        [node("Cast", ["m"], [t + "f"], to=1), node("Div", [at, t + "f"], [out])],
        [node("TopK", [at, "one"], [out, t + "i"], axis=0)], [node("MatMul", ["x", "four"], [out])],
        [node("Size", [at], [t + "z"]), node("Cast", [t + "z"], [t + "f"], to=1), node("Sub", [at, t + "f"], [out])],
        [node("Equal", ["n", "one"], [t + "e"]), node("Where", [t + "e", at, "x"], [out])],
        [node("LayerNormalization", ["x", "row"], [out])] if False else [node("Identity", [at], [out])],
        [node("NonZero", [at], [t + "nz"]), node("Cast", [t + "nz"], [out], to=1)],
        [node("Equal", ["n", "m"], [t + "e"]), node("Squeeze", [t + "e", "zero"], [t + "b"]),
         node("If", [t + "b"], [out], then_branch=helper.make_graph([node("Neg", ["x"], [t + "p"])], "t", [], [_value(t + "p")]),
              else_branch=helper.make_graph([node("Add", ["x", "x"], [t + "q"])], "e", [], [_value(t + "q")]))],
    ))
