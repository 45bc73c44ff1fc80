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
    '<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n'
    '</tool_call>', '<function=add><parameter=a>1</parameter><parameter=b>x</parameter></function>',
    f'[TOOL_CALLS]add[ARGS]{json.dumps(ADD["arguments"])}', '[TOOL_CALLS]add[CALL_ID]9aF[ARGS]{"a":1,"b":"x"}',
    f'[TOOL_CALLS]add{json.dumps(ADD["arguments"])}', '<|python_tag|>add.call(a=1, b="x")',
    f'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{json.dumps(ADD["arguments"])}<｜tool▁call▁end｜>'
    '<｜tool▁calls▁end｜>', '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n'
    '{"a": 1, "b": "x"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    f"<think>add?</think>\n\n<tool_call>{json.dumps(ADD)}</tool_call>",
    f"<think>add?</think>{json.dumps(ADD)}",
    json.dumps({"type": "function", "function": ADD}), json.dumps({"name": "add", "arguments": json.dumps({
        "a": 1, "b": "x"})}),
])
def test_notations_of_calls(text: str) -> None:
    """Whole, in a stream of pieces, and where their schema says what a value without quotes is."""
    schemas = {"add": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}}
    for streams, width in ((False, len(text)), (True, 1), (True, 5), (True, len(text))):
        reader = ToolText(NAMES, stream=streams, schemas=schemas)
        pieces = [*(reader.push(text[place:place + width]) for place in range(0, len(text), width)), reader.finish()]
        assert [(call.name, json.loads(call.arguments)) for call in reader.calls] == [("add", ADD["arguments"])]
        assert not "".join(piece.text for piece in pieces).strip()
    if "parameter=" not in text:
        said, calls = calls_in(text, NAMES)
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [("add", ADD["arguments"])] and not said


CALL = f"<tool_call>{json.dumps(ADD)}</tool_call>"


@pytest.mark.parametrize(("text", "said", "arguments"), [
    (f'Sure!{CALL}<tool_call>{{"name": "nope", "arguments": {{}}}}</tool_call>',
     'Sure!<tool_call>{"name": "nope", "arguments": {}}</tool_call>', [ADD["arguments"]]),
    (f"Sure!{CALL}<tool_call>{{bad json}}</tool_call>{CALL}", "Sure!<tool_call>{bad json}</tool_call>",
     [ADD["arguments"]] * 2),
    ('{"name": "add", "arguments": {"a": NaN}}', '{"name": "add", "arguments": {"a": NaN}}', []),
    ('{"name": "add", "arguments": {"a": 1e400}}', '{"name": "add", "arguments": {"a": 1e400}}', []),
    ('<tool_call>{"name": "add", "arguments": "{\\"a\\": NaN}"}</tool_call>',
     '<tool_call>{"name": "add", "arguments": "{\\"a\\": NaN}"}</tool_call>', []),
    ('<tool_call>{"name": "add", "arguments": {"a": "</tool_call>}"}}</tool_call>!', "!", [{"a": "</tool_call>}"}]),
    (f"<think>I could say {CALL} but no.</think>No call.", "No call.", []),
    (f"<think>Never ends {CALL}", "", []), ("[add(a=1e999)]", "[add(a=1e999)]", []),
    (f"{CALL}\n{CALL}\n", "", [ADD["arguments"]] * 2), (f" \n{CALL}", "", [ADD["arguments"]]),
    ("<tool_call>", "<tool_call>", []), ("<function=add>{", "<function=add>{", []), (" \n", " \n", []),
    ('[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{"a": 2}', "", [{"a": 1}, {"a": 2}]),
    ('<tool_call>{"name": ["add"], "arguments": {}}</tool_call>',
     '<tool_call>{"name": ["add"], "arguments": {}}</tool_call>', []),
])
def test_nothing_that_is_said_is_lost(text: str, said: str, arguments: list[Any]) -> None:
    found, calls = calls_in(text, NAMES)
    assert (found, [json.loads(call.arguments) for call in calls]) == (said, arguments)


def test_arguments_are_told_as_they_come() -> None:
    reader = ToolText(NAMES, stream=True)
    pieces = [reader.push(each) for each in ('<tool_call>{"name": "add", "argu', 'ments": {"a": [1', '2, "x\\', 'n',
                                             'y', '"]}}</tool', "_call>ok")]
    assert [[call.name for call in piece.calls] for piece in pieces][1] == ["add"]
    assert [[text for _, text in piece.arguments] for piece in pieces] == [
        [], ['{"a": ['], ['12, "x'], ["\\n"], ["y"], ['"]}'], []]
    assert pieces[-1].text + reader.finish().text == "ok"
    broken = ToolText(NAMES, stream=True)
    piece = broken.push('<tool_call>{"name": "add", "arguments": {"a": 1, "b": NaN}}</tool_call>')
    rest = broken.finish()
    assert [call.arguments for call in broken.calls] == ['{"a": 1, "b":'] and "NaN" in piece.text + rest.text


def test_thoughts_are_told_apart() -> None:
    """As they come, without the blanks around them; also where the prompt has begun them."""
    for opened, text in ((False, "<think>\nHm, a < b.\n\nSo.\n</think>\n\nYes."),
                         (True, "Hm, a < b.\n\nSo.\n</think>Yes."), (False, "[THINK]Hm, a < b.\n\nSo.[/THINK] Yes.")):
        for names in ((), NAMES):
            for width in (1, 3, 100):
                reader = ToolText(names, thinks=opened)
                pieces = [*(reader.push(text[at:at + width]) for at in range(0, len(text), width)), reader.finish()]
                assert "".join(piece.reasoning for piece in pieces) == "Hm, a < b.\n\nSo."
                assert "".join(piece.text for piece in pieces) == "Yes."
                assert width > 1 or sum(bool(piece.reasoning) for piece in pieces) > 8  # not all at the end


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


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


PIECES = st.lists(st.sampled_from(["<tool_call>", "</tool_call>", json.dumps(ADD), "<tool", "_call>", "<", "{", "[",
                                   " ", "\n", "word", "<function=", "add>", "[TOOL_CALLS]", "é", "}"]), max_size=12)


@given(PIECES, st.integers(1, 7))
def test_a_stream_says_what_the_whole_says(pieces: list[str], width: int) -> None:
    """Whatever the pieces: no text is lost or shown twice, and the calls are those of what was held back."""
    text = "".join(pieces)
    said, calls = calls_in(text, NAMES)
    assert calls or said == text
    for streams in (False, True):
        stream = ToolText(NAMES, stream=streams)
        pieces = [*(stream.push(text[place:place + width]) for place in range(0, len(text), width)), stream.finish()]
        shown, begun = "".join(piece.text for piece in pieces), [call for piece in pieces for call in piece.calls]
        arguments = [call.arguments for call in begun]
        for number, more in (each for piece in pieces for each in piece.arguments):
            arguments[number] += more
        assert [call.id for call in begun] == [call.id for call in stream.calls]
        assert arguments == [call.arguments for call in stream.calls]
        if not streams or all(_is_json(each) for each in arguments):
            assert [call.name for call in calls] == [call.name for call in begun]
            assert [*map(json.loads, arguments)] == [json.loads(call.arguments) for call in calls]
            assert (shown.strip() if calls else shown) == said


def test_text_that_is_no_call_is_not_held_back() -> None:
    stream = ToolText(NAMES)
    assert stream.push("Hello, <b").text == "Hello, <b" and stream.push(" there <").text == " there "
    stream = ToolText(NAMES)
    assert stream.push('{"total').text == "" and stream.push('": 3, ').text == '{"total": 3, '  # no call begins so


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
