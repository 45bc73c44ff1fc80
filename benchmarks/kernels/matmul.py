"""1. Products in float32: squares against the peers and the machine's peak, and the shapes of GPT-2.

    morpho bench kernels --only matmul
"""

from __future__ import annotations

from benchmarks.harness.compare import seconds
from benchmarks.harness.results import Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.kernels.board import Board, Row, named, same

SQUARES = (256, 512, 1000, 2048)
ROWS = (128, 1, 2, 4, 8, 16)
WEIGHTS = ((768, 768), (768, 2304), (768, 3072), (3072, 768), (768, 50257))
PEERS = same("numpy", "torch", "torch_compile", "jax", "onnxruntime")
TURNED = {"torch F.linear": ("torch", "@F.linear")}
LONG_ENOUGH_S = 0.01  # of the peak's kernel on all threads


def run(session: Session) -> ThemeResult:
    """Both tables."""
    result = ThemeResult("matmul")
    squares(session, result)
    model_shapes(session, result)
    return result


def squares(session: Session, result: ThemeResult) -> None:
    """Both matrices are arguments; in the same rounds a kernel does as many multiply-adds in registers alone."""
    board = Board(session, result, "x @ w, f32, per call", {**PEERS, "peak": ("morpho", "fma_peak")},
                  {"of the peak": lambda row: "-" if share_of_peak(row) is None else f"{share_of_peak(row):.1%}"})
    for n in SQUARES[:2] if session.quick else SQUARES:
        row = board.measure(named("matmul", (n, n, n)), "matmul", (n, n, n), 0.97, flops=2 * n**3)
        result.targets.append(Target(f"{n} x {n} over the best peer", row.over_best, 0.97))
        if n == 1000:
            result.targets.append(Target("1000 x 1000", row.own and row.own * 1e3, 10.0, False, " ms"))
        peak = seconds(row.timings, "peak")
        if peak and peak >= LONG_ENOUGH_S:
            result.figures[f"peak at {n}"] = {"flops_per_s": 2 * n**3 / peak, "share": share_of_peak(row)}
            result.notes.append(f"multiply-adds of {n} x {n} in registers alone: {2 * n**3 / peak / 1e9:.1f} GFLOP/s")
        if n == SQUARES[-1]:
            result.targets.append(Target(f"share of the peak at {n}", share_of_peak(row), 0.9))


def share_of_peak(row: Row) -> float | None:
    """The time that the multiply-adds alone need, as a share of Morpho's; None where that is too short for Python's
    threads to run side by side."""
    peak = seconds(row.timings, "peak")
    return ratio(peak, row.own) if peak and peak >= LONG_ENOUGH_S else None


def shapes(quick: bool) -> list[tuple[int, int, int]]:
    """m, k, n of GPT-2's layers and of its head."""
    rows, weights = (ROWS[:2], WEIGHTS[:2]) if quick else (ROWS, WEIGHTS)
    return [(m, k, n) for k, n in weights for m in rows]


def model_shapes(session: Session, result: ThemeResult) -> None:
    """The weight is a constant: it may be packed once."""
    board = Board(session, result, "x @ w, f32, w constant, the shapes of GPT-2, per call", {**PEERS, **TURNED})
    for m, k, n in shapes(session.quick):
        board.measure(named("linear", (m, k, n)), "linear", (m, k, n), 0.95, flops=2 * m * k * n)
    board.geometric_mean("GPT-2's shapes over the best peer, geometric mean", 1.15)
    board.worst("GPT-2's shapes over the best peer, worst", 0.95)
