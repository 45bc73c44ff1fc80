"""The `openai` library's own examples (its README and guides), with this server's address."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from serving import Running

openai = pytest.importorskip("openai", reason="the client library of the extra `test`")


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)


MESSAGES: Any = [{"role": "developer", "content": "Talk like a pirate."}, {"role": "user", "content": "to be?"}]


def test_chat(client: Any) -> None:
    completion = client.chat.completions.create(model="tiny", messages=MESSAGES, max_completion_tokens=8, seed=1)
    assert isinstance(completion.choices[0].message.content, str)
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_streaming(client: Any) -> None:
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, seed=1)
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, seed=1, stream=True,
                                            stream_options={"include_usage": True})
    events = [*stream]
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content and events[-1].usage.completion_tokens \
        == whole.usage.completion_tokens


def test_stream_helper(client: Any, server: Running) -> None:
    """`chat.completions.stream`, which adds chunks up itself, and wants an end that is not the limit's."""
    with server.registry.lease("tiny") as served:
        assert served is not None
        end = {str(served.tokenizer.special("<|im_end|>")): 8}
    with client.chat.completions.stream(model="tiny", messages=MESSAGES, logit_bias=end, seed=1) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "chunk" in kinds and final.choices[0].finish_reason == "stop"


def test_async(server: Running) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="unused") as client:
            stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=6, stream=True)
            return [chunk.choices[0].finish_reason async for chunk in stream]

    assert asyncio.run(ask())[-1] in ("stop", "length")


def test_completions_and_logprobs(client: Any) -> None:
    found = client.completions.create(model="tiny", prompt=["to be", "or"], max_tokens=4, logprobs=2, temperature=0)
    assert [choice.index for choice in found.choices] == [0, 1]
    assert len(found.choices[0].logprobs.tokens) == found.usage.completion_tokens - len(
        found.choices[1].logprobs.tokens)


def test_tools(client: Any) -> None:
    """The guide's weather: the model calls, the program answers, the model goes on."""
    pytest.importorskip("llguidance", reason="the extra `serve`")
    tools: Any = [{"type": "function", "function": {
        "name": "get_weather", "description": "Get current temperature for provided coordinates in celsius.",
        "parameters": {"type": "object", "properties": {"latitude": {"type": "integer", "minimum": 0, "maximum": 9}},
                       "required": ["latitude"], "additionalProperties": False}, "strict": True}}]
    messages: list[Any] = [{"role": "user", "content": "What's the weather like in Paris today?"}]
    completion = client.chat.completions.create(model="tiny", messages=messages, tools=tools, tool_choice="required",
                                                max_tokens=600, seed=5)
    message = completion.choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "get_weather" and 0 <= json.loads(call.function.arguments)["latitude"] <= 9
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "14"}]
    again = client.chat.completions.create(model="tiny", messages=messages, tools=tools, max_tokens=5)
    assert again.usage.prompt_tokens > completion.usage.prompt_tokens


def test_structured_outputs_with_pydantic(client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra `serve`")
    pydantic = pytest.importorskip("pydantic")

    class Step(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        on: bool
        kind: str = pydantic.Field(pattern="^[ab]{1,3}$")

    completion = client.chat.completions.parse(model="tiny", messages=MESSAGES, response_format=Step, max_tokens=600,
                                               seed=4)
    assert isinstance(completion.choices[0].message.parsed, Step)


def test_embeddings(client: Any) -> None:
    """The client asks for base64 by itself."""
    found = client.embeddings.create(model="encoder", input=["the cat", "the mat"])
    assert len(found.data) == 2 and abs(sum(x * x for x in found.data[0].embedding) - 1) < 1e-4


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "encoder"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-99", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="tiny", messages=MESSAGES, temperature=9)
    assert wrong.value.param == "temperature"


def test_answers_have_every_field_of_the_library_s_types(server: Running) -> None:
    """The client does not look whether what it reads is there; pydantic does."""
    from openai.types import Completion
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    for kind, path, body in ((ChatCompletion, "chat/completions", {"messages": MESSAGES, "logprobs": True}),
                             (Completion, "completions", {"prompt": "to be", "logprobs": 2}),
                             (Response, "responses", {"input": "to be"})):
        kind.model_validate(server.post(f"/v1/{path}", model="tiny", **body).json())
