"""6. R10: half precision on a link of 1 Gbit/s (by the shim): half the bytes, and the transfer 1.7x as fast.

Bytes are those of a pipeline's link for a long prompt. The transfer is timed between two ranks that send activations
one after another: rounding, framing, checking and the line.

    morpho bench cluster --only links
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.cluster.links_ranks import GIGABIT_BYTES_PER_S
from benchmarks.cluster.processes import run_ranks
from benchmarks.cluster.setup import WORDS, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

GIGABIT = {"*": {"latency_s": 0.0, "bytes_per_s": GIGABIT_BYTES_PER_S}}


def run(session: Session) -> ThemeResult:
    """Long prompts, of which all activations cross the link; then the link alone."""
    result, table = ThemeResult("links"), Table("Activations over 1 Gbit/s", ["sent as", "bytes of a prompt",
                                                                              "transfer"])
    result.tables.append(table)
    place, length = (folder(6, 128), 256) if session.quick else (folder(6, 512), 1500)
    prompt = np.random.default_rng(0).integers(0, WORDS, length).tolist()
    sent = {}
    for dtype in ("f32", "f16"):
        with pipeline(place, cut_plan(place, even_cuts(place, 2), dtype=dtype), shims=GIGABIT) as made:
            first = made.plan.stages[0].node
            before = _sent(made, first)
            for _ in made.generate(prompt, max_new_tokens=1, temperature=0):
                pass
            sent[dtype] = _sent(made, first) - before
    times = run_ranks(2, "links_ranks", 8 if session.quick else 64)[-1]["seconds"]
    table.rows += [[dtype, str(sent[dtype]), f"{1e3 * times[dtype]:.2f} ms"] for dtype in sent]
    result.targets += [Target("bytes of f16 over f32", sent["f16"] / sent["f32"], 0.51, False),
                       Target("transfer of f32 over f16", times["f32"] / times["f16"], 1.7)]
    return result


def _sent(made: object, node: str) -> int:
    """Bytes a node has sent, after it has reported again."""
    time.sleep(1.2)
    return int(made.statistics[node]["sent_bytes"])  # type: ignore[attr-defined]
