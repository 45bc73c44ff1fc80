"""Embeddings, tokens and the list of models, in OpenAI's forms (those of tokens are vLLM's)."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from morpho.base.errors import MorphoError
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import chat_prompt, ending, is_one, tokens_of
from morpho.serve.api.limits import Limits
from morpho.serve.api.messages import messages_of, tools_of
from morpho.serve.api.sampling import take_of_others
from morpho.serve.hosting.served import Served


def embedding_inputs(fields: Fields, served: Served, limits: Limits) -> tuple[list[list[int]], str]:
    """(tokens of every input, the encoding of the vectors)."""
    given = fields.take("input")
    encoding = fields.one_of("encoding_format", "float", ("float", "base64")) or "float"
    fields.only("dimensions", served.width, why=f"the vectors of this model have {served.width}")
    take_of_others(fields)
    fields.finish()
    several = [given] if is_one(given) else given
    if not isinstance(several, list) or not several or len(several) > limits.inputs:
        raise ApiError(400, f"'input' is not a text, or a list of 1 to {limits.inputs} texts", "input")
    return [tokens_of(each, served, "input", served.context, specials=False) for each in several], encoding


def embedding_answer(served: Served, vectors: np.ndarray, tokens: int, encoding: str) -> dict[str, Any]:
    """`data` with a vector for each input."""
    data = [{"object": "embedding", "index": place,
             "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if encoding == "base64"
             else row.tolist()} for place, row in enumerate(vectors)]
    return {"object": "list", "data": data, "model": served.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def tokenized(fields: Fields, served: Served, limits: Limits) -> dict[str, Any]:
    """`/tokenize`: the tokens of a text, or of a chat."""
    if (text := fields.text("prompt", most=limits.body_bytes)) is not None:
        around = fields.flag("add_special_tokens", True)
        try:
            found = served.tokenizer.encode_within(text, limits.tokens, around=around)
        except MorphoError as error:
            raise ApiError(400, error.message or str(error), "prompt") from None
        if found is None:
            raise ApiError(400, f"'prompt' has more than {limits.tokens} tokens", "prompt")
    else:
        tools, _ = tools_of(fields, limits)
        reply, unfinished = ending(fields)
        found = chat_prompt(served, messages_of(fields, limits), tools, None, reply, unfinished)
    strings = fields.flag("return_token_strs")
    fields.finish()
    texts = [served.tokenizer.decode([token], specials=True) for token in found] if strings else None
    return {"tokens": found, "count": len(found), "max_model_len": served.context, "token_strs": texts}


def detokenized(fields: Fields, served: Served, limits: Limits) -> dict[str, Any]:
    """`/detokenize`: the text of tokens."""
    tokens = fields.list("tokens", most=limits.max_tokens)
    fields.finish()
    if not all(type(each) is int for each in tokens):
        raise ApiError(400, "'tokens' holds what is no token", "tokens")
    try:
        return {"prompt": served.tokenizer.decode(tokens, specials=True)}
    except MorphoError as error:
        raise ApiError(400, error.message or str(error), "tokens") from None


def model_entry(name: str, created: int, **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "morpho", **more}
