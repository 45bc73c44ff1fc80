"""Text from a model of GPT-2 124M's shape: 64 tokens after a prompt of 32, one sequence, greedy, beside the
transformers library on PyTorch; float32 and bfloat16.

    morpho bench train --only generation

Prompt and tokens are measured together, as a user meets them. Every token is checked against float64.
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.rounds import Timing
from benchmarks.harness.session import Session
from benchmarks.train import generation_cases as cases
from benchmarks.train.agreement import too_long

PEERS = ["morpho", "transformers"]


def run(session: Session) -> ThemeResult:
    """A row for each type and length."""
    result = ThemeResult("generation")
    table = Table("GPT-2 124M's shape, greedy, one sequence: new tokens a second, the prompt included",
                  ["type", "prompt + new", *PEERS, "morpho, tokens/s", "transformers, tokens/s", "ratio"])
    result.tables.append(table)
    single = row(session, result, table, "f32", "generate", cases.SIZE)
    small = row(session, result, table, "bf16", "generate_bf16", cases.SMALL)
    larger = sum(cases.SIZE[-2:]) / sum(cases.SMALL[-2:])
    slow = too_long(result, "bf16 generation", small, "transformers", larger)
    full = {} if session.quick else row(session, result, table, "bf16", "generate_bf16", cases.SIZE,
                                        PEERS[:1] if slow else PEERS)
    judged = small if slow or session.quick else full
    result.targets = [Target("f32 tokens/s over transformers", gain(single), 1.2),
                      Target("bf16 tokens/s over transformers", gain(judged), 1.5)]
    return result


def gain(timings: dict[str, Timing]) -> float | None:
    """How many times faster Morpho is."""
    return ratio(seconds(timings, "transformers"), seconds(timings, "morpho"))


def row(session: Session, result: ThemeResult, table: Table, kind: str, case: str, size: tuple[int, ...],
        peers: list[str] = PEERS) -> dict[str, Timing]:
    """One line of the table."""
    length = f"{size[-2]} + {size[-1]}"
    timings = session.measure(case, size, peers, rounds=2 if session.quick else 5)
    record(result, f"generation {kind} {length}", timings)
    found = [seconds(timings, peer) for peer in PEERS]
    rates = [f"{size[-1] / value:.1f}" if value else "-" for value in found]
    table.rows.append([kind, length, *map(duration, found), *rates, times(gain(timings))])
    answers = [timing.answer for timing in timings.values() if timing.answer]
    if any(answer != answers[0] for answer in answers):
        result.notes.append(f"{kind} {length}: the tokens part at a near tie (each was checked against float64)")
    return timings
