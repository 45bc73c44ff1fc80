"""A training step of a GPT: 6 layers, 384 wide, vocabulary 8192, loss on every position, batch 8 x 256; with backward,
clipping and AdamW. Float32 beside PyTorch eager and `torch.compile`, bfloat16 beside `torch.autocast`.

    morpho bench train --only gpt_step

Peers have the same weights; the loss of the first step is checked against float64, that of the second against each
other: it depends on every gradient, on clipping and on AdamW.
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.rounds import Timing
from benchmarks.harness.session import Session
from benchmarks.train import gpt
from benchmarks.train.agreement import same_losses, too_long, why_missing

ROUNDS = 5  # a step takes seconds
HALF = {"morpho": ("morpho", "gpt_step_bf16"), "measured": ("morpho", "gpt_step_auto"),
        "torch": ("torch", "gpt_step_bf16")}


def run(session: Session) -> ThemeResult:
    """A table for float32, one for bfloat16."""
    result = ThemeResult("gpt_step")
    own = single(session, result)
    half(session, result, own)
    return result


def single(session: Session, result: ThemeResult) -> float | None:
    """Float32: Morpho's seconds."""
    size, name = gpt.SIZE, "gpt step 8x256 f32"
    peers = ["morpho", "torch", "torch_compile"]
    timings = session.measure("gpt_step", size, peers, rounds=2 if session.quick else ROUNDS)
    record(result, name, timings)
    same_losses(result, name, timings, gpt.ALLOWED["float32"])
    own, eager, compiled = (seconds(timings, peer) for peer in peers)
    tokens = size[-1] * size[-2]
    table = Table("GPT 6 x 384, batch 8 x 256, f32: a whole training step", ["peer", "step", "tokens/s", "morpho is"])
    for peer, found in zip(("Morpho compiled", "PyTorch eager", "torch.compile"), (own, eager, compiled), strict=True):
        table.rows.append([peer, duration(found), f"{tokens / found:.0f}" if found else "-", times(ratio(found, own))])
    result.tables.append(table)
    reason = why_missing(session, "torch_compile")
    if compiled is None and reason:
        result.notes.append(f"torch.compile has no figure: {reason}")
    result.targets += [Target("f32 step over PyTorch eager", ratio(eager, own), 1.3),
                       Target("f32 step over torch.compile", ratio(compiled, own), 1.1)]
    return own


def half(session: Session, result: ThemeResult, single_s: float | None) -> None:
    """bfloat16: first a small batch, as a processor without the instructions may take minutes for the full one."""
    table = Table("the same in mixed precision: Morpho autocast(\"bfloat16\"), Morpho autocast() by measurement, "
                  "torch.autocast(bfloat16)", ["batch", "morpho bf16", "morpho measured", "torch bf16", "ratio"])
    result.tables.append(table)
    small = measure_half(session, result, table, gpt.SMALL, HALF)
    larger = gpt.SIZE[-1] * gpt.SIZE[-2] / (gpt.SMALL[-1] * gpt.SMALL[-2])
    slow = too_long(result, "bf16 step", small, "torch", larger)
    full = {} if session.quick else measure_half(
        session, result, table, gpt.SIZE, {key: entry for key, entry in HALF.items() if not (slow and key == "torch")})
    judged = small if slow or session.quick else full
    over = ratio(seconds(judged, "torch"), seconds(judged, "morpho"))
    result.targets += [Target("bf16 step over torch.autocast", over, 1.5),
                       Target("autocast() over f32: never slower", ratio(single_s, seconds(full, "measured")), 0.97)]


def measure_half(session: Session, result: ThemeResult, table: Table, size: tuple[int, ...],
                 entries: dict[str, tuple[str, str]]) -> dict[str, Timing]:
    """One row."""
    batch = f"{size[-2]}x{size[-1]}"
    timings = session.measure_mixed(entries, size, rounds=2 if session.quick else 3)
    competitors = {key: timing for key, timing in timings.items() if key != "measured"}
    record(result, f"gpt step {batch} bf16", competitors)
    if "measured" in timings:
        result.figures[f"gpt step {batch} bf16"]["measured"] = timings["measured"].as_json()
        result.errors += [f"gpt step {batch}: {timings['measured'].error}"] if timings["measured"].error else []
    same_losses(result, f"gpt step {batch} bf16", timings, gpt.ALLOWED["bfloat16"])
    own, measured, torch = (seconds(timings, key) for key in HALF)
    table.rows.append([batch, duration(own), duration(measured), duration(torch), times(ratio(torch, own))])
    return timings
