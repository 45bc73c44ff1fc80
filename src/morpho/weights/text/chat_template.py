"""Chat templates of models, which are programs in Jinja's language: run in its sandbox, with bounds on what they may
build. They see the names that the library which publishes them gives them: `messages`, `tools`, `bos_token`, ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import FileFault, MissingExtra
from morpho.weights.scanner import shortened

MOST_CHARACTERS = 8 << 20  # of anything a template builds
MOST_STEPS = 1 << 20  # of all `range`s of one rendering together
MOST_TEMPLATE = 1 << 20
_WIDE = frozenset({"format", "format_map", "ljust", "rjust", "center", "zfill", "expandtabs"})  # a width is a bomb


class TemplateStop(Exception):
    """A template that says by `raise_exception` what it does not take, or that builds too much."""


def render(template: str, messages: Sequence[Mapping[str, Any]], *, reply: bool = True,
           tools: Sequence[Mapping[str, Any]] | None = None, **names: Any) -> str:
    """The text of a chat by a template in Jinja's language; `names` are further ones that it may use.

    >>> from morpho.weights.text.chat_template import render
    >>> render("{{ messages[0].role }}: {{ messages[0].content }}", [{"role": "user", "content": "Hi"}])
    'user: Hi'
    """
    import jinja2

    made = _compiled(template)
    left = [MOST_STEPS]
    try:
        text = made.render(messages=[*messages], tools=[*tools] if tools else None, add_generation_prompt=reply,
                           range=lambda *bounds: _range(left, *bounds), **names)
    except (TemplateStop, jinja2.exceptions.SecurityError, jinja2.TemplateError) as error:
        raise fail(ArgumentError, "render_chat", f"the chat template refuses this conversation: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError,
            MemoryError) as error:
        raise fail(ArgumentError, "render_chat", "the chat template cannot write this conversation: "
                   f"{type(error).__name__}: {shortened(str(error))}") from None
    if len(text) > MOST_CHARACTERS:
        raise fail(ArgumentError, "render_chat", f"the chat template writes more than {MOST_CHARACTERS} characters")
    return str(text)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    if len(template) > MOST_TEMPLATE:
        raise fail(FileFault, "render_chat", f"the chat template has more than {MOST_TEMPLATE} characters")
    try:
        import jinja2
    except ImportError:
        raise fail(MissingExtra, "render_chat", "this model's chat template needs the Jinja2 library",
                   install("models")) from None
    try:
        return _environment().from_string(template)
    except (jinja2.TemplateError, RecursionError, MemoryError, OverflowError) as error:
        raise fail(FileFault, "render_chat", f"the chat template is not one: {error}") from None


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what a model is trained on; the text is the same."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**", "+", "%"})

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return attr not in _WIDE and super().is_safe_attribute(obj, attr, value)

        def wrap_str_format(self, value: Any) -> Any:
            if getattr(value, "__name__", "") in _WIDE:
                raise SecurityError(f"str.{value.__name__} is not taken")
            return super().wrap_str_format(value)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sizes = [len(each) for each in (left, right) if isinstance(each, str | list | tuple)]
            if operator == "*" and sizes:
                number = right if isinstance(left, str | list | tuple) else left
                sizes = [sizes[0] * number if isinstance(number, int) else 0]
            small = all(isinstance(each, float) or abs(each) < 1 << 64 for each in (left, right)
                        if isinstance(each, int | float))
            if sum(sizes) > MOST_CHARACTERS or not small or (operator == "%" and isinstance(left, str)) \
                    or (operator == "**" and isinstance(right, int) and right > 64):
                raise SecurityError("it builds too large a value")
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, function: Any, *args: Any, **others: Any) -> Any:
            owner = getattr(function, "__self__", None)
            if isinstance(owner, str) and getattr(function, "__name__", "") == "replace" and len(args) > 1 \
                    and (len(owner) + 1) * max(len(str(args[1])), 1) > MOST_CHARACTERS:
                raise SecurityError("it builds too large a value")
            return super().call(context, function, *args, **others)

    made = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], cache_size=0)
    for name in ("center", "format", "indent", "wordwrap", "pprint", "lipsum", "random", "filesizeformat"):
        made.filters.pop(name, None)
    made.filters["tojson"] = _to_json  # Jinja's own writes for pages: < as \u003c
    made.globals.clear()
    made.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form),
                        namespace=_namespace(), dict=dict)
    return made


def _namespace() -> Any:
    from jinja2.utils import Namespace

    return Namespace


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
             sort_keys: bool = False) -> str:
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateStop(f"tojson with an indent of {indent}")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: object) -> NoReturn:
    raise TemplateStop(shortened(str(message)))


def _range(left: list[int], *bounds: int) -> range:
    found = range(*bounds)
    left[0] -= len(found)
    if left[0] < 0:
        raise TemplateStop("it counts too far")
    return found
