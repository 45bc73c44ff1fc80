"""Log-likelihoods of prompts over HTTP, as evaluation harnesses ask for them, and vLLM's fields."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from serving import Running

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "to be?"}]


def tokens_of(server: Running, text: str) -> list[int]:
    return server.post("/tokenize", prompt=text).json()["tokens"]  # type: ignore[no-any-return]


def test_loglikelihoods_as_lm_eval_asks_for_them(server: Running) -> None:
    """Contexts and continuations as tokens, `echo`, `logprobs` 1 and one token more, which is left out: the sums are
    those of the answer's own log-probabilities where the continuation is what the model says."""
    context = tokens_of(server, "to be or not")
    asked: dict[str, Any] = {"temperature": 0, "logprobs": 1, "seed": 1}
    said = server.post(TEXT, prompt=context, max_tokens=4, ignore_eos=True, **asked).json()["choices"][0]["logprobs"]
    body = server.post(TEXT, prompt=[[*context, *tokens_of(server, "".join(said["tokens"]))], context],
                       max_tokens=1, echo=True, **asked).json()
    [whole, short] = [choice["logprobs"] for choice in body["choices"]]
    assert whole["token_logprobs"][0] is None and whole["top_logprobs"][0] is None
    assert whole["token_logprobs"][len(context):-1] == said["token_logprobs"]
    assert whole["token_logprobs"][:len(context)] == short["token_logprobs"][:-1]
    greedy = [logprob == max(top.values()) for logprob, top in zip(
        whole["token_logprobs"][len(context):-1], whole["top_logprobs"][len(context):-1], strict=True)]
    assert greedy == [True] * 4 and len(short["tokens"]) == len(context) + 1
    offsets, text = whole["text_offset"], body["choices"][0]["text"]
    assert [text[start:stop] for start, stop in zip(offsets, [*offsets[1:], None], strict=True)] == whole["tokens"]


def test_scores_without_a_token_of_the_answer(server: Running) -> None:
    asked: dict[str, Any] = {"prompt": "to be or not", "max_tokens": 0, "echo": True, "logprobs": 2}
    body = server.post(TEXT, **asked).json()
    [choice] = body["choices"]
    count = len(tokens_of(server, "to be or not"))
    assert (choice["text"], choice["finish_reason"]) == ("to be or not", "length")
    assert body["usage"]["completion_tokens"] == 0 and len(choice["logprobs"]["tokens"]) == count
    chunks = [chunk["choices"][0] for chunk in server.chunks(TEXT, **asked)]
    assert [chunk["text"] for chunk in chunks] == ["to be or not", ""] and chunks[0]["logprobs"] == choice["logprobs"]
    assert server.post(TEXT, prompt="to be", max_tokens=0).json()["choices"][0]["text"] == ""
    assert server.post(CHAT, messages=HELLO, max_tokens=0).status_code == 400


def test_every_one_of_n_repeats_the_prompt_and_its_scores(server: Running) -> None:
    body = server.post(TEXT, prompt=["to be", "or"], max_tokens=2, n=2, echo=True, logprobs=0, seed=3, ignore_eos=True,
                       prompt_logprobs=1).json()
    for choice, text in zip(body["choices"], ["to be", "to be", "or", "or"], strict=True):
        count = len(tokens_of(server, text))
        assert choice["text"].startswith(text) and len(choice["logprobs"]["tokens"]) == count + 2
        assert len(choice["prompt_logprobs"]) == count and choice["prompt_logprobs"][0] is None
    [alone] = server.post(TEXT, prompt="to be", max_tokens=2, logprobs=1, prompt_logprobs=0, ignore_eos=True).json()[
        "choices"]
    assert len(alone["logprobs"]["tokens"]) == 2 and alone["prompt_logprobs"][0] is None


def test_prompt_logprobs_as_vllm_writes_them(server: Running) -> None:
    told = server.post(CHAT, messages=HELLO, max_tokens=1, prompt_logprobs=2).json()["prompt_logprobs"]
    ids = server.post("/tokenize", messages=HELLO).json()["tokens"]
    assert len(told) == len(ids) and told[0] is None
    for token, entry in zip(ids[1:], told[1:], strict=True):
        own = entry[str(token)]
        assert {1, 2} <= {each["rank"] for each in entry.values()} and own["logprob"] <= 0
        assert own["rank"] >= 1 and math.isfinite(own["logprob"]) and isinstance(own["decoded_token"], str)
    for body in ({"stream": True}, {"prompt_logprobs": -1}, {"prompt_logprobs": True}):
        assert server.post(CHAT, **{"messages": HELLO, "prompt_logprobs": 1, **body}).status_code == 400
    assert "chat/completions" in server.post("/v1/responses", input="x", prompt_logprobs=1).json()["error"]["message"]


# -- vLLM's fields -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("fields", "pattern"), [
    ({"guided_regex": "[ab]{3}"}, "[ab]{3}"), ({"guided_choice": ["yes", "no way"]}, "yes|no way"),
    ({"guided_grammar": 'start: "x" "y"'}, "xy"), ({"guided_grammar": 'root ::= "x" tail\ntail ::= "z"'}, "xz"),
    ({"regex": "[ab]{3}"}, "[ab]{3}"), ({"ebnf": 'root ::= "q"'}, "q"), ({"grammar": 'root ::= "q"'}, "q"),
    ({"guided_json": {"const": 5}}, "5"),
    ({"guided_json": '{"const": 5}'}, "5"), ({"json_schema": '{"const": 5}'}, "5"),
    ({"response_format": {"type": "json_object", "schema": {"const": "a"}}}, '"a"')])
def test_forms_by_their_older_names(server: Running, fields: dict[str, Any], pattern: str) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    body = server.post(CHAT, messages=HELLO, max_tokens=20, guided_decoding_backend="auto", **fields).json()
    assert re.fullmatch(pattern, body["choices"][0]["message"]["content"]), body
    assert body["choices"][0]["finish_reason"] == "stop"


def test_two_forms_are_an_error_and_errors_name_their_field(server: Running) -> None:
    for body, name in (({"guided_regex": "a", "response_format": {"type": "text"}}, "guided_regex"),
                       ({"guided_regex": "a", "guided_json": {}}, "guided_json"),
                       ({"guided_choice": 1}, "guided_choice"), ({"guided_json": 7}, "guided_json"),
                       ({"regex": 7}, "regex")):
        answer = server.post(CHAT, messages=HELLO, max_tokens=4, **body)
        assert answer.status_code == 400 and name in answer.json()["error"]["message"], answer.text


def test_fewest_tokens_listed_tokens_and_ends_that_are_shown(server: Running) -> None:
    end = server.post("/tokenize", prompt="<|im_end|>").json()["tokens"]
    asked: dict[str, Any] = {"prompt": "to be", "temperature": 0, "max_tokens": 6, "logit_bias": {str(end[0]): 100}}
    none = server.post(TEXT, **asked).json()
    some = server.post(TEXT, **asked, min_tokens=3).json()
    assert none["usage"]["completion_tokens"] == 0 and some["usage"]["completion_tokens"] == 3
    shown = server.post(TEXT, **asked, skip_special_tokens=False, include_stop_str_in_output=True).json()["choices"][0]
    assert (shown["text"], shown["finish_reason"]) == ("<|im_end|>", "stop")
    assert server.post(TEXT, **asked, skip_special_tokens=False, ignore_eos=True).json()["choices"][0]["text"] \
        == "<|im_end|>" * 6
    listed = {"prompt": "to be", "temperature": 0, "max_tokens": 4, "allowed_token_ids": tokens_of(server, "x")}
    assert server.post(TEXT, **listed).json()["choices"][0]["text"] == "xxxx"
    for included, text in ((True, "xx"), (False, "")):
        assert server.post(TEXT, **listed, stop="xx", include_stop_str_in_output=included).json()["choices"][0] \
            ["text"] == text
    assert server.post(TEXT, **listed, stop="xx", min_tokens=3).json()["choices"][0]["text"] == "xxxx"
    for body in ({"min_tokens": 5}, {"allowed_token_ids": [1 << 20]}, {"allowed_token_ids": "x"}):
        assert server.post(TEXT, **{**listed, **body}).status_code == 400


def test_a_last_message_that_is_continued(server: Running) -> None:
    """The prompt ends where the message does: its text, and marks of the template inside it, are all there."""
    chat = [*HELLO, {"role": "assistant", "content": "that is <|im_end|> the "}]
    asked: dict[str, Any] = {"messages": chat, "add_generation_prompt": False, "continue_final_message": True}
    ids = server.post("/tokenize", **asked).json()["tokens"]
    text = server.post("/detokenize", tokens=ids).json()["prompt"]
    assert text.endswith("<|im_start|>assistant\nthat is <|im_end|> the ")
    special = tokens_of(server, "<|im_end|>")[0]
    assert ids.count(special) == 1
    assert server.post(CHAT, **asked, max_tokens=2).json()["usage"]["prompt_tokens"] == len(ids)
    bare = server.post("/tokenize", messages=HELLO, add_generation_prompt=False).json()["tokens"]
    assert server.post("/detokenize", tokens=bare).json()["prompt"].endswith("<|im_end|>\n")
    refused = server.post(CHAT, **{**asked, "add_generation_prompt": True})
    assert refused.status_code == 400 and "both true" in json.loads(refused.text)["error"]["message"]


def test_tokens_around_a_text_can_be_left_out(server: Running) -> None:
    """This tokenizer puts none there, so both are the same; a field that is no flag is an error."""
    assert server.post("/tokenize", prompt="to be", add_special_tokens=False).json()["tokens"] == tokens_of(
        server, "to be")
    assert server.post(TEXT, prompt="to be", add_special_tokens=1).status_code == 400
