"""Thoughts, text and calls of tools in what a model says, told apart as it is said.

Calls are read in the notations that models are trained on:

- `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one object or a list (Hermes, Qwen, SmolLM);
- `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>` (Qwen3-Coder);
- `<function=name>{...}</function>` (Llama 3.1);
- `{"name": ..., "parameters": {...}}`, several with `;` between, or a list, perhaps after `<|python_tag|>` (Llama 3);
- `[TOOL_CALLS][{...}]` and `[TOOL_CALLS]name[ARGS]{...}` (Mistral);
- `<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`, and the older form with a block of JSON (DeepSeek);
- `[name(argument="value"), ...]` (Llama 3.2 and 4, LFM2).

Only names among the request's tools are calls, and only arguments that are JSON; anything else stays text. What stands
between `<think>` and `</think>` at the beginning is thinking, and no call.
"""

from __future__ import annotations

import ast
import json
import math
import re
import secrets
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

THOUGHTS = {"<think>": "</think>", "[THINK]": "[/THINK]"}
DEEPSEEK = {name: f"<｜tool▁{name.replace(' ', '▁')}｜>" for name in ("calls begin", "calls end", "call begin",
                                                                   "call end", "sep")}
MARKS = ("<tool_call>", "<function=", "<|python_tag|>", "[TOOL_CALLS]", DEEPSEEK["calls begin"],
         DEEPSEEK["call begin"])
# Special tokens whose text is looked at here; all others are no part of an answer.
THOUGHT = frozenset({*THOUGHTS, *THOUGHTS.values()})
SPECIAL = frozenset({*THOUGHT, *MARKS, *DEEPSEEK.values(), "</tool_call>", "[ARGS]", "[CALL_ID]"})
MOST_CALLS = 128
MOST_PYTHON = 64 << 10
MOST_DEPTH = 64  # of lists and objects in arguments
FIRST_KEYS = ("name", "type", "id", "function", "arguments", "parameters")  # of an object that is a call
_BLANK = " \t\r\n"
_NAME = re.compile(r"[\w.-]{1,64}")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_WORD = re.compile(r"[-+.\w]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
Reading = Generator[None, None, bool]  # of something that is there or not, in a text that goes on


@dataclass(frozen=True)
class Call:
    """One call: the name of a tool and its arguments as JSON."""

    name: str
    arguments: str
    id: str = field(default_factory=lambda: f"call_{secrets.token_hex(12)}")

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass
class News:
    """New parts of an answer. `calls` are those that begin, `arguments` goes on with the last one."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    arguments: list[tuple[int, str]] = field(default_factory=list)  # (number of the call, what is added)

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.calls or self.arguments)


def calls_in(text: str, names: Collection[str]) -> tuple[str, list[Call]]:
    """(what is said besides, the calls); what is thought is neither.

    >>> from morpho.serve.api.tools import calls_in
    >>> said, calls = calls_in('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', {"add"})
    >>> calls[0].name, calls[0].arguments
    ('add', '{"a": 1}')
    """
    reader = ToolText(names)
    pieces = [reader.push(text), reader.finish()]
    said = "".join(piece.text for piece in pieces)
    return (said.strip() if reader.calls else said), reader.calls


class ToolText:
    """An answer as it is made: text that is surely no call goes through at once, and what may be one waits until that
    is known. With `stream` a call is told as soon as its name is, and its arguments as they come: should they turn out
    to be no JSON, the call ends there and the rest is text. `schemas` are the parameters of tools whose values come
    without quotes; `thinks` says that the prompt has opened the thinking already, `sure` that a call must come.

    >>> from morpho.serve.api.tools import ToolText
    >>> text = ToolText({"add"})
    >>> news = text.push("<think>Hm.</think>Let me see. <tool")
    >>> news.reasoning, news.text
    ('Hm.', 'Let me see. ')
    >>> news = text.push('_call>{"name": "add"}</tool_call>')
    >>> [call.name for call in text.calls]
    ['add']
    """

    def __init__(self, names: Collection[str], *, stream: bool = False, schemas: Mapping[str, Any] | None = None,
                 thinks: bool = False, sure: bool = False, named: bool = False) -> None:
        self.calls: list[Call] = []
        self.stream, self.named = stream, named  # `named`: the request names the tool
        self.plain = False  # whether all that follows is text
        self._names, self._schemas, self._sure = frozenset(names), schemas or {}, sure
        self._text, self._at, self._final, self._said = "", 0, False, False
        self._news = News()
        self._live: int | None = None  # the call whose arguments are told as they come, from `_sent` up to `_safe`
        self._sent = self._safe = 0
        self._reader = self._answer(thinks)
        next(self._reader)

    def push(self, text: str) -> News:
        """Add a piece of text and return the news."""
        self._text += text
        return self._go_on()

    def finish(self) -> News:
        """Return the news that waited for the end."""
        self._final = True
        return self._go_on()

    def _go_on(self) -> News:
        try:
            self._reader.send(None)
        except StopIteration:
            pass
        news, self._news = self._news, News()
        return news

    # -- reading ----------------------------------------------------------------------------------------------------
    def _more(self) -> Reading:
        """Wait for more text; False at its end."""
        if self._live is not None and self._safe > self._sent:
            self._add(self._text[self._sent:self._safe])
            self._sent = self._safe
        if self._final:
            return False
        yield
        return True

    def _peek(self) -> Generator[None, None, str]:
        """The next character, empty at the end."""
        while self._at >= len(self._text):
            if not (yield from self._more()):
                return ""
        return self._text[self._at]

    def _blanks(self) -> Generator[None, None, None]:
        while (character := (yield from self._peek())) and character in _BLANK:
            self._at += 1

    def _one_of(self, *options: str) -> Generator[None, None, str]:
        """The longest of several strings that comes next, which is passed; empty if none does."""
        while True:
            rest = self._text[self._at:self._at + max(map(len, options))]
            if any(len(option) > len(rest) and option.startswith(rest) for option in options):
                if (yield from self._more()):
                    continue
            option = max((option for option in options if rest.startswith(option)), key=len, default="")
            self._at += len(option)
            return option

    def _up_to(self, *ends: str) -> Generator[None, None, str | None]:
        """The text before the first of several strings, which is passed; None if none comes."""
        start = self._at
        while True:
            places = [(place, end) for end in ends if (place := self._text.find(end, start)) >= 0]
            if places:
                place, end = min(places)
                self._at = place + len(end)
                return self._text[start:place]
            if not (yield from self._more()):
                return None

    def _match(self, pattern: re.Pattern[str]) -> Generator[None, None, str]:
        """As much as a pattern takes of what comes."""
        while True:
            match = pattern.match(self._text, self._at)
            end = match.end() if match else self._at
            if end < len(self._text) or not (yield from self._more()):
                taken = self._text[self._at:end]
                self._at = end
                return taken

    # -- telling ----------------------------------------------------------------------------------------------------
    def _say(self, text: str) -> None:
        if text:
            self._said = True
            self._news.text += text

    def _begin(self, name: str, arguments: str = "") -> None:
        self.calls.append(Call(name, arguments))
        self._news.calls.append(self.calls[-1])

    def _add(self, text: str) -> None:
        """More of the last call's arguments."""
        number = len(self.calls) - 1
        self.calls[number] = replace(self.calls[number], arguments=self.calls[number].arguments + text)
        self._news.arguments.append((number, text))

    # -- the parts of an answer -------------------------------------------------------------------------------------
    def _answer(self, thinks: bool) -> Generator[None, None, None]:
        yield
        yield from self._blanks()
        mark = yield from self._one_of(*THOUGHTS)  # some models say it again after a prompt that has opened it
        if mark or thinks:
            yield from self._thoughts((THOUGHTS[mark],) if mark else tuple(THOUGHTS.values()))
        else:
            self._at = 0
        if not self._names:
            self.plain = True
            while True:
                self._say(self._text[self._at:])
                self._text, self._at = "", 0
                if not (yield from self._more()):
                    return
        yield from self._blanks()
        if (yield from self._peek()) not in ("{", "[") or not (yield from self._bare()):
            self._at = 0
            yield from self._talk()

    def _thoughts(self, ends: tuple[str, ...]) -> Generator[None, None, None]:
        """Text of thoughts, without the blanks around it and before the answer."""
        self._text, self._at, begun = self._text[self._at:], 0, False
        while True:
            if not begun:
                self._text = self._text.lstrip()
            places = [(place, end) for end in ends if (place := self._text.find(end)) >= 0]
            stop = min(places)[0] if places else len(self._text)
            if not places and not self._final:
                stop -= _begun(self._text, ends)
            thought = self._text[:stop].rstrip()
            begun = begun or bool(thought)
            self._news.reasoning += thought
            if places:
                self._text = self._text[stop + len(min(places)[1]):]
                yield from self._blanks()
                self._text, self._at = self._text[self._at:], 0
                return
            self._text = self._text[len(thought):]
            if not (yield from self._more()):
                self._text = ""
                return

    def _talk(self) -> Generator[None, None, None]:
        """Text with marked calls in it. Blanks before the first word, between calls and after them are not told where
        there are calls."""
        while True:
            self._text, self._at = self._text[self._at:], 0
            if places := [(place, mark) for mark in MARKS if (place := self._text.find(mark)) >= 0]:
                place, mark = min(places)
                if self._text[:place].strip() or (self._said and not self.calls):
                    self._say(self._text[:place])
                    self._text, place = self._text[place:], 0
                self._at = place + len(mark)
                if len(self.calls) >= MOST_CALLS or not (yield from self._marked(mark)):
                    self._at = place + len(mark)
                    self._say(self._text[:self._at])
                continue
            stop = len(self._text) - (0 if self._final else _begun(self._text, MARKS))
            if not self._text[:stop].strip() and (self.calls or not self._said) and not (self._final and
                                                                                       not self.calls):
                stop = 0
            self._say(self._text[:stop])
            self._at = stop
            if not (yield from self._more()):
                return

    def _marked(self, mark: str) -> Reading:
        """The call or calls that a mark announces."""
        if mark == "<tool_call>":
            return (yield from self._tool_call())
        if mark == "<function=":
            return (yield from self._function())
        if mark == "[TOOL_CALLS]":
            return (yield from self._mistral())
        if mark == "<|python_tag|>":
            return (yield from self._python_tag())
        if mark == DEEPSEEK["calls begin"]:
            yield from self._blanks()
            if not (yield from self._one_of(DEEPSEEK["call begin"])):
                return False
        return (yield from self._deepseek())

    def _tool_call(self) -> Reading:
        yield from self._blanks()
        if (yield from self._one_of("<function=")):
            return (yield from self._function())
        if not (yield from self._several()):
            return False
        return (yield from self._end("</tool_call>"))

    def _end(self, *ends: str) -> Reading:
        """Pass what closes a call; models may leave it out."""
        start = self._at
        yield from self._blanks()
        if not (yield from self._one_of(*ends)):
            self._at = start
        return True

    def _function(self) -> Reading:
        """`name>{...}</function>`, or a parameter between tags for each argument."""
        name = yield from self._match(_NAME)
        if name not in self._names or not (yield from self._one_of(">")):
            return False
        yield from self._blanks()
        if (yield from self._peek()) == "{":
            done = yield from self._arguments(name)
        else:
            done = yield from self._parameters(name)
        if done:
            yield from self._end("</function>")
            yield from self._end("</tool_call>")
        return done

    def _parameters(self, name: str) -> Reading:
        values: dict[str, Any] = {}
        live = self.stream
        while True:
            yield from self._blanks()
            if (yield from self._one_of("</function>")):
                break
            if not (yield from self._one_of("<parameter=")):
                if self._final and self._at >= len(self._text):
                    break  # models may leave the ends out
                return bool(values) and live
            key = yield from self._up_to(">")
            text = None if key is None else (yield from self._up_to("</parameter>"))
            if key is None or text is None:
                return bool(values) and live
            value = _typed(text.removeprefix("\n").removesuffix("\n"), key, self._schemas.get(name))
            if live:
                if not values:
                    self._begin(name)
                self._add(("{" if not values else ", ") + f"{_dumped(key)}: {_dumped(value)}")
            values[key] = value
        if live and values:
            self._add("}")
        else:
            self._begin(name, _dumped(values))
        return True

    def _mistral(self) -> Reading:
        yield from self._blanks()
        if (yield from self._peek()) in ("{", "["):
            return (yield from self._several())
        name = yield from self._match(_NAME)
        if name not in self._names:
            return False
        if (yield from self._one_of("[CALL_ID]")):
            yield from self._match(_NAME)
        yield from self._one_of("[ARGS]")
        yield from self._blanks()
        return (yield from self._arguments(name))

    def _python_tag(self) -> Reading:
        yield from self._blanks()
        if (yield from self._peek()) in ("{", "["):
            return (yield from self._several())
        start = self._at  # brave_search.call(query="...")
        while (yield from self._more()):
            pass
        calls = _pythonic("[" + self._text[start:].strip().replace(".call(", "(", 1) + "]", self._names)
        for call in calls:
            self._begin(call.name, call.arguments)
        self._at = len(self._text) if calls else start
        return bool(calls)

    def _deepseek(self) -> Reading:
        head = yield from self._up_to(DEEPSEEK["sep"])
        if head is None:
            return False
        yield from self._blanks()
        name, fenced = head.strip(), False
        if (yield from self._peek()) != "{":
            line = yield from self._up_to("\n")
            name, fenced = (line or "").strip(), True
            yield from self._blanks()
            yield from self._one_of("```json", "```")
            yield from self._blanks()
        if name not in self._names or not (yield from self._arguments(name)):
            return False
        if fenced:
            yield from self._end("```")
        yield from self._end(DEEPSEEK["call end"])
        return (yield from self._end(DEEPSEEK["calls end"]))

    def _bare(self) -> Reading:
        """An answer that is calls and nothing else, which is known at its end, or where it must be a call."""
        start = self._at
        if self._sure and self._text[start] == "{":
            return (yield from self._object())
        if self._text[start] == "[":
            self._at += 1
            yield from self._blanks()
            name = yield from self._match(_NAME)
            if name in self._names:
                while (yield from self._more()):
                    pass
                calls = _pythonic(self._text[start:].strip(), self._names)
                for call in calls:
                    self._begin(call.name, call.arguments)
                return bool(calls)
            self._at = start
        elif not (yield from self._promises(start)):
            return False
        objects = yield from self._objects()
        if objects is None:
            return False
        yield from self._blanks()
        if self._at < len(self._text):
            return False  # more is said: the object was no call
        for call in objects:
            self._begin(call.name, call.arguments)
        return True

    def _promises(self, start: int) -> Reading:
        """Whether an object begins as calls do; others are told at once."""
        self._at = start + 1
        yield from self._blanks()
        if not (yield from self._one_of('"')):
            return False
        key = yield from self._up_to('"')
        self._at = start
        return key in FIRST_KEYS

    # -- JSON -------------------------------------------------------------------------------------------------------
    def _several(self) -> Reading:
        """Objects with `;` between, or a list of them; all must be calls."""
        if self.stream and (yield from self._peek()) == "{":
            if not (yield from self._object()):
                return False
            while (yield from self._follows()):
                start = self._at
                if not (yield from self._object()):
                    self._at = start
                    break
            return True
        calls = yield from self._objects()
        for call in calls or ():
            self._begin(call.name, call.arguments)
        return bool(calls)

    def _follows(self) -> Reading:
        """Pass a `;` before another object."""
        start = self._at
        yield from self._blanks()
        if (yield from self._one_of(";")):
            yield from self._blanks()
            if (yield from self._peek()) == "{":
                return True
        self._at = start
        return False

    def _objects(self) -> Generator[None, None, list[Call] | None]:
        calls: list[Call | None] = []
        while True:
            start = self._at
            if not (yield from self._value()):
                return None
            value = _parsed(self._text[start:self._at])
            calls += [_call(part, self._names) for part in (value if isinstance(value, list) else [value])]
            if not (yield from self._follows()):
                break
        return None if None in calls or not calls else calls[:MOST_CALLS]  # type: ignore[return-value]

    def _object(self) -> Reading:
        """One call, told as soon as its name and the beginning of its arguments are there."""
        start = self._at
        name = yield from self._head()
        if name is None or name not in self._names:
            self._at = start
            calls = yield from self._objects()
            for call in calls or ():
                self._begin(call.name, call.arguments)
            return bool(calls)
        if not (yield from self._arguments(name)):
            return False
        while True:  # what else the object has
            yield from self._blanks()
            if (yield from self._one_of("}", ",")) != ",":
                return True
            yield from self._blanks()
            if not (yield from self._string()):
                return True
            yield from self._blanks()
            yield from self._one_of(":")
            yield from self._blanks()
            if not (yield from self._value()):
                return True

    def _head(self) -> Generator[None, None, str | None]:
        """The name in `{"name": "...", "arguments": {`, up to the arguments."""
        for options in (("{",), ('"name"',), (":",), ('"',)):
            if not (yield from self._one_of(*options)):
                return None
            if options != ('"',):
                yield from self._blanks()
        name = yield from self._match(_NAME)
        for choices in (('"',), (",",), ('"arguments"', '"parameters"'), (":",)):
            if not (yield from self._one_of(*choices)):
                return None
            yield from self._blanks()
        return name if (yield from self._peek()) == "{" else None

    def _arguments(self, name: str) -> Reading:
        """An object of arguments; of one that is told as it comes, as much as is JSON."""
        start = self._at
        if (yield from self._peek()) != "{":
            return False
        if not self.stream:
            if not (yield from self._value()):
                return False
            self._begin(name, _dumped(_parsed(self._text[start:self._at])))
            return True
        self._begin(name)
        self._live, self._sent, self._safe = len(self.calls) - 1, start, start
        yield from self._value()
        self._add(self._text[self._sent:self._safe])
        self._live, self._at = None, self._safe
        return True

    def _value(self) -> Reading:
        """Pass a list or an object, if it is JSON."""
        stack: list[str] = []
        wanted = "value"  # or key, colon, comma; first: of a container that may end at once
        while True:
            yield from self._blanks()
            character = yield from self._peek()
            if wanted in ("value", "first value") and not (character == "]" and wanted == "first value"):
                if character in ("{", "["):
                    stack.append("}" if character == "{" else "]")
                    wanted = "first key" if character == "{" else "first value"
                    self._at += 1
                    self._safe = self._at
                    if len(stack) > MOST_DEPTH:
                        return False
                    continue
                if not stack or not (yield from (self._string() if character == '"' else self._word())):
                    return False
                wanted = "comma"
            elif wanted in ("key", "first key") and character == '"':
                if not (yield from self._string()):
                    return False
                wanted = "colon"
            elif wanted == "colon" and character == ":":
                self._at, wanted = self._at + 1, "value"
            elif wanted == "comma" and character == ",":
                self._at, wanted = self._at + 1, "key" if stack[-1] == "}" else "value"
            elif wanted in ("comma", "first key", "first value") and character and character == stack[-1]:
                self._at, wanted = self._at + 1, "comma"
                stack.pop()
            else:
                return False
            self._safe = self._at
            if not stack:
                return True

    def _string(self) -> Reading:
        if not (yield from self._one_of('"')):
            return False
        while True:
            self._safe = self._at
            start = self._at
            self._at = _PLAIN.match(self._text, start).end()  # type: ignore[union-attr]
            self._safe = self._at
            character = yield from self._peek()
            if self._at < len(self._text) and character == '"':
                self._at += 1
                return True
            if character == "\\":
                self._at += 1
                kind = yield from self._one_of(*'"\\/bfnrtu')
                digits = 4 if kind == "u" else 0
                for _ in range(digits):
                    if not (yield from self._one_of(*"0123456789abcdefABCDEF")):
                        return False
                if not kind:
                    return False
            elif not character or not _PLAIN.fullmatch(character):
                return False

    def _word(self) -> Reading:
        word = yield from self._match(_WORD)
        return word in ("true", "false", "null") or bool(_NUMBER.fullmatch(word) and math.isfinite(float(word)))


def _begun(text: str, strings: Collection[str]) -> int:
    """How many characters at the end of a text are the beginning of one of several strings."""
    longest = min(len(text), max(map(len, strings)) - 1)
    return next((length for length in range(longest, 0, -1)
                 if any(string.startswith(text[-length:]) for string in strings)), 0)


def _call(part: Any, names: Collection[str]) -> Call | None:
    if not isinstance(part, dict):
        return None
    part = part.get("function") if isinstance(part.get("function"), dict) else part
    arguments = part.get("arguments", part.get("parameters", {}))
    arguments = _parsed(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(part.get("name"), str) or part["name"] not in names or not isinstance(arguments, dict):
        return None
    try:
        return Call(part["name"], _dumped(arguments))
    except ValueError:  # NaN is no JSON
        return None


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _typed(text: str, key: str, schema: Any) -> Any:
    """The value of a parameter that is written without quotes: what the tool's schema says, else a text."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    kind = properties.get(key) if isinstance(properties, Mapping) else None
    if not isinstance(kind, Mapping) or kind.get("type") == "string":
        return text
    value = _parsed({"True": "true", "False": "false", "None": "null"}.get(text.strip(), text))
    try:
        _dumped(value)
    except ValueError:
        return text
    return text if value is None and text.strip() not in ("null", "None") else value


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
            calls.append(Call(part.func.id, _dumped(values)))
        return calls[:MOST_CALLS]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
