"""`/v1/messages` as Anthropic's clients use it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import Running

MESSAGES, COUNT, CHAT = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "to be?"}]
ADD = {"name": "add", "description": "Adds.", "input_schema": {
    "type": "object", "additionalProperties": False, "required": ["a"], "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 9}}}}


def events_of(server: Running, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream, each under its name."""
    with server.client.stream("POST", MESSAGES, json={**body, "stream": True}) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    found = []
    for name, data in zip(lines[::2], lines[1::2], strict=True):
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_the_text_of_the_same_chat_whole_and_streamed(server: Running) -> None:
    asked: dict[str, Any] = {"max_tokens": 6, "system": [{"type": "text", "text": "Be brief.", "cache_control": {
        "type": "ephemeral"}}], "metadata": {"user_id": "me"}}
    chat = server.post(CHAT, messages=[{"role": "system", "content": "Be brief."}, *HELLO], max_tokens=6).json()
    body = server.post(MESSAGES, messages=HELLO, **asked).json()
    said = chat["choices"][0]["message"]["content"]
    assert (body["type"], body["role"], body["model"]) == ("message", "assistant", "tiny")
    assert body["content"] == ([{"type": "text", "text": said}] if said else [])
    assert (body["stop_reason"], body["stop_sequence"]) == ({"length": "max_tokens", "stop": "end_turn"}[
        chat["choices"][0]["finish_reason"]], None)
    usage = body["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == chat["usage"]["completion_tokens"]
    events = events_of(server, messages=[{"role": "user", "content": [{"type": "text", "text": "to be?"}]}], **asked)
    assert [event["type"] for event in events if event["type"] != "content_block_delta"] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta") == said
    assert events[-2]["delta"]["stop_reason"] == body["stop_reason"] and events[0]["message"]["usage"]["input_tokens"]
    counted = server.post(COUNT, messages=HELLO, system="Be brief.").json()
    assert counted == {"input_tokens": chat["usage"]["prompt_tokens"]}


def test_stop_sequences_and_an_answer_that_is_begun(server: Running) -> None:
    ids = {str(server.post("/tokenize", prompt=letter).json()["tokens"][0]): 100 for letter in "x"}
    asked: dict[str, Any] = {"max_tokens": 9, "logit_bias": ids, "temperature": 0}
    body = server.post(MESSAGES, messages=HELLO, stop_sequences=["q", "xxx"], **asked).json()
    assert (body["stop_reason"], body["stop_sequence"], body["content"]) == ("stop_sequence", "xxx", [])
    events = events_of(server, messages=HELLO, stop_sequences=["xxx"], **asked)
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "xxx"}
    begun = [*HELLO, {"role": "assistant", "content": "that is"}]
    longer = server.post(COUNT, messages=begun).json()["input_tokens"]
    chat = server.post("/tokenize", messages=begun, continue_final_message=True).json()
    assert longer == chat["count"] and server.post(MESSAGES, messages=begun, **asked).json()["content"]


def test_a_tool_is_called_and_its_result_comes_back(server: Running) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    asked: dict[str, Any] = {"tools": [ADD], "max_tokens": 200, "seed": 1}
    body = server.post(MESSAGES, messages=HELLO, tool_choice={"type": "tool", "name": "add"}, **asked).json()
    [block] = body["content"]
    assert body["stop_reason"] == "tool_use" and (block["type"], block["name"]) == ("tool_use", "add")
    assert 0 <= block["input"]["a"] <= 9 and block["id"].startswith("toolu_")
    events = events_of(server, messages=HELLO, tool_choice={"type": "any"}, **asked)
    start = next(event for event in events if event["type"] == "content_block_start")
    assert start["content_block"]["input"] == {} and start["content_block"]["name"] == "add"
    assert json.loads("".join(event["delta"]["partial_json"] for event in events
                              if event["type"] == "content_block_delta"))["a"] in range(10)
    again = [*HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, block]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block["id"], "content": [
                 {"type": "text", "text": "14"}]}, {"type": "text", "text": "and?"}]}]
    assert server.post(MESSAGES, messages=again, tools=[ADD], max_tokens=4).json()["usage"]["output_tokens"] <= 4


def test_a_form_of_the_text(server: Running) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    form = {"format": {"type": "json_schema", "schema": {"enum": [5]}}}
    body = server.post(MESSAGES, messages=HELLO, max_tokens=20, output_config=form).json()
    assert body["content"] == [{"type": "text", "text": "5"}]


@pytest.mark.parametrize(("more", "said"), [
    ({"max_tokens": None}, "'max_tokens' is missing"), ({"max_tokens": 0}, "'max_tokens'"),
    ({"messages": []}, "'messages'"), ({"messages": [7]}, "messages[0]"), ({"nonsense": 1}, "'nonsense'"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "only text"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "role"), ({"messages": [{"role": "user"}]}, "content"),
    ({"stop_sequences": [""]}, "'stop_sequences'"), ({"tools": [{"type": "web_search", "name": "x"}]}, "tools"),
    ({"tool_choice": {"type": "tool", "name": "no"}, "tools": [ADD]}, "tool_choice"), ({"n": 2}, "'n'"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"system": 7}, "system"), ({"thinking": {"type": "x"}}, "type"),
    ({"stream": "yes"}, "stream"), ({"messages": "x"}, "messages"), ({"output_config": {"format": {}}}, "schema")])
def test_what_is_wrong_is_told_in_their_form(server: Running, more: dict[str, Any], said: str) -> None:
    response = server.post(MESSAGES, **{"messages": HELLO, "max_tokens": 4, **more})
    body = response.json()
    assert response.status_code == 400 and {*body} == {"type", "error"}, body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert said in body["error"]["message"], body


def test_models_that_are_not_there_and_those_that_make_vectors(server: Running) -> None:
    asked: dict[str, Any] = {"messages": HELLO, "max_tokens": 2}
    missing = server.post(MESSAGES, model="claude", **asked)
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert server.post(MESSAGES, model="encoder", **asked).json()["type"] == "error"
    assert server.client.get(MESSAGES).json()["error"]["type"] == "invalid_request_error"
