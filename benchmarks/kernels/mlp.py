"""7. A small network called from Python: 64-64-64 with exact GELU, batch 1, into ``out=``.

    morpho bench kernels --only mlp
"""

from __future__ import annotations

from benchmarks.harness.results import Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.kernels.board import Board, same

SHAPE = (1, 64)


def run(session: Session) -> ThemeResult:
    """One row."""
    result = ThemeResult("mlp")
    board = Board(session, result, "MLP 64-64-64 with GELU, f32, constant weights, per call from Python",
                  same("numpy", "torch", "torch_compile", "jax", "onnxruntime"))
    row = board.measure("mlp 1x64", "mlp", SHAPE, 15.0, "torch")
    result.targets = [Target("a call", row.own and row.own * 1e6, 1.5, False, " us"),
                      Target("a call over torch eager", row.over("torch"), 15.0)]
    return result
