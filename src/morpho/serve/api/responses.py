"""`/v1/responses`, OpenAI's newer form of a chat: its body as that of a chat, and the answer as items.

Nothing is kept between calls: who goes on with a conversation sends its items again, which costs nothing but their
bytes, since the engine has the keys and values of a prefix it has seen.
"""

from __future__ import annotations

from typing import Any

from morpho.serve.api.answers import Job
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.generate import chat_job
from morpho.serve.api.limits import Limits
from morpho.serve.api.response_answer import ResponseAnswer
from morpho.serve.hosting.served import Served

LOGPROBS = "message.output_text.logprobs"
NAMES = {"messages": "input", "max_completion_tokens": "max_output_tokens", "response_format": "text.format"}
OF_CHATS = ("messages", "n", "logprobs", "prompt_logprobs", "response_format", "max_tokens", "max_completion_tokens",
            "reasoning_effort")
TEXTS = ("input_text", "output_text", "text")


def response_job(fields: Fields, served: Served, limits: Limits, request_id: str) -> Job:
    """A response: the chat that its body describes. Errors name the fields of this body."""
    fields.only("previous_response_id", why="responses are not kept here; send what was said before in 'input'")
    fields.only("conversation", why="conversations are not kept here; send what was said before in 'input'")
    fields.only("prompt", why="prompts are not kept here; send 'instructions' and 'input'")
    fields.only("background", False, why="a response lives as long as its connection")
    fields.only("truncation", "disabled", why="nothing is left out of a prompt")
    fields.whole("max_tool_calls", None)
    fields.object("stream_options")
    for name in OF_CHATS:
        fields.only(name, why="it is a field of /v1/chat/completions")
    told = _told(fields)
    chat = _chat(fields, limits)
    try:
        job = chat_job(Fields(chat), served, limits, request_id)
    except ApiError as error:
        raise _renamed(error) from None
    params = job.requests[0].params
    answer = ResponseAnswer(served.name, served.tokenizer, params.logprobs is not None, {
        **told, "temperature": params.temperature, "top_p": params.top_p, "max_output_tokens": chat.get(
            "max_completion_tokens")})
    answer.read_as(job.answer)
    return Job(job.requests, answer, job.stream)


def _told(fields: Fields) -> dict[str, Any]:
    """Fields of the request that the response repeats; taken out by `_chat`."""
    left = fields.left()
    return {"instructions": left.get("instructions"), "tools": left.get("tools", []),
            "tool_choice": left.get("tool_choice", "auto"), "text": left.get("text", {"format": {"type": "text"}}),
            "parallel_tool_calls": left.get("parallel_tool_calls", True), "metadata": left.get("metadata", {}),
            "reasoning": left.get("reasoning", {"effort": None, "summary": None}), "user": left.get("user")}


def _chat(fields: Fields, limits: Limits) -> dict[str, Any]:
    """The body of the same chat."""
    instructions, given = fields.text("instructions"), fields.take("input")
    if given is None:
        raise fields.wrong("input", "is missing")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise fields.wrong("input", "is neither a text nor a list of items")
    if len(given) > limits.messages:
        raise fields.wrong("input", f"has more than {limits.messages} items")
    messages = [] if instructions is None else [{"role": "system", "content": instructions}]
    for place, item in enumerate(given):
        _add(messages, item, f"input[{place}]")
    found: dict[str, Any] = {"messages": messages, "tools": _tools(fields, limits), "tool_choice": _choice(fields),
                             "response_format": _format(fields),
                             "max_completion_tokens": fields.take("max_output_tokens")}
    reasoning = fields.object("reasoning")
    if reasoning is not None:
        found["reasoning_effort"] = reasoning.text("effort")
        reasoning.irrelevant("summary", "generate_summary")
        reasoning.finish()
    wanted = fields.list("include", most=16)
    if unknown := [each for each in wanted if each not in (LOGPROBS, "reasoning.encrypted_content")]:
        raise fields.wrong("include", f"asks for {str(unknown[0])[:80]!r}, which is not here")
    most = fields.take("top_logprobs")
    if LOGPROBS in wanted or most:
        found.update(logprobs=True, top_logprobs=most or 0)
    return {**fields.left(), **{name: value for name, value in found.items() if value is not None}}


def _add(messages: list[dict[str, Any]], item: Any, place: str) -> None:
    """One item as a message, or as a part of the last one."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        content = item.get("content")
        if isinstance(content, list):
            content = [_part(part, place) for part in content]
        messages.append({"role": item.get("role"), "content": content})
    elif kind == "function_call":
        call = {"id": item.get("call_id"), "type": "function",
                "function": {"name": item.get("name"), "arguments": item.get("arguments", "{}")}}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = item.get("output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": [
            _part(part, place) for part in output] if isinstance(output, list) else output})
    elif kind != "reasoning":  # what a model thought is not said again
        raise ApiError(400, f"'{place}' is of type {str(kind)[:40]!r}, and messages and calls of functions are taken",
                       place)


def _part(part: Any, place: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "refusal":
        return {"type": "refusal", "refusal": part.get("refusal")}
    if kind not in TEXTS:
        raise ApiError(400, f"'{place}' has a part of type {str(kind)[:40]!r}, and only text is taken", place)
    return {"type": "text", "text": part.get("text")}


def _tools(fields: Fields, limits: Limits) -> list[Any]:
    found = []
    for place, tool in enumerate(fields.list("tools", most=limits.tools)):
        if not isinstance(tool, dict) or tool.get("type") != "function":
            kind = tool.get("type") if isinstance(tool, dict) else tool
            raise ApiError(400, f"'tools[{place}]' is of type {str(kind)[:40]!r}, and only functions are there",
                           f"tools[{place}]")
        found.append({"type": "function", "function": {name: value for name, value in tool.items() if name != "type"
                                                       and value is not None}})
    return found


def _choice(fields: Fields) -> Any:
    choice = fields.take("tool_choice")
    if isinstance(choice, dict) and choice.get("type") != "allowed_tools":
        return {"type": choice.get("type"), "function": {"name": choice.get("name")}}
    return choice


def _format(fields: Fields) -> Any:
    text = fields.object("text")
    if text is None:
        return None
    form = text.take("format")
    text.irrelevant("verbosity")
    text.finish()
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}
    return form


def _renamed(error: ApiError) -> ApiError:
    for chat, name in NAMES.items():
        if error.param is not None and error.param.split("[")[0].split(".")[0] == chat:
            return ApiError(error.status, error.message.replace(f"'{chat}", f"'{name}"),
                            error.param.replace(chat, name, 1), error.code, error.retry_after_s)
    return error
