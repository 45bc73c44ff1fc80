"""6. R10: half precision on a link of 1 Gbit/s (by the shim): half the bytes, and the transfer 1.7x as fast.

    morpho bench cluster --only links
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.cluster.setup import WORDS, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session

GIGABIT = {"*": {"latency_s": 0.0, "bytes_per_s": 125e6}}


def run(session: Session) -> ThemeResult:
    """Long prompts, of which all activations cross the link."""
    result, table = ThemeResult("links"), Table("A long prompt over 1 Gbit/s", ["sent as", "bytes", "on the line"])
    result.tables.append(table)
    place, length = (folder(6, 128), 256) if session.quick else (folder(6, 512), 1500)
    prompt = np.random.default_rng(0).integers(0, WORDS, length).tolist()
    sent, times = {}, {}
    for dtype in ("f32", "f16"):
        with pipeline(place, cut_plan(place, even_cuts(place, 2), dtype=dtype), shims=GIGABIT) as made:
            first = made.plan.stages[0].node
            before = _sent(made, first)
            for _ in made.generate(prompt, max_new_tokens=1, temperature=0):
                pass
            sent[dtype] = _sent(made, first) - before
        times[dtype] = sent[dtype] / GIGABIT["*"]["bytes_per_s"]
        table.rows.append([dtype, str(sent[dtype]), f"{1e3 * times[dtype]:.2f} ms"])
    result.targets += [Target("bytes of f16 over f32", sent["f16"] / sent["f32"], 0.51, False),
                       Target("time on the line of f32 over f16, from the bytes", times["f32"] / times["f16"], 1.7)]
    return result


def _sent(made: object, node: str) -> int:
    """Bytes a node has sent, after it has reported again."""
    time.sleep(1.2)
    return int(made.statistics[node]["sent_bytes"])  # type: ignore[attr-defined]
