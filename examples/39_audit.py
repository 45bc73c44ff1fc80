"""Check that an answer came from the weights, prompt and sampling that a server claims: bit for bit, on a CPU.

The server writes a commitment of 288 bytes for 32 tokens. An auditor who has the weights replays the answer. Here three
servers lie: one serves rounded weights, one another seed, one changes a token of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import morpho as mo
from morpho.serve.engine.audit import audit, reseal
from morpho.serve.engine.engine import Engine
from morpho.serve.engine.request import Request, SamplingParams

PROMPT = (3, 1, 4, 1, 5)
PARAMS = SamplingParams(temperature=0.8, top_k=20, seed=7, max_tokens=64, commitment=True)


def create(rounded: bool = False) -> Any:
    mo.nn.seed(0)
    model = mo.models.create("llama", vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                             intermediate_size=64, max_position_embeddings=128)
    for parameter in model.parameters() if rounded else ():
        if parameter.ndim == 2:
            parameter.assign(mo.quantise(parameter.value, "q8_0").dequantise())
    return model


def answer(model: Any, params: SamplingParams = PARAMS) -> dict[str, Any]:
    with Engine(model, pages=4, max_batch=1, drafted=0) as engine:
        *_, last = engine.submit(Request(PROMPT, params, "answer"))
    assert last.commitment is not None
    return last.commitment


def main() -> None:
    honest = answer(create())
    sampling, weights = honest["sampling"], honest["weights"]
    tokens = [*honest["tokens"][:-1], (honest["tokens"][-1] + 1) % 100]
    answers = {
        "honest": honest,
        "rounded weights": reseal(answer(create(rounded=True)), weights=weights),
        "another seed": reseal(answer(create(), replace(PARAMS, seed=8)), sampling=sampling),
        "a changed token": reseal(honest, tokens=tokens),
    }
    with Engine(create(), pages=4, max_batch=1, drafted=0) as auditor:
        for name, document in answers.items():
            verdict = audit(document, auditor)
            told = "confirmed" if verdict.confirmed else f"refuted from token {verdict.first} on"
            print(f"{name:16s} {told}: {verdict.differing} of {verdict.checked} tokens differ")
            assert verdict.confirmed == (name == "honest")


if __name__ == "__main__":
    main()
