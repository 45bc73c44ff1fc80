"""5. GPT-2 124M: forward and decoding of one token, float32 and bfloat16, and the share of the memory's bandwidth.

    morpho bench kernels --only gpt2

Morpho's model is that of ``mo.models``, its weights constants; ``benchmarks/models/gpt2.py`` has them and the answer.
"""

from __future__ import annotations

from benchmarks.harness.compare import best_peer, label, seconds
from benchmarks.harness.report import duration
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.kernels.board import Board, lacking, same
from benchmarks.models import gpt2

PAST = 128
CASES = {  # name -> batch and length; the first two are all of a quick run. Small ones of a type go first
    "gpt2_forward": ((1, 128), (8, 128)),
    "gpt2_decode": ((1, PAST),),
    "gpt2_decode_bf16": ((1, PAST),),
    "gpt2_forward_bf16": ((1, 128), (8, 128)),
}
PEERS = same("torch", "torch_compile")
SWEEPERS = ("morpho", "numpy", "torch")
FLOORS = {"gpt2_forward": 1.15, "gpt2_decode": 1.2, "gpt2_decode_bf16": 1.2, "gpt2_forward_bf16": 2.0}


def run(session: Session) -> ThemeResult:
    """One table of models, one of bandwidth."""
    result = ThemeResult("gpt2")
    if lacking(session, result, "gpt2_forward"):
        return result
    board = Board(session, result, "GPT-2 124M, per call", PEERS)
    gains: dict[str, list[float]] = {}
    cases = list(CASES)[:2] if session.quick else list(CASES)
    for case in cases:
        for batch, length in CASES[case][:1] if session.quick else CASES[case]:
            tokens = batch if "decode" in case else batch * length
            row = board.measure(f"{case} {label((batch, length))}", case, (batch, length), FLOORS[case],
                                flops=2.0 * gpt2.weight_count() * tokens)
            if row.over_best:
                gains.setdefault(case, []).append(row.over_best)
    for case, found in gains.items():
        result.targets.append(Target(f"{case} over the best peer, worst", min(found), FLOORS[case]))
    bandwidth(session, result, [case for case in cases if "decode" in case])
    return result


def bandwidth(session: Session, result: ThemeResult, cases: list[str]) -> None:
    """Decoding reads every weight once: its time against the fastest plain reading of as many bytes.

    Both in the same rounds, since the bandwidth is another one from minute to minute.
    """
    table = Table("decoding a token against reading as many bytes", ["case", "bytes", "decode", "read", "by", "share"])
    for case in cases:
        count = gpt2.read_bytes("bfloat16" if case.endswith("bf16") else "float32", PAST)
        entries = {"decode": ("morpho", case), **{peer: (peer, "read_sweep") for peer in SWEEPERS}}
        timings = session.measure_mixed(entries, (1, PAST), shapes={"read_sweep": (count // 4,)})
        result.figures[f"{case} and reading {count} bytes"] = {name: one.as_json() for name, one in timings.items()}
        result.errors += [f"{case} beside read sweeps, {name}: {timing.error}" for name, timing in timings.items()
                          if timing.error]
        best, own = best_peer(timings, own="decode"), seconds(timings, "decode")
        read = best and seconds(timings, best)
        share = ratio(read, own)
        if share:
            result.ratios[f"{case} vs read sweep"] = share
        table.rows.append([case, f"{count / 1e6:.0f} MB", duration(own), duration(read), best or "-",
                           "-" if share is None else f"{share:.1%}"])
        result.targets.append(Target(f"{case}: share of the bandwidth of a read sweep", share, 0.8))
    result.tables.append(table)
