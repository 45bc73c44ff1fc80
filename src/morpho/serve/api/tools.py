"""Calls of tools in what a model says, in the notations that models are trained on:

- `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one object or a list (Hermes, Qwen, SmolLM2);
- `{"name": ..., "parameters": {...}}`, several with `;` between, or a list, perhaps after a mark (Llama 3, Mistral);
- `<function=name>{...}</function>` (Llama 3.1);
- `[name(argument="value"), ...]` (Llama 3.2 and 4, LFM2).

Only names among the request's tools are calls; anything else stays text.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

MARKS = ("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]")
OPENERS = ("{", "[")  # a text that begins so may be calls alone
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w.-]{1,64})>(.*?)(?:</function>|\Z)", re.DOTALL)
MOST_CALLS = 128
MOST_PYTHON = 64 << 10


@dataclass(frozen=True)
class Call:
    """One call: the name of a tool and its arguments as JSON."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def calls_in(text: str, names: Collection[str]) -> tuple[str, list[Call]]:
    """(what is said besides, the calls).

    >>> from morpho.serve.api.tools import calls_in
    >>> said, calls = calls_in('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', {"add"})
    >>> calls[0].name, calls[0].arguments
    ('add', '{"a": 1}')
    """
    tagged = [*_tagged(text, names)]
    if tagged:
        return _FUNCTION.sub("", _TAGGED.sub("", text)).strip(), tagged[:MOST_CALLS]
    plain = text.strip()
    for mark in ("<|python_tag|>", "[TOOL_CALLS]"):
        before, found, after = plain.partition(mark)
        if found and (calls := _bare(after.strip(), names)):
            return before.strip(), calls[:MOST_CALLS]
    calls = _bare(plain, names)
    return ("", calls[:MOST_CALLS]) if calls else (text, [])


def _tagged(text: str, names: Collection[str]) -> Iterator[Call]:
    for found in _TAGGED.finditer(text):
        yield from _bare(found[1].strip(), names)
    for found in _FUNCTION.finditer(text):
        arguments = _json(found[2].strip() or "{}")
        if found[1] in names and isinstance(arguments, dict):
            yield Call(found[1], json.dumps(arguments, ensure_ascii=False))


def _bare(text: str, names: Collection[str]) -> list[Call]:
    """Calls that are all of a text; none where one part of it is no call."""
    if not text.startswith(OPENERS):
        return []
    whole = _json(text)
    parts = whole if isinstance(whole, list) else [whole] if whole is not None else \
        [_json(part) for part in text.split(";")]
    calls = [_call(part, names) for part in parts]
    if parts and None not in calls:
        return calls  # type: ignore[return-value]
    return _pythonic(text, names)


def _call(part: Any, names: Collection[str]) -> Call | None:
    if not isinstance(part, dict):
        return None
    part = part.get("function") if isinstance(part.get("function"), dict) else part
    arguments = part.get("arguments", part.get("parameters", {}))
    arguments = _json(arguments) if isinstance(arguments, str) else arguments
    if part.get("name") not in names or not isinstance(arguments, dict):
        return None
    return Call(part["name"], json.dumps(arguments, ensure_ascii=False))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _pythonic(text: str, names: Collection[str]) -> list[Call]:
    if len(text) > MOST_PYTHON:
        return []
    try:
        body = ast.parse(text, mode="eval").body
        calls = []
        for part in body.elts if isinstance(body, ast.List) else []:
            if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Name) or part.args \
                    or part.func.id not in names or any(word.arg is None for word in part.keywords):
                return []
            values = {word.arg: ast.literal_eval(word.value) for word in part.keywords}
            calls.append(Call(part.func.id, json.dumps(values, ensure_ascii=False)))
        return calls
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []


class ToolText:
    """Text as it is made: what is surely no call goes through at once, and what may be one waits for the end.

    >>> from morpho.serve.api.tools import ToolText
    >>> text = ToolText({"add"})
    >>> text.push("Let me see. <tool"), text.push('_call>{"name": "add"}</tool_call>')
    ('Let me see. ', '')
    >>> rest, calls = text.finish()
    >>> rest, [call.name for call in calls]
    ('', ['add'])
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._held, self._shown, self._waits = frozenset(names), "", False, False

    def push(self, text: str) -> str:
        """What can be shown now."""
        self._held += text
        if self._waits:
            return ""
        begun = self._held.lstrip()
        if not self._shown and (not begun or begun.startswith(OPENERS)):
            self._waits = bool(begun)
            return ""
        places = [place for mark in MARKS if (place := self._held.find(mark)) >= 0]
        if places:
            self._waits, kept = True, len(self._held) - min(places)
        else:
            kept = next((length for length in range(min(len(self._held), max(map(len, MARKS)) - 1), 0, -1)
                         if any(mark.startswith(self._held[-length:]) for mark in MARKS)), 0)
        shown, self._held = self._held[:len(self._held) - kept], self._held[len(self._held) - kept:]
        self._shown = self._shown or bool(shown)
        return shown

    def finish(self) -> tuple[str, list[Call]]:
        """(text that became no call, the calls)."""
        text, self._held = self._held, ""
        return calls_in(text, self._names) if self._waits else (text, [])
