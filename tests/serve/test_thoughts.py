"""What a model thinks and which tools it calls, told apart from what it says: the engine's texts are written here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Running, serving

import morpho as mo
from morpho.serve.hosting.engines import EngineOptions
from morpho.serve.hosting.registry import Spec

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "to be"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
    "a": {"type": "integer"}}}}}
SPECIALS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model that marks thoughts and calls by special tokens; and one whose template opens the thinking."""
    found = []
    tokenizer = mo.weights.train_bpe("to be or not to be " * 4, 290, specials=SPECIALS)
    mo.nn.seed(0)
    model = mo.models.create("gpt2", vocab_size=tokenizer.vocab_size, n_embd=8, n_layer=1, n_head=1, n_positions=512,
                             eos_token_id=tokenizer.special("<|im_end|>"))
    for name, template in (("marks", mo.weights.chatml()), ("opens", (
            "{% for message in messages %}<|im_start|>{{ message['role'] }} {{ message['content'] }}<|im_end|>"
            "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<|im_start|>assistant <think>\n"))):
        folder = tmp_path_factory.mktemp(name)
        tokenizer.chat_template = template
        mo.models.save(folder, model)
        mo.weights.save_tokenizer(folder, tokenizer)
        found.append(folder)
    return found


@pytest.fixture(scope="module")
def talking(folders: list[Path]) -> Iterator[Running]:
    with serving(Spec("marks", folders[0]), Spec("opens", folders[1]),
                 make_engine=EngineOptions(kv_bytes=1 << 19, max_batch=4, warm=False)) as running:
        yield running


@pytest.fixture
def says(talking: Running, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the model say a text."""
    from morpho.serve.engine.sampler import Sampler

    def say(text: str) -> None:
        with talking.registry.lease("marks") as served:
            assert served is not None
            tokens = [*served.tokenizer.encode(text), served.tokenizer.special("<|im_end|>")]
        places: dict[int, int] = {}

        def choose(self: Any, *others: Any) -> int:
            places[id(self)] = places.get(id(self), -1) + 1
            return tokens[places[id(self)]]

        monkeypatch.setattr(Sampler, "choose", choose)
    return say


def whole_and_streamed(talking: Running, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message, whole and added up from a stream."""
    whole = talking.post(CHAT, messages=HELLO, **body).json()["choices"][0]
    added: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": [], "chunks": 0}
    for chunk in talking.chunks(CHAT, messages=HELLO, **body):
        delta = chunk["choices"][0]["delta"]
        added["content"] += delta.get("content") or ""
        added["reasoning_content"] += delta.get("reasoning_content") or ""
        added["chunks"] += bool(delta.get("reasoning_content"))
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(added["calls"])
                added["calls"].append([call["function"]["name"], ""])
            added["calls"][call["index"]][1] += call["function"]["arguments"]
        added["finish"] = chunk["choices"][0]["finish_reason"]
    assert added["finish"] == whole["finish_reason"]
    return whole["message"], added


@pytest.mark.parametrize(("model", "text"), [("marks", "<think>\nto be or not?\n</think>\n\nnot to be"),
                                             ("opens", "to be or not?</think>not to be")])
@pytest.mark.parametrize("tools", [[], [ADD]])
def test_thoughts_are_no_part_of_the_answer(talking: Running, says: Any, model: str, text: str, tools: Any) -> None:
    says(text)
    whole, streamed = whole_and_streamed(talking, model=model, tools=tools)
    assert (whole["reasoning_content"], whole["content"]) == ("to be or not?", "not to be")
    assert (streamed["reasoning_content"], streamed["content"]) == ("to be or not?", "not to be")
    assert streamed["chunks"] > 2


@pytest.mark.parametrize("text", ["to <think> be", "to be"])
def test_what_is_said_is_no_thought(talking: Running, says: Any, text: str) -> None:
    says(text)
    whole, streamed = whole_and_streamed(talking, model="marks")
    assert whole["content"] == streamed["content"] == text and "reasoning_content" not in whole


def test_calls_are_made_after_the_thinking_only(talking: Running, says: Any) -> None:
    """And their marks may be special tokens, which are no text otherwise."""
    says('<think>[TOOL_CALLS]add[ARGS]{"a": 1}?</think>be[TOOL_CALLS]add[ARGS]{"a": 2}[TOOL_CALLS]add[ARGS]{"a": [3]}')
    whole, streamed = whole_and_streamed(talking, model="marks", tools=[ADD])
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in whole["tool_calls"]]
    assert calls == streamed["calls"] == [["add", '{"a": 2}'], ["add", '{"a": [3]}']]
    assert whole["content"] == streamed["content"] == "be" and "a" in whole["reasoning_content"]
    says('be[TOOL_CALLS]nope[ARGS]{"a": 2}')
    whole, streamed = whole_and_streamed(talking, model="marks", tools=[ADD])
    assert whole["content"] == streamed["content"] == 'be[TOOL_CALLS]nope[ARGS]{"a": 2}' and not streamed["calls"]


def test_a_form_is_no_thought(talking: Running) -> None:
    """Also where the prompt has opened the thinking: the answer is held to the form from its first letter on."""
    pytest.importorskip("llguidance", reason="the extra `serve`")
    form = {"type": "json_schema", "json_schema": {"name": "on", "schema": {"type": "boolean"}}}
    whole, streamed = whole_and_streamed(talking, model="opens", response_format=form, seed=1)
    assert whole["content"] == streamed["content"] in ("true", "false")
    whole, streamed = whole_and_streamed(talking, model="opens", tools=[ADD], tool_choice="required", seed=1,
                                         max_tokens=60)
    assert streamed["calls"][0][0] == "add" and "reasoning_content" not in whole


def test_responses_have_an_item_for_thoughts(talking: Running, says: Any) -> None:
    openai = pytest.importorskip("openai", reason="the extra `test`")
    client = openai.OpenAI(base_url=f"{talking.url}/v1", api_key="unused", max_retries=0)
    says('<think>to be?</think>be<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    tool = {"type": "function", **ADD["function"]}
    found = client.responses.create(model="marks", input="to be", tools=[tool])
    assert [item.type for item in found.output] == ["reasoning", "message", "function_call"]
    assert found.output[0].content[0].text == "to be?" and found.output_text == "be"
    events = [*client.responses.create(model="marks", input="to be", tools=[tool], stream=True)]
    assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == "to be?"
    items = [(event.output_index, event.item.type) for event in events if event.type == "response.output_item.done"]
    assert items == [(0, "reasoning"), (1, "message"), (2, "function_call")]
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message", "function_call"]
    assert json.loads(events[-1].response.output[2].arguments) == {"a": 1}
    again = [{"role": "user", "content": "to be"}, *(item.model_dump() for item in found.output)]
    assert client.responses.create(model="marks", input=again, tools=[tool], max_output_tokens=3).output


def test_an_earlier_call_without_arguments(talking: Running) -> None:
    """Clients write them as an empty text."""
    said = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add",
                                                                                           "arguments": ""}}]}
    told = {"role": "tool", "tool_call_id": "1", "content": "3"}
    assert talking.post(CHAT, model="marks", messages=[*HELLO, said, told], max_tokens=2).status_code == 200


def test_other_apis_tell_thoughts_too(talking: Running, says: Any) -> None:
    text = '<think>to be?</think>be<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    says(text)
    tool = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    asked: dict[str, Any] = {"model": "marks", "messages": HELLO, "max_tokens": 90}
    message = talking.post("/v1/messages", **asked, tools=[tool]).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][0]["thinking"] == "to be?" and message["stop_reason"] == "tool_use"
    response = talking.client.post("/v1/messages", json={**asked, "tools": [tool], "stream": True})
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    assert "".join(event["delta"].get("thinking", "") for event in events if "delta" in event) == "to be?"
    starts = [(event["index"], event["content_block"]["type"]) for event in events if "content_block" in event]
    assert starts == [(0, "thinking"), (1, "text"), (2, "tool_use")]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert stops == [0, 1, 2]
    chat = talking.post("/api/chat", model="marks", messages=HELLO, tools=[ADD], stream=False).json()["message"]
    assert (chat["thinking"], chat["content"], len(chat["tool_calls"])) == ("to be?", "be", 1)
    lines = talking.client.post("/api/chat", json={"model": "marks", "messages": HELLO, "tools": [ADD]}).text
    said = [json.loads(line)["message"] for line in lines.splitlines()]
    assert "".join(each.get("thinking", "") for each in said) == "to be?"
    assert sum(len(each.get("tool_calls", ())) for each in said) == 1
