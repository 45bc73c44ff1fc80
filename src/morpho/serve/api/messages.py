"""Messages and tools as OpenAI's clients write them, as chat templates take them."""

from __future__ import annotations

import json
from typing import Any

from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.limits import Limits
from morpho.serve.engine.request import Grammar

ROLES = ("system", "developer", "user", "assistant", "tool")

# What a model is told whose own template does not know tools; the notation is Hermes', which calls_in reads.
TOOL_PROMPT = """You can call these functions, which are described by JSON schemas:
<tools>
{tools}
</tools>
To call one, answer with a JSON object inside <tool_call></tool_call>, and nothing else:
<tool_call>{{"name": "<function>", "arguments": {{<arguments>}}}}</tool_call>"""


def messages_of(fields: Fields, limits: Limits) -> list[dict[str, Any]]:
    """The messages of a chat, checked one by one."""
    given = fields.list("messages", most=limits.messages)
    if not given:
        raise fields.wrong("messages", "is missing or empty")
    return [_message(each, f"messages[{place}]") for place, each in enumerate(given)]


def _message(given: Any, place: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ApiError(400, f"'{place}' is not an object", place)
    fields = Fields(given, place)
    role = fields.one_of("role", None, ROLES)
    if role is None:
        raise fields.wrong("role", "is missing")
    found: dict[str, Any] = {"role": "system" if role == "developer" else role, "content": _content(fields)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (text := fields.text(name)) is not None:
            found[name] = text
    calls = fields.list("tool_calls", most=limits_of_calls) if role == "assistant" else []
    if calls:
        found["tool_calls"] = [_tool_call(each, f"{place}.tool_calls[{number}]") for number, each in enumerate(calls)]
    if found["content"] is None:
        if role != "assistant" or not calls:
            raise fields.wrong("content", "is missing")
        found["content"] = ""  # templates join it to others
    fields.irrelevant("refusal", "annotations")
    fields.only("audio", why="there is no sound here")
    fields.only("function_call", why="use tool_calls")
    fields.finish()
    return found


limits_of_calls = 128


def _content(fields: Fields) -> str | None:
    content = fields.take("content")
    if content is None or isinstance(content, str):
        return _valid(fields, content)
    if not isinstance(content, list):
        raise fields.wrong("content", "is neither a string nor a list of parts")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text" if kind == "text" else "refusal") if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise fields.wrong("content", f"has a part of type {str(kind)[:40]!r}, and only text is taken")
        texts.append(text)
    return _valid(fields, "".join(texts))


def _valid(fields: Fields, text: str | None) -> str | None:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise fields.wrong("content", "holds half of a surrogate pair, which is no text") from None
    return text


def _tool_call(given: Any, place: str) -> dict[str, Any]:
    """A call made before. Templates take its arguments as an object, clients send them as JSON in a string."""
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(400, f"'{place}' is not a call of a function", place)
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}  # many clients write "" for none
        except (ValueError, RecursionError):
            raise ApiError(400, f"'{place}.function.arguments' is not JSON", place) from None
    return {"id": str(given.get("id", "")), "type": "function",
            "function": {"name": function["name"], "arguments": arguments}}


# -- tools -------------------------------------------------------------------------------------------------------------
def tools_of(fields: Fields, limits: Limits) -> tuple[list[dict[str, Any]], Grammar | None]:
    """The tools that a model may call, and the form of its answer where it must call one."""
    fields.only("functions", [], why="use tools")
    fields.only("function_call", "none", "auto", why="use tool_choice")
    tools = [_tool(each, f"tools[{place}]", limits) for place, each in enumerate(fields.list("tools",
                                                                                          most=limits.tools))]
    names = [tool["function"]["name"] for tool in tools]
    if len({*names}) < len(names):
        raise ApiError(400, "two tools have the same name", "tools")
    choice = fields.take("tool_choice", "auto")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools, choice = _allowed(tools, choice)
    if isinstance(choice, dict):
        function = choice.get("function")
        wanted = function.get("name") if isinstance(function, dict) else None
        if choice.get("type") != "function" or wanted not in names:
            raise ApiError(400, "'tool_choice' names no function of 'tools'", "tool_choice")
        return tools, _forced([tool for tool in tools if tool["function"]["name"] == wanted], limits)
    if choice not in ("none", "auto", "required"):
        raise ApiError(400, "'tool_choice' is none of 'none', 'auto', 'required' and a function", "tool_choice")
    if choice == "required" and not tools:
        raise ApiError(400, "'tool_choice' is 'required', and there are no 'tools'", "tool_choice")
    return ([] if choice == "none" else tools), (_forced(tools, limits) if choice == "required" else None)


def _allowed(tools: list[dict[str, Any]], choice: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The tools that are left of all, and whether one must be called: the model sees no others."""
    fields = Fields(choice, "tool_choice")
    fields.take("type")
    inner = fields.object("allowed_tools") or fields  # /v1/responses has no object in between
    mode = inner.one_of("mode", "auto", ("auto", "required")) or "auto"
    given = inner.list("tools", most=len(tools) + 1)
    names = [(each.get("function") or each).get("name") if isinstance(each, dict) else None for each in given]
    known = {tool["function"]["name"]: tool for tool in tools}
    if not names or any(not isinstance(name, str) or name not in known for name in names):
        raise inner.wrong("tools", "does not list functions of 'tools'")
    return [tool for name, tool in known.items() if name in names], mode


def _tool(given: Any, place: str, limits: Limits) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise ApiError(400, f"'{place}' is not a function with a name", place)
    if len(function["name"]) > 64 or not function["name"].replace("-", "_").replace(".", "_").isidentifier():
        raise ApiError(400, f"'{place}.function.name' is not a name of at most 64 letters, digits, - and _", place)
    function = {name: value for name, value in function.items() if value is not None}
    if not isinstance(function.get("parameters", {}), dict):
        raise ApiError(400, f"'{place}.function.parameters' is not a JSON schema", place)
    if len(json.dumps(given)) > limits.schema_bytes:
        raise ApiError(400, f"'{place}' has more than {limits.schema_bytes} bytes", place)
    return {"type": "function", "function": function}


def _forced(tools: list[dict[str, Any]], limits: Limits) -> Grammar:
    """Any call of one of the tools, as JSON."""
    forms = [{"type": "object", "additionalProperties": False, "required": ["name", "arguments"],
              "properties": {"name": {"const": tool["function"]["name"]},
                             "arguments": tool["function"].get("parameters") or {"type": "object"}}}
             for tool in tools]
    text = json.dumps(forms[0] if len(forms) == 1 else {"anyOf": forms})
    if len(text) > limits.schema_bytes:
        raise ApiError(400, f"'tools' have more than {limits.schema_bytes} bytes of schemas together", "tools")
    return Grammar("json_schema", text)


def with_tool_prompt(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chat with the tools described in the message of the system: for templates that do not know tools."""
    told = TOOL_PROMPT.format(tools="\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools))
    plain = [_as_text(message) for message in messages]
    if plain[0]["role"] == "system":
        return [{**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    """A call, and what came of it, as text: such templates show nothing else."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>{message['content']}</tool_response>"}
    calls = "".join(f"<tool_call>{json.dumps(call['function'], ensure_ascii=False)}</tool_call>"
                    for call in message.get("tool_calls", ()))
    return {"role": message["role"], "content": message["content"] + calls}
