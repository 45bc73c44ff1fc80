"""Morpho's side of the text benchmarks: generation, and SmolLM2 with its weights packed as in the file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.peers.morpho import gpt as gpt_morpho
from benchmarks.peers.self_timed import Made
from benchmarks.train import gpt, smollm2_cases


def generation(case: str, inputs: dict[str, np.ndarray]) -> Callable[[], list[int]]:
    """Greedy tokens after the prompt. Calls after the first begin with another token: a prompt that begins like the
    last sequence would be computed only from where they part."""
    dtype = mo.bfloat16 if gpt.dtype_of(case) == "bfloat16" else mo.float32
    model = gpt_morpho.build(gpt.weights_of(inputs), int(inputs["heads"]), exact=False, dtype=dtype).eval()
    prompt, new, calls = [int(token) for token in inputs["ids"]], int(inputs["new"]), 0

    def run() -> list[int]:
        nonlocal calls
        first = (prompt[0] + calls) % model.config["vocab_size"]
        calls += 1
        return [*mo.models.generate(model, [first, *prompt[1:]], max_new_tokens=new)]

    return run


def smollm2(case: str, inputs: dict[str, np.ndarray]) -> Callable[[], Made]:
    """Of a prompt, or of the tokens after it, the seconds; greedy, as llama.cpp is asked to be."""
    model, tokenizer = mo.models.load_with_tokenizer(mo.weights.model_path("smollm2"))
    generator: Any = mo.models.Generator(model.eval(), smollm2_cases.CONTEXT)
    prompt, new = [int(token) for token in inputs["ids"]], int(inputs["new"])

    def prefill() -> Made:
        generator.ids = []  # nothing of the last call is used
        start = time.perf_counter()
        token = int(generator.start(prompt).argmax())
        return Made(time.perf_counter() - start, 1, tokenizer.decode([token]))

    def decode() -> Made:
        tokens = [int(generator.start(prompt).argmax())]
        start = time.perf_counter()
        while len(tokens) <= new:
            tokens.append(int(generator.step(tokens[-1]).argmax()))
        return Made(time.perf_counter() - start, len(tokens) - 1, tokenizer.decode(tokens))

    return decode if case.endswith("_decode") else prefill
