"""4. Attention forward against PyTorch's own, and time and memory of a long one against the unfused form.

    morpho bench kernels --only attention
"""

from __future__ import annotations

import statistics

from benchmarks.harness.compare import label
from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.kernels.board import Board, lacking, named, same

CASES = (("attention_causal", (1, 12, 1024, 64)), ("attention", (8, 12, 512, 64)))
LONG, LONG_QUICK = (8, 12, 2048, 64), (1, 12, 2048, 64)
PEERS = same("numpy", "torch", "torch_compile", "jax")


def run(session: Session) -> ThemeResult:
    """Both tables."""
    result = ThemeResult("attention")
    if lacking(session, result, "attention"):
        return result
    board = Board(session, result, "attention forward, f32, per call", PEERS)
    for case, shape in CASES:
        board.measure(named(case, shape), case, shape, 1.2, "torch", flops=flops(*shape))
    board.worst("attention over torch's scaled_dot_product_attention, worst", 1.2, "torch")
    try:
        unfused(session, result, LONG_QUICK if session.quick else LONG)
    except ProbeError as error:
        result.errors.append(str(error))
    return result


def flops(batch: int, heads: int, length: int, width: int) -> float:
    """Of both products, as if nothing were masked."""
    return 4.0 * batch * heads * length * length * width


def unfused(session: Session, result: ThemeResult, shape: tuple[int, ...]) -> None:
    """Time and peak of a call in fresh processes, alternating."""
    answers: dict[str, list[dict[str, float]]] = {"numpy": [], "morpho": []}
    for _ in range(1 if session.quick else 3):
        for library in answers:
            answers[library].append(probe("memory", "attention", library, *map(str, shape), threads=session.threads))
    name = named("attention", shape)
    result.figures[f"{name} against unfused"] = answers
    taken = {library: statistics.median(one["seconds"] for one in found) for library, found in answers.items()}
    peaks = {library: max(one["peak_bytes"] or 0 for one in found) for library, found in answers.items()}
    rows = [[library, duration(taken[library]), f"{peaks[library] / 1e6:.1f} MB"] for library in answers]
    result.tables.append(Table(f"attention {label(shape)}: one call, memory above the inputs", ["how", "time", "peak"],
                               rows))
    gain = ratio(taken["numpy"], taken["morpho"])
    share = peaks["morpho"] / peaks["numpy"] if peaks["numpy"] else None
    if gain:
        result.ratios[f"{name} vs unfused numpy"] = gain
    result.targets += [Target(f"{name} over the unfused NumPy form", gain, 4.0),
                       Target(f"{name}: memory as a share of the unfused form's", share, 0.1, at_least=False)]
