"""Chats as text, in the ChatML form: `<|im_start|>role`, the message, `<|im_end|>`.

A file's template is a small program in another language. It is not run: the two forms that ChatML's have are recognised
by their text, the one with a message of the system put first where there is none included, and any other is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import FileFault
from morpho.weights.scanner import shortened

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


def render_chat(messages: Sequence[Mapping[str, str]], template: str, *, reply: bool = True) -> str:
    """A chat as the text that a model was trained on, by the template of its file; with `reply`, up to where the
    assistant's next message begins. `messages` are records with `role` and `content`.

    >>> template = mo.weights.chatml()
    >>> mo.weights.render_chat([{"role": "user", "content": "Hello"}], template)
    '<|im_start|>user\\nHello<|im_end|>\\n<|im_start|>assistant\\n'
    """
    fits = _template_pattern().fullmatch(re.sub(r"\s+\Z", "", template).replace('"', "'"))
    if not fits:
        raise fail(FileFault, "render_chat", f"the template {shortened(template)} is not one of ChatML's" if template
                   else "there is no template of a chat",
                   "write the text yourself and encode it: special tokens in it are understood")
    found = []
    for place, message in enumerate(messages):
        role, content = _checked(message)
        if place == 0 and role != "system" and fits["first"]:
            found.append(fits["first"].replace("\\n", "\n"))
        found.append(f"{START}{role}\n{content}{END}\n")
    return "".join(found) + (f"{START}assistant\n" if reply else "")


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
