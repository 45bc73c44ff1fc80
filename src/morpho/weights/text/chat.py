"""Chats as the text, and as the tokens, that a model was trained on.

A file's template is a small program in Jinja's language. The two forms that ChatML's have (`<|im_start|>role`, the
message, `<|im_end|>`) are recognised by their text and need no library; any other is run in a sandbox
(`chat_template.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import FileFault
from morpho.weights.scanner import shortened
from morpho.weights.text import chat_template
from morpho.weights.text.tokenizer import Tokenizer

START, END = "<|im_start|>", "<|im_end|>"


def _template_pattern() -> re.Pattern[str]:
    """ChatML's template, with spaces where the language allows them and either kind of quotes."""
    words = [
        r"\{%-? for message in messages -?%\}",
        r"(?:\{%-? if loop\.first and messages\[0\]\['role'\] != 'system' -?%\}",
        r"\{\{ '(?P<first>[^']*)' \}\}\{%-? endif -?%\})?",
        r"\{\{ '<\|im_start\|>' \+ message\['role'\] \+ 'N' \+ message\['content'\] \+ '<\|im_end\|>' \+ 'N' \}\}",
        r"\{%-? endfor -?%\}",
        r"\{%-? if add_generation_prompt -?%\}\{\{ '<\|im_start\|>assistantN' \}\}\{%-? endif -?%\}",
    ]
    text = "".join(words).replace("N", r"(?:\\n|\n)").replace(" ", r"\s*")
    return re.compile(text)


def render_chat(messages: Sequence[Mapping[str, Any]], template: str, *, reply: bool = True,
                tools: Sequence[Mapping[str, Any]] | None = None, **names: Any) -> str:
    """A chat as the text that a model was trained on, by the template of its file; with `reply`, up to where the
    assistant's next message begins. `messages` are records with `role` and `content`, `tools` what the model may call,
    `names` further ones that the template knows (`bos_token`, `enable_thinking`). Templates of other forms than
    ChatML's need the Jinja2 library (`pip install 'morpho-tensor[models]'`).

    >>> template = mo.weights.chatml()
    >>> mo.weights.render_chat([{"role": "user", "content": "Hello"}], template)
    '<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n'
    """
    if not template:
        raise fail(FileFault, "render_chat", "this model has no chat template",
                   "write the text yourself and encode it: special tokens in it are understood")
    fits = None if tools else _template_pattern().fullmatch(re.sub(r"\s+\Z", "", template).replace('"', "'"))
    if not fits:
        return chat_template.render(template, [_message(each) for each in messages], reply=reply, tools=tools, **names)
    found = []
    for place, message in enumerate(messages):
        role, content = _checked(message)
        if place == 0 and role != "system" and fits["first"]:
            found.append(fits["first"].replace("\\n", "\n"))
        found.append(f"{START}{role}\n{content}{END}\n")
    return "".join(found) + (f"{START}assistant\n" if reply else "")


def encode_chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, reply: bool = True,
                tools: Sequence[Mapping[str, Any]] | None = None, unfinished: bool = False, **names: Any) -> list[int]:
    """The tokens of a chat, by the tokenizer's own template. Special tokens are those that the template writes: the
    text of one inside a message stays text, so that nobody can end a message in its middle and speak as another. With
    `unfinished` the tokens end where the last message's content does, so that the model goes on with it.

    >>> tokenizer = mo.weights.train_bpe("so on and so on", 262, specials=["<|im_start|>", "<|im_end|>"])
    >>> tokenizer.chat_template = mo.weights.chatml()
    >>> ids = mo.weights.encode_chat(tokenizer, [{"role": "user", "content": "so <|im_end|>"}])
    >>> ids.count(tokenizer.special("<|im_end|>"))
    1
    """
    ids = encode_chat_within(tokenizer, messages, None, reply=reply, tools=tools, unfinished=unfinished, **names)
    assert ids is not None
    return ids


def encode_chat_within(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], most: int | None, *,
                       reply: bool = True, tools: Sequence[Mapping[str, Any]] | None = None,
                       unfinished: bool = False, **names: Any) -> list[int] | None:
    """The tokens of a chat, None where there are more than `most`; see `Tokenizer.encode_within`."""
    def encode(text: str, specials: bool, before: int = 0) -> list[int] | None:
        if most is None:
            how = {} if specials else {"specials": False}
            return tokenizer.encode(text, around=False, **how)
        return tokenizer.encode_within(text, most - before, specials=specials, around=False)

    texts = {number: text for text, number in tokenizer.specials.items()}
    names = {"bos_token": texts.get(tokenizer.bos, ""), "eos_token": texts.get(tokenizer.eos, ""), **names}  # type: ignore[arg-type]
    held = json.dumps([[*messages], tools], ensure_ascii=False, default=str)
    end = next(mark for mark in map(chr, range(0xFDEF, 0xFDE7, -1)) if mark not in held)  # no text has these characters
    if unfinished:
        messages = _with_end(messages, end)
    if not any(special in held for special in tokenizer.specials):
        text = render_chat(messages, tokenizer.chat_template, reply=reply, tools=tools, **names)
        return encode(_before(text, end) if unfinished else text, True)
    mark = next(mark for mark in map(chr, range(0xFDD0, 0xFDE8)) if mark not in held)
    pattern = re.compile("(" + "|".join(re.escape(each) for each in sorted(tokenizer.specials, key=len, reverse=True)
                                        if each) + ")")
    marked = [_marked(each, pattern, mark) for each in (list(messages), tools)]
    text = render_chat(marked[0], tokenizer.chat_template, reply=reply, tools=marked[1], **names)
    text = _before(text, end) if unfinished else text
    found: list[int] = []
    for place, piece in enumerate(pattern.split(text)):
        ids = [tokenizer.specials[piece]] if place % 2 else encode(piece.replace(mark, ""), False, len(found))
        if ids is None or (most is not None and len(found) + len(ids) > most):
            return None
        found += ids
    return found


def _with_end(messages: Sequence[Mapping[str, Any]], end: str) -> list[Mapping[str, Any]]:
    """The same messages with a mark at the end of the last one."""
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise fail(ArgumentError, "encode_chat", "the last message has no text to go on with", "leave `unfinished` out")
    return [*messages[:-1], {**messages[-1], "content": content + end}]


def _before(text: str, end: str) -> str:
    found, mark, _ = text.rpartition(end)
    if not mark:
        raise fail(FileFault, "encode_chat", "the chat template does not write the last message, which is to be gone "
                                             "on with", "leave `unfinished` out")
    return found


def _marked(value: Any, pattern: re.Pattern[str], mark: str) -> Any:
    """The same value, with a mark inside every text of a special token."""
    if isinstance(value, str):
        return pattern.sub(lambda found: found[0][0] + mark + found[0][1:], value)
    if isinstance(value, Mapping):
        return {_marked(key, pattern, mark): _marked(each, pattern, mark) for key, each in value.items()}
    return [_marked(each, pattern, mark) for each in value] if isinstance(value, list | tuple) else value


def chatml(system: str = "") -> str:
    """ChatML's template, with a message of the system for chats that begin without one.

    >>> text = mo.weights.render_chat([{"role": "user", "content": "Hi"}], mo.weights.chatml("Be brief."), reply=False)
    >>> text.split("\\n")[:2]
    ['<|im_start|>system', 'Be brief.<|im_end|>']
    """
    if "'" in system or '"' in system or "\\" in system:
        raise fail(ArgumentError, "chatml", "the message of the system holds quotes or backslashes")
    first = (f"{{% if loop.first and messages[0]['role'] != 'system' %}}{{{{ '{START}system\n{system}{END}\n' }}}}"
             "{% endif %}") if system else ""
    each = f"{{{{'{START}' + message['role'] + '\n' + message['content'] + '{END}' + '\n'}}}}"
    last = f"{{% if add_generation_prompt %}}{{{{ '{START}assistant\n' }}}}{{% endif %}}"
    return f"{{% for message in messages %}}{first}{each}{{% endfor %}}{last}"


def _checked(message: Any) -> tuple[str, str]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) \
            or not isinstance(message.get("content"), str):
        raise fail(ArgumentError, "render_chat", f"{shortened(message)} is not a message with a role and a content")
    return message["role"], message["content"]


def _message(message: Any) -> Mapping[str, Any]:
    """A message for a template of any form, whose content may be missing where it calls tools."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise fail(ArgumentError, "render_chat", f"{shortened(message)} is not a message with a role and a content")
    return message
