"""Forms, log-probabilities and continuations on folders with the kinds of tokenizers that published models have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Running, serving

pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("llguidance", reason="the extra `serve`")

import morpho as mo
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec
from tokenizer_kinds import KINDS, write_tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "to be"}]
WRITERS = [name for name, kind in KINDS.items() if kind.byte_level]
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 99}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PERSON}}


def folder_of(folder: Path, kind: str) -> Path:
    """A tiny random model with a row more than there are tokens, as padded models have."""
    tokenizer = mo.weights.load_tokenizer(write_tokenizer(folder, kind))
    mo.nn.seed(0)
    mo.models.save(folder, mo.models.create("gpt2", vocab_size=400, n_embd=8, n_layer=1, n_head=1, n_positions=512,
                                            eos_token_id=tokenizer.specials.get("</s>")))
    return folder


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("kinds")
    with serving(*(Spec(kind, folder_of(folder / kind, kind)) for kind in KINDS),
                 make_engine=EngineOptions(kv_bytes=1 << 19, max_batch=8, warm=False)) as running:
        yield running


def answer(kinds: Running, path: str, **body: Any) -> dict[str, Any]:
    response = kinds.post(path, **body)
    assert response.status_code == 200, response.text
    return dict(response.json()["choices"][0])


@pytest.mark.parametrize("kind", WRITERS)
def test_texts_have_the_form_that_was_asked_for(kinds: Running, kind: str) -> None:
    asked: dict[str, Any] = {"model": kind, "max_tokens": 200, "temperature": 1}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    for seed in range(2):
        said = answer(kinds, CHAT, messages=HELLO, response_format=form, seed=seed, **asked)
        person = json.loads(said["message"]["content"])
        assert said["finish_reason"] == "stop" and {*person} == {"name", "age"} and len(person["name"]) <= 6
        for pattern in ("[0-9a-zà-ÿ日]{8}", " [^a-z]{4} "):
            form_of_text = {"regex": pattern}
            text = answer(kinds, TEXT, prompt="to be", structured_outputs=form_of_text, seed=seed, **asked)["text"]
            assert re.fullmatch(pattern, text), (pattern, text)
        choices = [" so on", "ça va", "日本 語"]
        assert answer(kinds, CHAT, messages=HELLO, structured_outputs={"choice": choices}, seed=seed,
                      **asked)["message"]["content"] in choices
    called = answer(kinds, CHAT, messages=HELLO, tools=[TOOL], tool_choice="required", seed=0, **asked)
    assert {*json.loads(called["message"]["tool_calls"][0]["function"]["arguments"])} == {"name", "age"}


@pytest.mark.parametrize("kind", [name for name in KINDS if name not in WRITERS])
def test_forms_of_words(kinds: Running, kind: str) -> None:
    """A vocabulary without single bytes writes what its tokens can, and says so where they cannot."""
    text = answer(kinds, TEXT, model=kind, prompt="to be", max_tokens=30, temperature=1, seed=1,
                  structured_outputs={"regex": "( |t|o|b|e|n|r)+ ?is ?"})["text"]
    assert re.fullmatch("( |t|o|b|e|n|r)+ ?is ?", text), text
    for form in ({"regex": "☃"}, {"json": PERSON}):
        response = kinds.post(TEXT, model=kind, prompt="to be", max_tokens=60, structured_outputs=form)
        said = response.json()
        if response.status_code == 200:
            assert said["choices"][0]["finish_reason"] == "length" or json.loads(said["choices"][0]["text"])
        else:
            assert response.status_code == 400 and "panic" not in said["error"]["message"], said


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_log_probabilities_join_to_the_text(kinds: Running, kind: str) -> None:
    with kinds.registry.lease(kind) as served:
        assert served is not None
        ids = [number for number in served.tokenizer.encode("so on, é 日本", around=False)
               if number not in served.tokenizer.specials.values()]
    bias = {str(number): 90 for number in ids}
    asked = {"model": kind, "max_tokens": 12, "temperature": 1, "seed": 3, "logit_bias": bias}
    said = answer(kinds, CHAT, messages=HELLO, logprobs=True, top_logprobs=1, **asked)
    joined = b"".join(bytes(token["bytes"]) for token in said["logprobs"]["content"]).decode("utf-8", "replace")
    text = said["message"]["content"]
    assert text.strip() == joined.strip() and not re.search("[Ġ▁]|<0x", joined) and "##" not in joined
    plain = answer(kinds, TEXT, prompt="to be", logprobs=1, **asked)
    told, offsets = plain["logprobs"], plain["logprobs"]["text_offset"]
    if "\ufffd" not in plain["text"] and not any(token.startswith("bytes:") for token in told["tokens"]):
        assert "".join(told["tokens"]).strip() == plain["text"].strip()
        for place, end, token in zip(offsets, [*offsets[1:], len(plain["text"])], told["tokens"], strict=True):
            assert plain["text"][place:end].strip() == token.strip()


@pytest.mark.parametrize("kind", ["llama2", "mistral", "gemma", "qwen2", "bert", "unigram"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_continuation_keeps_its_first_blank(kinds: Running, kind: str, stream: bool) -> None:
    with kinds.registry.lease(kind) as served:
        assert served is not None
        tokenizer = served.tokenizer
    prompt = tokenizer.encode("to be")
    word = next(number for number in range(tokenizer.vocab_size)
                if re.fullmatch(rb" \w+", tokenizer.token_bytes(number)))
    asked = {"model": kind, "prompt": "to be", "max_tokens": 2, "temperature": 0, "logit_bias": {str(word): 100}}
    before, after = (tokenizer.decode(ids) for ids in (prompt, [*prompt, word, word]))
    if stream:
        text = "".join(chunk["choices"][0]["text"] for chunk in kinds.chunks(TEXT, **asked))
    else:
        text = answer(kinds, TEXT, **asked)["text"]
        assert answer(kinds, TEXT, echo=True, **asked)["text"] == after
    assert before + text == after and text.startswith(" ")


def test_a_row_that_is_no_token_says_nothing(kinds: Running) -> None:
    """And ends no other text."""
    bias = {"399": 100}
    with kinds.registry.lease("qwen2") as served:
        assert served is not None and served.tokenizer.vocab_size < 399
    said = answer(kinds, TEXT, model="qwen2", prompt="to be", max_tokens=3, temperature=0, logit_bias=bias, logprobs=1)
    assert (said["text"], said["finish_reason"]) == ("", "length")
