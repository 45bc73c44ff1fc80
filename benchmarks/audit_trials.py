"""Trials of commitments: honest answers and eight kinds of lies on a tiny model, each audited.

    python -m benchmarks.audit_trials [TRIALS]

In every lie the server writes the honest weights, prompt, seed and temperature into its header before the first link,
and whoever changes a file seals it anew, so that only a replay can tell. A flipped bit of a weight may change no logit
of an answer: then the answer is the honest one, and such trials are counted apart. With the digest of the weights it
used, the server is refuted there too.
"""

from __future__ import annotations

import base64
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

import morpho as mo
from morpho.serve.engine.audit import audit, reseal
from morpho.serve.engine.commitment import sampling_of
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams

KINDS = ("honest", "weight bit", "quantised weights", "prompt", "seed", "temperature", "token", "commitment")
VOCABULARY, TOKENS = 64, 40


def create() -> Any:
    mo.nn.seed(0)
    return mo.models.create("llama", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                            max_position_embeddings=128)


def answer(engine: Engine, prompt: tuple[int, ...], params: SamplingParams, claim: dict[str, Any] | None = None
           ) -> dict[str, Any]:
    """A commitment; one with a `claim` links to a header that says so."""
    true_chain = engine._chain

    def lying_chain(*given: Any) -> Any:
        chain = true_chain(*given)
        assert chain is not None
        header = chain._header_of
        chain._header_of = lambda: {**header(), **(claim or {})}
        return chain
    engine._chain = lying_chain  # type: ignore[method-assign]
    try:
        *_, last = engine.submit(Request(prompt, params, "trial"))
    finally:
        del engine._chain
    assert last.commitment is not None, last
    return last.commitment


def flip(rng: np.random.Generator, model: Any) -> tuple[Any, np.ndarray]:
    """Flip a bit of a weight that leaves it finite; gives the parameter and its old elements."""
    parameters = [*model.parameters()]
    sizes = np.array([p.size for p in parameters])
    parameter = parameters[rng.choice(len(sizes), p=sizes / sizes.sum())]
    old = parameter.numpy(copy=True)
    while True:
        new = old.copy()
        new.reshape(-1).view(np.uint32)[rng.integers(new.size)] ^= np.uint32(1 << int(rng.integers(32)))
        if np.isfinite(new).all() and np.abs(new).max() < 1e4:
            parameter.assign(mo.asarray(new, copy=True))
            return parameter, old


def rows_of(model: Any, document: dict[str, Any]) -> bytes:
    ids = np.array([[*document["prompt"], *document["tokens"][:-1]]], np.int64)
    with mo.no_grad():
        return np.ascontiguousarray(model(mo.asarray(ids)).numpy()[0, len(document["prompt"]) - 1:]).tobytes()


def trial(kind: str, rng: np.random.Generator, liar: Engine, honest: Engine) -> str:
    """"confirmed", "refuted", or what else came of one trial."""
    prompt = tuple(int(t) for t in rng.integers(0, VOCABULARY, rng.integers(2, 12)))
    params = SamplingParams(temperature=float(rng.uniform(0.5, 1.5)), top_k=int(rng.choice([0, 8, 20])),
                            top_p=float(rng.choice([1.0, 0.9])), seed=int(rng.integers(1 << 40)), max_tokens=TOKENS,
                            commitment=True)
    claim: dict[str, Any] = {}
    if kind in ("weight bit", "quantised weights"):
        claim = {"weights": honest.place()["weights"]}
    if kind == "weight bit":
        parameter, old = flip(rng, liar.model)
        liar.refresh()
        told = audit(answer(liar, prompt, params), honest).confirmed  # with the digest of the weights it used
        document = answer(liar, prompt, params, claim)
        same = rows_of(liar.model, document) == rows_of(honest.model, document)
        parameter.assign(mo.asarray(old, copy=True))
        liar.refresh()
        if told:
            return "confirmed with the digest of other weights"
        verdict = audit(document, honest)
        return ("confirmed: no logit changed" if same else "confirmed") if verdict.confirmed else (
            "refuted though no logit changed" if same else "refuted")
    used, used_params = prompt, params
    if kind == "prompt":
        place = int(rng.integers(len(prompt)))
        other = (prompt[place] + 1 + int(rng.integers(VOCABULARY - 1))) % VOCABULARY
        used = (*prompt[:place], other, *prompt[place + 1:])
        claim = {"prompt": [*prompt]}
    if kind in ("seed", "temperature"):
        value = params.seed + 1 if kind == "seed" else params.temperature * float(rng.choice([0.999, 1.001, 1.1]))
        used_params = replace(params, **{kind: value})
    if kind in ("seed", "temperature"):
        claim = {"sampling": sampling_of(params)}
    document = answer(liar, used, used_params, claim)
    claim = {}
    if kind == "token":
        tokens = [*document["tokens"]]
        place = int(rng.integers(len(tokens)))
        tokens[place] = (tokens[place] + 1 + int(rng.integers(VOCABULARY - 1))) % VOCABULARY
        claim = {"tokens": tokens}
    if kind == "commitment":
        raw = bytearray(base64.b64decode(document["records"]))
        raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
        claim = {"records": base64.b64encode(bytes(raw)).decode()}
    return "confirmed" if audit(reseal(document, **claim), honest).confirmed else "refuted"


def main(trials: int) -> None:
    rng, started = np.random.default_rng(1), time.perf_counter()
    model, rounded = create(), create()
    for parameter in rounded.parameters():
        if parameter.ndim == 2:
            parameter.assign(mo.quantise(parameter.value, "q8_0").dequantise())
    wrong = 0
    with Engine(create(), pages=8) as liar, Engine(rounded, pages=8) as low, Engine(model, pages=8) as honest:
        for kind in KINDS:
            outcomes = Counter(trial(kind, rng, low if kind == "quantised weights" else liar, honest)
                               for _ in range(trials))
            wanted = {"confirmed"} if kind == "honest" else {"refuted", "confirmed: no logit changed"}
            wrong += sum(count for outcome, count in outcomes.items() if outcome not in wanted)
            print(f"{kind:18s} {dict(outcomes)}  {time.perf_counter() - started:.0f} s", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
