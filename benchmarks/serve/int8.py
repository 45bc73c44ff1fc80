"""Tokens a second with `activations="int8"`, beside exact products and llama.cpp's server, in alternating rounds: one
text, and sixteen.
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.serve.streams import MISSING, NEW, PROMPT

WAYS = {"int8": ("morpho", "serve_int8"), "exact": ("morpho", "serve_streams"),
        "llama_cpp": ("llama_cpp", "serve_streams")}


def run(session: Session) -> ThemeResult:
    from morpho.weights.pull import is_pulled

    result, gains = ThemeResult("int8"), dict[int, float | None]()
    if not is_pulled("smollm2"):
        result.notes.append(MISSING)
    else:
        new = 12 if session.quick else NEW
        table = Table(f"SmolLM2-135M, prompts of {PROMPT} tokens, {new} new ones each, tokens/s",
                      ["texts", *WAYS, "int8 / exact", "int8 / llama.cpp"])
        result.tables.append(table)
        for streams in (1,) if session.quick else (1, 16):
            timings = session.measure_mixed(WAYS, (streams, PROMPT, new), rounds=2 if session.quick else 5)
            record(result, f"{streams} streams", timings)
            found = {way: seconds(timings, way) for way in WAYS}
            gains[streams] = ratio(found["llama_cpp"], found["int8"])
            shown = [f"{streams * new / value:.1f}" if value else "-" for value in found.values()]
            table.rows.append([str(streams), *shown, times(ratio(found["exact"], found["int8"])),
                               times(gains[streams])])
            print("int8: " + ", ".join(f"{name} {cell}" for name, cell in zip(table.headings, table.rows[-1],
                                                                             strict=True)), flush=True)
    result.targets = [Target("one text with int8 over llama.cpp", gains.get(1), 1.0)]
    return result
