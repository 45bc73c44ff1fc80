"""2. Products in bfloat16, float16 and int8, at the shapes of theme 1.

    morpho bench kernels --only low_precision
"""

from __future__ import annotations

import math

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.session import Session
from benchmarks.kernels import matmul
from benchmarks.kernels.board import Board, lacking, named, same

# What can multiply in each type: NumPy has no fast product of them, ONNX Runtime int8 alone.
PEERS = {
    "bf16": {**same("torch", "torch_compile"), **matmul.TURNED},
    "f16": {**same("torch", "torch_compile"), **matmul.TURNED},
    "int8": same("torch", "onnxruntime"),
}


def run(session: Session) -> ThemeResult:
    """Two tables per type; bfloat16 has a target, the others are reported."""
    result = ThemeResult("low_precision")
    for dtype, peers in PEERS.items():
        if not lacking(session, result, f"linear_{dtype}"):
            one_type(session, result, dtype, peers)
    return result


def one_type(session: Session, result: ThemeResult, dtype: str, peers: dict[str, tuple[str, str]]) -> None:
    """Squares of two arguments, then GPT-2's shapes with a constant weight."""
    floor = 1.5 if dtype == "bf16" else None
    plain = {name: entry for name, entry in peers.items() if not entry[1]}
    squares = Board(session, result, f"x @ w, {dtype}, per call", plain)
    for n in matmul.SQUARES[:1] if session.quick else matmul.SQUARES:
        case = f"matmul_{dtype}"
        squares.measure(named(case, (n, n, n)), case, (n, n, n), floor, flops=2 * n**3)
    board = Board(session, result, f"x @ w, {dtype}, w constant, the shapes of GPT-2, per call", peers)
    for m, k, n in sorted(matmul.shapes(session.quick), key=math.prod):  # an emulated type is found out while small
        case = f"linear_{dtype}"
        board.measure(named(case, (m, k, n)), case, (m, k, n), floor, flops=2 * m * k * n)
    if floor:
        board.rows += squares.rows
        board.geometric_mean(f"{dtype} over torch, geometric mean of both tables", floor)
