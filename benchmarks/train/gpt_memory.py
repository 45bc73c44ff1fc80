"""The memory of a training step of the GPT: resident, in fresh processes, beside PyTorch eager; with a checkpoint
around each block; and under budgets, predicted beside measured.

    morpho bench train --only gpt_memory
"""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.harness.compare import seconds
from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.train import gpt

BUDGETS = ("0.75", "0.6")
RESIDENT = {"morpho": "Morpho, code on disk", "compiling": "Morpho, compiling", "torch": "PyTorch eager"}
KINDS = {**RESIDENT, "morpho": "Morpho", "torch": "PyTorch eager", "checkpoint": "Morpho, a checkpoint per block",
         **{share: f"Morpho, memory_budget={share}" for share in BUDGETS}}


def run(session: Session) -> ThemeResult:
    """Fresh processes for the memory, then alternating rounds for the time of checkpoints."""
    result = ThemeResult("gpt_memory")
    answers = result.figures["processes"] = gather(session, result)
    tables(result, answers)
    timings = session.measure_mixed({"morpho": ("morpho", "gpt_step"), "checkpoint": ("morpho", "gpt_step_checkpoint")},
                                    gpt.SIZE, rounds=2 if session.quick else 4)
    result.figures["times"] = {name: timing.as_json() for name, timing in timings.items()}
    result.errors += [f"{name}: {timing.error}" for name, timing in timings.items() if timing.error]
    slower = ratio(seconds(timings, "checkpoint"), seconds(timings, "morpho"))
    result.targets.append(Target("time of a step with checkpoints, of the plain one", slower, 1.4, False))
    return result


def gather(session: Session, result: ThemeResult, size: tuple[int, ...] = ()) -> dict[str, dict[str, Any]]:
    """What each process says. Morpho's share a cache folder, so that the second one with the plain step finds its code
    there: the compiler's memory is in the peak of the first one alone."""
    kinds = [kind for kind in KINDS if kind != "compiling" and (kind != "torch" or session.worker("torch") is not None)
             and not (session.quick and kind in BUDGETS[1:])]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("compiling", *kinds):
            kind = "morpho" if name == "compiling" else name
            try:
                found[name] = probe("memory", "gpt", kind, *map(str, size), threads=session.threads,
                                    extra={"MORPHO_CACHE_DIR": folder})
            except ProbeError as error:
                result.errors.append(f"{KINDS[name]}: {error}")
    return found


def tables(result: ThemeResult, answers: dict[str, dict[str, Any]]) -> None:
    """Two tables and their targets."""
    resident = Table("resident memory of three steps, each in a fresh process (peak; above what the imports take)",
                     ["process", "peak", "above the imports", "of PyTorch"])
    planned = Table("what a call of Morpho's step holds, states included",
                    ["step", "activations (arena)", "of plain", "predicted", "measured", "difference", "first call"])
    torch, plain = (answers.get(kind, {}) for kind in ("torch", "morpho"))
    for kind, answer in answers.items():
        name = KINDS.get(kind, kind)
        if kind in RESIDENT:
            share = ratio(answer["above_bytes"], torch.get("above_bytes"))
            resident.rows.append([RESIDENT[kind], megabytes(answer["peak_bytes"]), megabytes(answer["above_bytes"]),
                                  times(share)])
        if kind in ("torch", "compiling"):
            continue
        off = answer["predicted_bytes"] / answer["measured_bytes"] - 1
        planned.rows.append([name, megabytes(answer["arena_bytes"]),
                             times(ratio(answer["arena_bytes"], plain.get("arena_bytes"))),
                             megabytes(answer["predicted_bytes"]), megabytes(answer["measured_bytes"]), f"{off:+.1%}",
                             megabytes(answer["first_bytes"])])
        if kind[0].isdigit():
            result.targets.append(Target(f"memory_budget={kind}: predicted beside measured", 100 * abs(off), 5.0, False,
                                         " %"))
    result.tables += [resident, planned]
    same = [answer["losses"] for kind, answer in answers.items() if kind != "torch"]
    if any(losses != same[0] for losses in same):
        result.errors.append(f"checkpoints or budgets changed the losses: {same}")
    fewer = ratio(answers.get("checkpoint", {}).get("arena_bytes"), plain.get("arena_bytes"))
    over = ratio(torch.get("above_bytes"), plain.get("above_bytes"))
    if over:
        result.ratios["memory vs torch"] = over
    result.targets += [
        Target("resident memory of a step, of PyTorch's (above the imports)",
               ratio(plain.get("above_bytes"), torch.get("above_bytes")), 0.8, False),
        Target("resident memory of a step, of PyTorch's (whole process)",
               ratio(plain.get("peak_bytes"), torch.get("peak_bytes")), 0.8, False),
        Target("activations with checkpoints, of the plain step's", fewer, 0.5, False)]


def megabytes(count: int | None) -> str:
    """651 MB."""
    return "-" if count is None else f"{count / 1e6:.0f} MB"
