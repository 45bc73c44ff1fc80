"""Fields, tools and their calls, without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields, parsed
from morpho.serve.api.limits import Limits
from morpho.serve.api.messages import messages_of, tools_of, with_tool_prompt
from morpho.serve.api.sampling import _biases, grammar_of
from morpho.serve.api.tools import ToolText, calls_in

NAMES = {"add", "get_weather"}
ADD = {"name": "add", "arguments": {"a": 1, "b": "x"}}


@pytest.mark.parametrize("text", [
    f"<tool_call>{json.dumps(ADD)}</tool_call>", f"<tool_call>\n{json.dumps([ADD])}\n</tool_call>",
    f"<tool_call>{json.dumps(ADD)}", json.dumps(ADD), json.dumps([ADD]), f"  {json.dumps(ADD)}\n",
    json.dumps({"name": "add", "parameters": ADD["arguments"]}), f"[TOOL_CALLS]{json.dumps([ADD])}",
    f"<|python_tag|>{json.dumps(ADD)}", '<function=add>{"a": 1, "b": "x"}</function>', '[add(a=1, b="x")]',
    json.dumps({"type": "function", "function": ADD}), json.dumps({"name": "add", "arguments": json.dumps({
        "a": 1, "b": "x"})}),
])
def test_notations_of_calls(text: str) -> None:
    said, calls = calls_in(text, NAMES)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("add", ADD["arguments"])] and not said


@pytest.mark.parametrize(("text", "said", "count"), [
    (f"Let me see. <tool_call>{json.dumps(ADD)}</tool_call><tool_call>{json.dumps(ADD)}</tool_call>", "Let me see.", 2),
    (f"{json.dumps(ADD)}; {json.dumps(ADD)}", "", 2), ("[add(a=1), get_weather(city='Paris')]", "", 2),
    ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}', 0),
    ("[1, 2, 3]", "[1, 2, 3]", 0), ("{not json", "{not json", 0), ("[add(open('x'))]", "[add(open('x'))]", 0),
    ("[add(**x)]", "[add(**x)]", 0), ("[__import__('os')]", "[__import__('os')]", 0), ("plain", "plain", 0),
    ("<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", 0), ("[" * 5000, "[" * 5000, 0),
])
def test_calls_and_what_is_none(text: str, said: str, count: int) -> None:
    found, calls = calls_in(text, NAMES)
    assert (found, len(calls)) == (said, count)


PIECES = st.lists(st.sampled_from(["<tool_call>", "</tool_call>", json.dumps(ADD), "<tool", "_call>", "<", "{", "[",
                                   " ", "\n", "word", "<function=", "add>", "[TOOL_CALLS]", "é", "}"]), max_size=12)


@given(PIECES, st.integers(1, 7))
def test_a_stream_says_what_the_whole_says(pieces: list[str], width: int) -> None:
    """Whatever the pieces: no text is lost or shown twice, and the calls are those of what was held back."""
    text = "".join(pieces)
    stream = ToolText(NAMES)
    shown = "".join(stream.push(text[place:place + width]) for place in range(0, len(text), width))
    rest, calls = stream.finish()
    if calls:
        assert [call.name for call in calls_in(text[len(shown):], NAMES)[1]] == [call.name for call in calls]
        assert text.startswith(shown)
    else:
        assert shown + rest == text


def test_text_that_is_no_call_is_not_held_back() -> None:
    stream = ToolText(NAMES)
    assert stream.push("Hello, <b") == "Hello, <b" and stream.push(" there <") == " there "


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
                           lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                                                                                      max_size=3), max_leaves=8)


@given(st.dictionaries(st.sampled_from(["tools", "tool_choice", "response_format", "structured_outputs", "functions"]),
                       json_values))
def test_any_json_is_taken_or_refused_in_a_sentence(body: dict[str, Any]) -> None:
    for call in (tools_of, grammar_of):
        try:
            call(Fields(dict(body)), Limits())
        except ApiError as error:
            assert error.status == 400 and error.message and "\n" not in error.message[:200]


@given(st.binary(max_size=64))
def test_any_bytes_are_taken_or_refused(raw: bytes) -> None:
    try:
        parsed(raw)
    except ApiError as error:
        assert error.status == 400


def test_tools_are_told_to_models_whose_template_does_not_know_them() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    told = with_tool_prompt([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                             {"role": "assistant", "content": "", "tool_calls": [{"function": ADD}]},
                             {"role": "tool", "content": "3", "tool_call_id": "x"}], tools)
    assert told[0]["content"].startswith("S\n") and '"name": "add"' in told[0]["content"]
    assert told[2]["content"] == f"<tool_call>{json.dumps(ADD)}</tool_call>" and "3" in told[3]["content"]
    assert {message["role"] for message in told} == {"system", "user", "assistant"}


@pytest.mark.parametrize(("raw", "complaint"), [
    ('{"n": 1, "n": 2}', "'n' comes twice"), ('{"a": [{"b": 1, "c": 2, "b": null}]}', "'b' comes twice"),
    ('{"n": ' + "9" * 5000 + "}", "too many digits"), ('{"n": NaN}', "NaN")])
def test_bodies_that_say_two_things_or_none(raw: str, complaint: str) -> None:
    with pytest.raises(ApiError, match=complaint):
        parsed(raw.encode())


@pytest.mark.parametrize("token", ["010", "\u0665", "+5", "5 ", ""])
def test_a_bias_names_its_token_in_one_way(token: str) -> None:
    """Two names of one token would be two biases, of which one is lost."""
    with pytest.raises(ApiError, match="no token"):
        _biases(Fields({"logit_bias": {"10": 1, token: -100}}), Limits(), 50)
    assert _biases(Fields({"logit_bias": {"10": 1, "0": -100}}), Limits(), 50) == {10: 1, 0: -100}


@pytest.mark.parametrize("form", [{}, {"choice": []}, {"choice": "yes"}, {"json_object": False}, {"regex": None}])
def test_a_form_that_asks_for_nothing(form: dict[str, Any]) -> None:
    """Text without any form would be taken for text of a form."""
    with pytest.raises(ApiError, match="structured_outputs"):
        grammar_of(Fields({"structured_outputs": form}), Limits())


# -- what clients write of tools ---------------------------------------------------------------------------------------
TOOLS = [{"type": "function", "function": {"name": name, "parameters": None, "description": None}}
         for name in ("add", "get_weather", "stop")]


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("within", [True, False])
def test_tools_of_which_some_are_allowed(mode: str, within: bool) -> None:
    """As chats and responses write it; no parameters are none."""
    few = {"mode": mode, "tools": [{"type": "function", "function": {"name": "stop"}} if within else {
        "type": "function", "name": "stop"}]}
    choice = {"type": "allowed_tools", **({"allowed_tools": few} if within else few)}
    tools, grammar = tools_of(Fields({"tools": TOOLS, "tool_choice": choice}), Limits())
    assert tools == [{"type": "function", "function": {"name": "stop"}}]
    assert (grammar is not None and '"stop"' in grammar.source) == (mode == "required")


@pytest.mark.parametrize("few", [{"tools": []}, {"tools": [{"type": "function", "function": {"name": "no"}}]}, {},
                                 {"tools": [7]}, {"tools": [{"name": ["add"]}]}, {"mode": "none", "tools": ["add"]}])
def test_allowed_tools_that_are_none(few: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="tool_choice"):
        tools_of(Fields({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": few}}), Limits())


@pytest.mark.parametrize("arguments", ["", "  ", None, "{}", {}])
def test_calls_without_arguments(arguments: Any) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": arguments}}
    [message] = messages_of(Fields({"messages": [{"role": "assistant", "tool_calls": [call]}]}), Limits())
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": {}}
