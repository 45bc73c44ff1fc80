"""`/v1/responses` with the `openai` library's own client: whole and streamed, items back and forth, tools, forms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import Running

openai = pytest.importorskip("openai", reason="the client library of the extra `test`")

WEATHER: Any = {"type": "function", "name": "get_weather", "description": "Temperature of a place.", "strict": True,
                "parameters": {"type": "object", "properties": {"latitude": {"type": "integer", "minimum": 0,
                                                                             "maximum": 9}},
                               "required": ["latitude"], "additionalProperties": False}}


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)


def test_it_says_what_the_chat_says(client: Any) -> None:
    """The same tokens as `/v1/chat/completions`, in another form."""
    chat = client.chat.completions.create(model="tiny", max_tokens=8, seed=1, messages=[
        {"role": "developer", "content": "Talk like a pirate."}, {"role": "user", "content": "to be?"}])
    found = client.responses.create(model="tiny", instructions="Talk like a pirate.", input="to be?",
                                    max_output_tokens=8, extra_body={"seed": 1})
    assert found.output_text == chat.choices[0].message.content and found.id.startswith("resp_")
    assert (found.usage.input_tokens, found.usage.output_tokens) == (chat.usage.prompt_tokens,
                                                                     chat.usage.completion_tokens)
    cut = chat.choices[0].finish_reason == "length"
    assert found.status == ("incomplete" if cut else "completed") and found.instructions == "Talk like a pirate."
    assert not cut or found.incomplete_details.reason == "max_output_tokens"


def test_a_stream_builds_the_same_response(client: Any) -> None:
    how = {"model": "tiny", "input": [{"role": "user", "content": [{"type": "input_text", "text": "to be?"}]}],
           "max_output_tokens": 8, "extra_body": {"seed": 1}}
    whole = client.responses.create(**how)
    events = [*client.responses.create(**how, stream=True)]
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == f"response.{whole.status}" and events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.total_tokens == whole.usage.total_tokens
    with client.responses.stream(**how) as stream:  # the library's helper adds the events up itself
        kinds = {event.type for event in stream}
    assert "response.output_text.done" in kinds


def test_a_conversation_is_sent_again(client: Any) -> None:
    first = client.responses.create(model="tiny", input="to be?", max_output_tokens=4)
    items = [{"role": "user", "content": "to be?"}, *(item.model_dump() for item in first.output),
             {"role": "user", "content": "or not?"}]
    second = client.responses.create(model="tiny", input=items, max_output_tokens=4)
    assert second.usage.input_tokens > first.usage.input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_tools(client: Any, stream: bool) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    how = {"model": "tiny", "tools": [WEATHER], "max_output_tokens": 600, "extra_body": {"seed": 5}}
    asked: list[Any] = [{"role": "user", "content": "What's the weather?"}]
    if stream:
        events = [*client.responses.create(input=asked, tool_choice="required", stream=True, **how)]
        assert [event.type for event in events[2:]] == [f"response.{kind}" for kind in (
            "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
            "completed")]
        found = events[-1].response
    else:
        found = client.responses.create(input=asked, tool_choice={"type": "function", "name": "get_weather"}, **how)
    call = found.output[0]
    assert call.type == "function_call" and 0 <= json.loads(call.arguments)["latitude"] <= 9
    again = client.responses.create(input=[*asked, call.model_dump(), {
        "type": "function_call_output", "call_id": call.call_id, "output": "14"}], **{**how, "max_output_tokens": 5})
    assert again.usage.input_tokens > found.usage.input_tokens


def test_forms_and_logprobs(client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    form: Any = {"format": {"type": "json_schema", "name": "step", "strict": True, "schema": {
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": False}}}
    found = client.responses.create(model="tiny", input="to be?", text=form, max_output_tokens=60, top_logprobs=2,
                                    include=["message.output_text.logprobs"])
    assert isinstance(json.loads(found.output_text)["on"], bool)
    assert len(found.output[0].content[0].logprobs[0].top_logprobs) == 2


@pytest.mark.parametrize(("body", "param"), [
    ({}, "input"),
    ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ({"input": [{"type": "input_image"}]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0]"),
    ({"input": [{"role": "pope", "content": "x"}]}, "input[0].role"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "messages": []}, "messages"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"input": "x", "include": ["file_search_call.results"]}, "include"),
    ({"input": "x", "temperature": 9}, "temperature"),
    ({"input": "x", "wings": 2}, "wings"),
    ({"input": "x", "background": True}, "background"),
    ({"input": "x", "metadata": 5}, "metadata"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata"),
    ({"input": "x", "metadata": {str(number): "" for number in range(17)}}, "metadata"),
    ({"input": "x", "metadata": {"k" * 65: ""}}, "metadata"),
    ({"input": "x", "user": 7}, "user"),
    ({"input": "x", "store": "yes"}, "store"),
    ({"input": "x", "max_tool_calls": "two"}, "max_tool_calls"),
])
def test_errors_name_the_field(server: Running, body: dict[str, Any], param: str) -> None:
    answer = server.post("/v1/responses", model="tiny", **body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
