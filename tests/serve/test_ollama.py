"""Ollama's API: lines of JSON, options, models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import Running

import morpho as mo

HELLO = [{"role": "user", "content": "to be?"}]
CHAT = "/v1/chat/completions"


def lines_of(server: Running, path: str, **body: Any) -> list[dict[str, Any]]:
    with server.client.stream("POST", path, json=body) as response:
        assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
        return [json.loads(line) for line in response.iter_lines()]


def test_a_chat_whole_and_in_lines(server: Running) -> None:
    options = {"num_predict": 6, "temperature": 0, "num_ctx": 2048, "repeat_penalty": 1.2, "seed": 1}
    chat = server.post(CHAT, messages=HELLO, max_tokens=6, temperature=0, repetition_penalty=1.2).json()
    said, used = chat["choices"][0]["message"]["content"], chat["usage"]
    body = server.post("/api/chat", model="tiny:latest", messages=HELLO, options=options, stream=False,
                       keep_alive="5m").json()
    assert body["message"] == {"role": "assistant", "content": said} and body["done"] is True
    assert (body["prompt_eval_count"], body["eval_count"]) == (used["prompt_tokens"], used["completion_tokens"])
    assert body["done_reason"] == chat["choices"][0]["finish_reason"] and body["total_duration"] > 0
    lines = lines_of(server, "/api/chat", model="tiny", messages=HELLO, options=options)
    assert "".join(line["message"]["content"] for line in lines) == said
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True] and len(lines) > 2
    assert lines[-1]["eval_count"] == used["completion_tokens"] and lines[0]["model"] == "tiny"


def test_texts_by_the_template_and_raw(server: Running) -> None:
    by_template = server.post("/api/generate", prompt="to be?", system="S", stream=False,
                              options={"num_predict": 4}).json()
    chat = server.post(CHAT, messages=[{"role": "system", "content": "S"}, *HELLO], max_tokens=4).json()
    assert by_template["response"] == chat["choices"][0]["message"]["content"]
    asked: dict[str, Any] = {"temperature": 0, "stop": ["x"]}
    raw = server.post("/api/generate", prompt="to be", raw=True, stream=False, options={"num_predict": 4, **asked})
    text = server.post("/v1/completions", prompt="to be", max_tokens=4, **asked).json()["choices"][0]["text"]
    assert raw.json()["response"] == text
    lines = lines_of(server, "/api/generate", prompt="to be", raw=True, options={"num_predict": 4, **asked},
                     logprobs=True, top_logprobs=1)
    assert "".join(line["response"] for line in lines) == text and lines[0]["logprobs"][0]["top_logprobs"]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_a_model_is_loaded_by_an_empty_request(server: Running, path: str) -> None:
    assert server.post(path, model="tiny", stream=False).json()["done_reason"] == "load"
    [line] = lines_of(server, path, model="tiny")
    assert (line["done"], line["done_reason"]) == (True, "load")


def test_tools_and_forms(server: Running) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    schema = {"type": "object", "properties": {"a": {"enum": [5]}}, "required": ["a"], "additionalProperties": False}
    body = server.post("/api/chat", messages=HELLO, format=schema, stream=False, options={"num_predict": 30}).json()
    assert json.loads(body["message"]["content"]) == {"a": 5}
    body = server.post("/api/generate", prompt="x", format="json", stream=False, options={"num_predict": 1}).json()
    assert body["response"].startswith("{")
    tools = [{"type": "function", "function": {"name": "add", "parameters": schema}}]
    form = {"type": "object", "required": ["name", "arguments"], "additionalProperties": False, "properties": {
        "name": {"const": "add"}, "arguments": schema}}
    asked: dict[str, Any] = {"messages": HELLO, "tools": tools, "format": form, "options": {"num_predict": 60}}
    calls = server.post("/api/chat", stream=False, **asked).json()["message"]["tool_calls"]
    assert calls[0]["function"]["name"] == "add" and calls[0]["function"]["arguments"] == {"a": 5}
    lines = lines_of(server, "/api/chat", **asked)
    assert [call for line in lines for call in line["message"].get("tool_calls", ())][0]["function"]["name"] == "add"
    again = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {
        "a": 5}}}]}, {"role": "tool", "content": "7", "tool_name": "add"}]
    assert server.post("/api/chat", messages=again, tools=tools, stream=False, options={
        "num_predict": 2}).status_code == 200


@pytest.mark.parametrize(("path", "body"), [
    ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}), ("/api/chat", {"nonsense": 1}),
    ("/api/chat", {"messages": HELLO, "options": {"nonsense": 1}}), ("/api/chat", {"messages": HELLO, "format": "xml"}),
    ("/api/chat", {"messages": HELLO, "options": {"mirostat": 1}}), ("/api/generate", {"prompt": "x", "suffix": "y"}),
    ("/api/chat", {"messages": HELLO, "options": {"num_predict": -3}}), ("/api/generate", {"prompt": 7}),
    ("/api/generate", {"prompt": "x", "context": [1]}), ("/api/chat", {"messages": [7]}),
    ("/api/embed", {"model": "encoder", "input": [7]}), ("/api/embed", {"model": "tiny", "input": "x"})])
def test_what_is_wrong_is_told_in_their_form(server: Running, path: str, body: dict[str, Any]) -> None:
    response = server.post(path, **body)
    assert response.status_code == 400 and {*response.json()} == {"error"} and response.json()["error"]
    missing = server.post(path, **{**body, "model": "nobody"})
    assert missing.status_code == 404 and "nobody" in missing.json()["error"]


def test_models_the_version_and_vectors(server: Running) -> None:
    tags = server.client.get("/api/tags").json()["models"]
    assert [each["name"] for each in tags] == ["tiny", "encoder"] and all(each["size"] > 0 for each in tags)
    assert server.client.get("/api/version").json() == {"version": mo.__version__}
    shown = server.post("/api/show", model="tiny").json()
    assert shown["model_info"]["gpt2.context_length"] == 1024 and "tools" in shown["capabilities"]
    assert server.post("/api/show", name="encoder:latest").json()["capabilities"] == ["embedding"]
    assert {each["name"] for each in server.client.get("/api/ps").json()["models"]} == {"tiny", "encoder"}
    texts = ["the cat", "the mat sat"]
    vectors = [each["embedding"] for each in server.post("/v1/embeddings", model="encoder", input=texts).json()["data"]]
    body = server.post("/api/embed", model="encoder", input=texts, keep_alive="1m").json()
    assert body["embeddings"] == vectors and body["prompt_eval_count"] > 2
    assert server.post("/api/embed", model="encoder", input="the cat").json()["embeddings"] == vectors[:1]
    long = "cat " * 300
    assert len(server.post("/api/embed", model="encoder", input=long).json()["embeddings"]) == 1
    refused = server.post("/api/embed", model="encoder", input=long, truncate=False)
    assert refused.status_code == 400 and "tokens" in refused.json()["error"]
