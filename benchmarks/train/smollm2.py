"""SmolLM2-135M from its GGUF file beside llama.cpp (the wheel xllamacpp) in the same run: a prompt of 256 tokens, then
64 tokens one by one; weights packed as in the file.

    morpho models pull smollm2
    morpho bench train --only smollm2

llama.cpp's figures are its own, without its server's overhead, and those of the wheel's build, whose instructions are
printed (a build for the machine at hand may be faster). It keeps keys and values in float16, Morpho in float32.
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.train import smollm2_cases as cases

PEERS = ["morpho", "llama_cpp"]
BOUNDS = {"prefill": 1.0, "decode": 0.7}


def run(session: Session) -> ThemeResult:
    """A row for the prompt, one for decoding."""
    from morpho.weights.pull import is_pulled

    result = ThemeResult("smollm2")
    if not is_pulled("smollm2"):
        result.notes.append("SmolLM2's file is not here; `morpho models pull smollm2` fetches it (93 MB)")
        result.targets = [Target(f"{part} over llama.cpp", None, bound) for part, bound in BOUNDS.items()]
        return result
    table = Table("SmolLM2-135M, Q4_1 as in the file", ["part", "tokens", *PEERS, "morpho, tokens/s",
                                                        "llama.cpp, tokens/s", "ratio"])
    result.tables.append(table)
    for part, count in zip(BOUNDS, cases.SIZE, strict=True):
        timings = session.measure(f"smollm2_{part}", cases.SIZE, PEERS, rounds=3 if session.quick else 7)
        record(result, f"smollm2 {part}", timings)
        found = [seconds(timings, peer) for peer in PEERS]
        rates = [f"{count / value:.1f}" if value else "-" for value in found]
        gain = ratio(found[1], found[0])
        table.rows.append([part, str(count), *map(duration, found), *rates, times(gain)])
        result.targets.append(Target(f"{part} over llama.cpp", gain, BOUNDS[part]))
        if part == "decode":
            result.notes += built_with(session.versions.get("llama_cpp", {}))
            result.notes += parting({peer: timing.answer for peer, timing in timings.items() if timing.answer})
    return result


def built_with(versions: dict[str, str]) -> list[str]:
    """What the wheel's llama.cpp uses of the processor: a build of one's own may be faster."""
    return [f"llama.cpp of this wheel was built with {versions['built with']}"] if "built with" in versions else []


def parting(texts: dict[str, str]) -> list[str]:
    """Whether both texts are the same, and where they part; llama.cpp rounds activations to 8 bits in its products."""
    if len(texts) < 2:
        return []
    own, other = (texts[peer] for peer in PEERS)
    if own == other:
        return [f"both wrote the same {len(own)} characters"]
    place = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), min(len(own), len(other)))
    return [f"the texts part after {place} characters: Morpho wrote {own[place:place + 30]!r}, llama.cpp "
            f"{other[place:place + 30]!r} (it rounds activations to 8 bits in its products)"]
