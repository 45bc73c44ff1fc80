"""Tokens a second of 1, 4, 16 and 64 texts at once: SmolLM2, greedy, prompts of 32 tokens, beside llama.cpp's server
without HTTP (the wheel xllamacpp), which has as many slots. All requests come at the same moment; a figure counts from
there to the last token. Prompt lookup is off: it would help some texts and not others.
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session

PEERS = ["morpho", "llama_cpp"]
STREAMS = (1, 4, 16, 64)
PROMPT, NEW = 32, 48
MISSING = "SmolLM2's file is not here; `morpho models pull smollm2` fetches it (93 MB)"


def run(session: Session) -> ThemeResult:
    """A row for each number of texts."""
    from morpho.weights.pull import is_pulled

    result = ThemeResult("streams")
    goals = {"16 texts over one": 3.0, "16 texts over llama.cpp": 1.0, "one text over llama.cpp": 0.95}
    if not is_pulled("smollm2"):
        result.notes.append(MISSING)
        result.targets = [Target(name, None, bound) for name, bound in goals.items()]
        return result
    new = 12 if session.quick else NEW
    table = Table(f"SmolLM2-135M, prompts of {PROMPT} tokens, {new} new ones each",
                  ["texts", *PEERS, "morpho, tokens/s", "llama.cpp, tokens/s", "ratio"])
    result.tables.append(table)
    rates: dict[int, float | None] = {}
    gains: dict[int, float | None] = {}
    for streams in STREAMS[:3] if session.quick else STREAMS:
        timings = session.measure("serve_streams", (streams, PROMPT, new), PEERS, rounds=2 if session.quick else 5)
        record(result, f"{streams} streams", timings)
        own, other = (seconds(timings, peer) for peer in PEERS)
        rates[streams] = streams * new / own if own else None
        gains[streams] = ratio(other, own)
        shown = [f"{streams * new / value:.1f}" if value else "-" for value in (own, other)]
        table.rows.append([str(streams), duration(own), duration(other), *shown, times(gains[streams])])
        print(f"streams: {streams} at once: {shown[0]} tokens/s, llama.cpp {shown[1]}", flush=True)
    found = {"16 texts over one": ratio(rates.get(16), rates.get(1)), "16 texts over llama.cpp": gains.get(16),
             "one text over llama.cpp": gains.get(1)}
    result.targets = [Target(name, found[name], bound) for name, bound in goals.items()]
    return result
