"""ONNX Runtime: a small graph per case, constants as initialisers, which it packs when the session is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.kernels import cases
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.kernels.cases"
OPSET = 20  # the first with Gelu
IR_VERSION = 9
THREADS = 1


def load(threads: int) -> dict[str, str]:
    """Remember the threads: they belong to a session."""
    global THREADS
    THREADS = threads
    onnxruntime.set_default_logger_severity(3)
    return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}


def linear(source: str, weight: str, bias: str, target: str) -> list[onnx.NodeProto]:
    """source @ weight + bias."""
    return [helper.make_node("MatMul", [source, weight], [f"{target}_product"]),
            helper.make_node("Add", [f"{target}_product", bias], [target])]


def graph(name: str, inputs: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """The nodes of a case, from its inputs' names to ``y``."""
    if name in ("matmul", "linear"):
        return [helper.make_node("MatMul", ["x", "weight"], ["y"])]
    if name in ("matmul_int8", "linear_int8"):
        return [helper.make_node("MatMulInteger", ["x", "weight"], ["y"])]
    if name in ("linear_gelu", "linear_relu"):
        activation = {"linear_gelu": "Gelu", "linear_relu": "Relu"}[name]
        return [*linear("x", "weight", "bias", "t"), helper.make_node(activation, ["t"], ["y"])]
    if name == "norm_linear":
        norm = helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["t"], epsilon=cases.EPSILON)
        return [norm, *linear("t", "weight", "bias", "y")]
    if name == "conv_bn_relu":
        margin = inputs["weight"].shape[-1] // 2
        names = ["c", "scale", "shift", "mean", "variance"]
        return [helper.make_node("Conv", ["x", "weight"], ["c"], pads=[margin] * 4),
                helper.make_node("BatchNormalization", names, ["b"], epsilon=cases.EPSILON),
                helper.make_node("Relu", ["b"], ["y"])]
    if name == "mlp":
        return [*linear("x", "weight1", "bias1", "t"), helper.make_node("Gelu", ["t"], ["u"]),
                *linear("u", "weight2", "bias2", "y")]
    raise KeyError(name)


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Make the session; a call takes a dictionary of arrays."""
    arguments = cases.of(name).arguments
    kinds = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int8): TensorProto.INT8}
    given = [helper.make_tensor_value_info(key, kinds[inputs[key].dtype], inputs[key].shape) for key in arguments]
    held = [numpy_helper.from_array(array, key) for key, array in inputs.items() if key not in arguments]
    kind = TensorProto.INT32 if name.endswith("int8") else TensorProto.FLOAT
    made = helper.make_graph(graph(name, inputs), name, given, [helper.make_tensor_value_info("y", kind, None)], held)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return Prepared(session.run, (["y"], {key: inputs[key] for key in arguments}))


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """A list of arrays."""
    return tuple(result)
