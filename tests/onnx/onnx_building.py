"""Small ONNX models for the tests, built with the onnx package, and runs of them by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="models are built with the onnx package")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Any, inputs: Any, outputs: Any, weights: Any = None, opset: int = 17, **more: Any) -> bytes:
    """The bytes of a model; weights are NumPy arrays by name."""
    constants = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9, **more).SerializeToString())


def runtime(data: bytes, feed: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime makes of it."""
    ort = pytest.importorskip("onnxruntime", reason="results are compared with ONNX Runtime's")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return list(ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed))


def close(got: Any, expected: Any, tolerance: float = 1e-4) -> None:
    for ours, theirs in zip(got if isinstance(got, tuple | list) else [got], expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance)
