"""Masks of structured output by llguidance and by xgrammar, the same schema and texts: `python -m
benchmarks.serve.grammar_masks`. Prints microseconds a token for the mask, and milliseconds to begin."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import morpho as mo

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "tags"],
          "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                         "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}}}
TEXT = '{"name": "Ada of the long name", "age": 36, "tags": ["red", "blue", "green", "red"]}'
ROUNDS = 20


def ours(tokenizer: Any, waited: bool) -> tuple[float, float, int]:
    """Through the engine's own classes; masks as they are computed, or as long as another thread takes when nobody has
    anything to do meanwhile."""
    from morpho.serve.engine.grammar import Grammars
    from morpho.serve.engine.request import Grammar

    grammars = Grammars(tokenizer, tokenizer.vocab_size, (0,))
    grammars.matcher(Grammar("json_object"))  # the vocabulary is made once
    tokens, begin, masks = tokenizer.encode(TEXT, specials=False), 0.0, 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        matcher = grammars.matcher(Grammar("json_schema", json.dumps(SCHEMA)))
        begin += time.perf_counter() - start
        matcher.allowed()  # the first mask is under way already
        start = time.perf_counter()
        for token in tokens:
            if waited:
                refused, _ = not matcher.allowed()[token], matcher.took(token)
            else:
                matcher._fill()
                bits = np.unpackbits(matcher._words.view(np.uint8), bitorder="little")
                refused, _ = not bits[token], matcher._matcher.consume_token(token)
            if refused:
                raise ValueError(f"token {token} is refused")
        masks += time.perf_counter() - start
    return begin / ROUNDS, masks / ROUNDS / len(tokens), len(tokens)


def theirs(tokenizer: Any) -> tuple[float, float, int]:
    """xgrammar, as its documentation says."""
    import xgrammar

    texts = [tokenizer.token_bytes(number).decode("latin-1") for number in range(tokenizer.vocab_size)]
    info = xgrammar.TokenizerInfo(texts, vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[0])
    tokens, begin, masks = tokenizer.encode(TEXT, specials=False), 0.0, 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        compiled = xgrammar.GrammarCompiler(info, cache_enabled=False).compile_json_schema(
            json.dumps(SCHEMA), any_whitespace=False)
        matcher, words = xgrammar.GrammarMatcher(compiled), xgrammar.allocate_token_bitmask(1, info.vocab_size)
        begin += time.perf_counter() - start
        start = time.perf_counter()
        for token in tokens:
            matcher.fill_next_token_bitmask(words)
            np.unpackbits(words.numpy().view(np.uint8), bitorder="little")
            if not matcher.accept_token(token):
                raise ValueError(f"token {token} is refused")
        masks += time.perf_counter() - start
    return begin / ROUNDS, masks / ROUNDS / len(tokens), len(tokens)


if __name__ == "__main__":
    tokens = mo.models.load_with_tokenizer(mo.models.SHIPPED)[1]
    try:
        tokens = mo.weights.load_gguf(mo.weights.model_path("smollm2")).tokenizer
    except mo.errors.MorphoError:
        print("SmolLM2 is not here: the vocabulary of the model that ships")
    for name, measure in (("llguidance", lambda given: ours(given, False)), ("xgrammar", theirs),
                          ("llguidance in another thread", lambda given: ours(given, True))):
        try:
            first, each, count = measure(tokens)
            print(f"{name}: {1e3 * first:.2f} ms to begin, {1e6 * each:.0f} us a mask ({count} tokens, vocabulary of "
                  f"{tokens.vocab_size})")
        except (ImportError, ValueError) as error:
            print(f"{name}: {error}")
