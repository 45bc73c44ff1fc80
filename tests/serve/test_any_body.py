"""Any body gets an answer that is not a fault of the server's."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Running

HELLO = [{"role": "user", "content": "to be"}]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": HELLO, "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "n": 1, "stop": ["x"], "seed": 1,
        "logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 1, "response_format": {"type": "text"},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "chat_template_kwargs": {}, "model": "tiny"},
    "/v1/completions": {
        "prompt": "to be", "max_tokens": 2, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1, "logprobs": 1,
        "stop_token_ids": [3], "presence_penalty": 0.5, "echo": True, "prompt_logprobs": 1, "min_tokens": 1,
        "allowed_token_ids": [5, 6], "structured_outputs": {"regex": "[a-z]+"}, "stream": False},
    "/v1/embeddings": {"model": "encoder", "input": "the cat", "encoding_format": "float", "user": "me"},
    "/tokenize": {"prompt": "to be", "model": "tiny", "return_token_strs": True},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/v1/messages": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "to be"}]}], "max_tokens": 2, "system": "S",
        "stop_sequences": ["x"], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": "m"}, "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 9}, "temperature": 0.5},
    "/v1/messages/count_tokens": {"messages": HELLO, "system": [{"type": "text", "text": "S"}]},
    "/api/chat": {"messages": HELLO, "options": {"num_predict": 2, "top_k": 3, "stop": ["x"], "seed": 1},
                  "think": False, "format": "", "tools": [], "stream": False, "keep_alive": "5m", "model": "tiny"},
    "/api/generate": {"prompt": "to be", "options": {"num_predict": 2}, "raw": True, "stream": False, "system": "S"},
    "/api/embed": {"model": "encoder", "input": ["the cat"], "truncate": True},
    "/v1/score": {"model": "encoder", "text_1": "the cat", "text_2": ["sat", "mat"]},
    "/v1/rerank": {"model": "encoder", "query": "the cat", "documents": ["sat", {"text": "mat"}], "top_n": 1},
}
words = st.text(max_size=8) | st.sampled_from(["\ud800", "<|im_end|>", "{{", "\0", "(", "[", "a" * 3000, "json_schema",
                                               "required", "tiny", "encoder"])
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -1, 0, 1 << 63, 1e308])
keys = words | st.sampled_from(["type", "role", "content", "schema", "json", "regex", "grammar", "function", "name",
                                "parameters"])
values = st.recursive(st.none() | st.booleans() | numbers | words, lambda inner: st.lists(inner, max_size=3)
                      | st.dictionaries(keys, inner, max_size=3), max_leaves=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(st.data())
def test_any_body(server: Running, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([*GOOD]))
    body = dict(GOOD[path])
    for name in data.draw(st.lists(st.sampled_from([*body]), min_size=1, max_size=2)):
        place = data.draw(st.sampled_from(["whole", "inside"]))
        if place == "inside" and isinstance(body[name], dict) and body[name]:
            body[name] = {**body[name], data.draw(st.sampled_from([*body[name]])): data.draw(values)}
        else:
            body[name] = data.draw(values)
    raw = json.dumps(body).encode()
    response = server.client.post(path, content=raw, headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 404), (response.text, raw)
    if response.status_code != 200:
        error = response.json()["error"]
        assert isinstance(error, str) if path.startswith("/api/") else {*error} == {"message", "type"} \
            if path.startswith("/v1/messages") else {*error} == {"message", "type", "param", "code"}
