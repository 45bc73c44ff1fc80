"""3. Fused layers: Linear + GELU, Linear + ReLU, LayerNorm + Linear, Conv2d + BatchNorm + ReLU.

    morpho bench kernels --only layers

Against the peers, and against Morpho with fusion switched off (``MORPHO_PASSES_OFF=epilogue,fuse``).
"""

from __future__ import annotations

from benchmarks.harness.report import times
from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.kernels.board import Board, lacking, named, same

SHAPES = ((128, 512, 768), (256, 768, 1024), (512, 1024, 2048))  # m, k, n
HEADS = ((4096, 768, 16), (4096, 768, 64), (4096, 768, 256))
PEERS = same("numpy", "torch", "torch_compile", "jax", "onnxruntime", "unfused")
UNFUSED = {"linear_gelu": 6.8, "linear_relu": 1.6, "norm_linear": 1.4}
TITLES = {"linear_gelu": "gelu(x @ w + b)", "linear_relu": "relu(x @ w + b)",
          "norm_linear": "layer_norm(x) @ w + b"}
CONVOLUTIONS = (  # batch, channels, height, width, channels out, kernel: ResNet-50
    (1, 64, 56, 56, 64, 3), (1, 128, 28, 28, 128, 3), (1, 256, 14, 14, 256, 3), (1, 512, 7, 7, 512, 3),
    (1, 64, 56, 56, 256, 1), (1, 256, 56, 56, 64, 1), (1, 512, 28, 28, 128, 1), (1, 1024, 14, 14, 256, 1),
    (1, 2048, 7, 7, 512, 1))
AGAINST_OWN = {"vs unfused": lambda row: times(row.over("unfused")), "vs numpy": lambda row: times(row.over_numpy)}


def run(session: Session) -> ThemeResult:
    """A table per layer."""
    result = ThemeResult("layers")
    for case, title in TITLES.items():
        linear(session, result, case, title)
    heads(session, result)
    if not lacking(session, result, "conv_bn_relu"):
        convolution(session, result)
    return result


def linear(session: Session, result: ThemeResult, case: str, title: str) -> None:
    """One layer at three shapes."""
    board = Board(session, result, f"{title}, f32, constant weights, per call", PEERS, AGAINST_OWN)
    for m, k, n in SHAPES[:1] if session.quick else SHAPES:
        board.measure(named(case, (m, k, n)), case, (m, k, n), 1.0, flops=2 * m * k * n)
    if case == "linear_gelu":
        board.average("Linear + GELU over NumPy and SciPy, average", 3.17, "numpy")
        board.worst("Linear + GELU over torch eager, worst", 1.2, "torch")
    board.worst(f"{case} over the best peer, worst", 1.0)
    board.geometric_mean(f"{case} over Morpho's unfused path, geometric mean", UNFUSED[case], "unfused")


def heads(session: Session, result: ThemeResult) -> None:
    """Many rows and few outputs: the norm is part of the product there (`passes/fusion/prologue.py`)."""
    title = "layer_norm(x) @ w + b of many rows, f32, constant weights, per call"
    board = Board(session, result, title, PEERS, AGAINST_OWN)
    for m, k, n in HEADS[:1] if session.quick else HEADS:
        board.measure(named("norm_linear", (m, k, n)), "norm_linear", (m, k, n), 1.0, flops=2 * m * k * n)
    board.geometric_mean("norm_linear of many rows over Morpho's unfused path, geometric mean", 1.05, "unfused")


def convolution(session: Session, result: ThemeResult) -> None:
    """ResNet-50's convolutions of stride 1."""
    board = Board(session, result, "relu(batch_norm(conv2d(x))), f32, constant weights, per call", PEERS, AGAINST_OWN)
    for shape in CONVOLUTIONS[:2] if session.quick else CONVOLUTIONS:
        board.measure(named("conv_bn_relu", shape), "conv_bn_relu", shape, 1.0)
    board.geometric_mean("conv_bn_relu over Morpho's unfused path, geometric mean", 2.5, "unfused")
