"""Chat templates of models, which are programs in Jinja's language: run in its sandbox, with bounds on what they may
build. They see the names that the library which publishes them gives them: `messages`, `tools`, `bos_token`, ...
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, NoReturn

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import FileFault, MissingExtra
from morpho.weights.scanner import shortened

MOST_CHARACTERS = 8 << 20  # of anything a template builds
MOST_STEPS = 1 << 20  # turns of loops, calls and filters of one rendering together, and of all its `range`s
MOST_S = 5.0  # of processor time for one rendering
MOST_TEMPLATE = 1 << 20
# A width is a bomb.
_WIDE = frozenset({"format", "format_map", "ljust", "rjust", "center", "zfill", "expandtabs", "translate"})


class TemplateStop(Exception):
    """A template that says by `raise_exception` what it does not take, or that builds too much."""


class _Budget:
    """Remaining budget of one rendering."""

    def __init__(self) -> None:
        self.steps, self.counted, self.until_s = MOST_STEPS, MOST_STEPS, time.thread_time() + MOST_S

    def spend(self, steps: int = 1) -> None:
        self.steps -= steps
        if self.steps < 0 or time.thread_time() > self.until_s:
            raise TemplateStop("it counts too far")


_budget: ContextVar[_Budget] = ContextVar("_budget")


def _spend(steps: int = 1) -> None:
    if (budget := _budget.get(None)) is not None:  # none while a template is compiled, which folds what is constant
        budget.spend(steps)


def render(template: str, messages: Sequence[Mapping[str, Any]], *, reply: bool = True,
           tools: Sequence[Mapping[str, Any]] | None = None, **names: Any) -> str:
    """The text of a chat by a template in Jinja's language; `names` are further ones that it may use.

    >>> from morpho.weights.text.chat_template import render
    >>> render("{{ messages[0].role }}: {{ messages[0].content }}", [{"role": "user", "content": "Hi"}])
    'user: Hi'
    """
    import jinja2

    made = _compiled(template)
    token = _budget.set(_Budget())
    try:
        text = made.render(messages=[*messages], tools=[*tools] if tools else None, add_generation_prompt=reply,
                           range=_range, **names)
    except (TemplateStop, jinja2.exceptions.SecurityError, jinja2.TemplateError) as error:
        raise fail(ArgumentError, "render_chat", f"the chat template refuses this conversation: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError,
            MemoryError) as error:
        raise fail(ArgumentError, "render_chat", "the chat template cannot write this conversation: "
                   f"{type(error).__name__}: {shortened(str(error))}") from None
    finally:
        _budget.reset(token)
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
    except TemplateStop as error:
        raise fail(ArgumentError, "render_chat", f"the chat template refuses this conversation: {error}") from None
    except (jinja2.TemplateError, RecursionError, MemoryError, OverflowError) as error:
        raise fail(FileFault, "render_chat", f"the chat template is not one: {error}") from None


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.visitor import NodeTransformer

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

        def _parse(self, source: str, name: str | None, filename: str | None) -> Any:
            """The program with its loops counted; `a ~ b` becomes a sum of texts, which is."""
            made = super()._parse(source, name, filename)
            for loop in list(made.find_all(nodes.For)):
                if loop.recursive:
                    raise TemplateStop("it has a recursive loop")
                loop.iter = nodes.Filter(loop.iter, "_counted", [], [], None, None, lineno=loop.lineno)
            return _Sums().visit(made)

        @staticmethod
        def concat(pieces: Iterable[str]) -> str:
            return _joined(pieces)

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
            owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
            _spend()
            if isinstance(owner, str) and name == "replace" and len(args) > 1:
                _check_replaced(owner, args[1])
            if isinstance(owner, str) and name == "join" and args:
                return _joined(map(str, args[0]), owner)
            return super().call(context, function, *args, **others)

    class _Sums(NodeTransformer):
        def visit_Concat(self, node: Any) -> Any:
            self.generic_visit(node)
            texts = [nodes.Filter(each, "string", [], [], None, None, lineno=node.lineno) for each in node.nodes]
            found: Any = texts[0]
            for text in texts[1:]:
                found = nodes.Add(found, text, lineno=node.lineno)
            return found

    made = Sandbox(finalize=_shown, trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols],
                   cache_size=0)
    for name in ("center", "format", "indent", "wordwrap", "pprint", "lipsum", "random", "filesizeformat"):
        made.filters.pop(name, None)
    made.filters.update(
        tojson=_to_json,  # Jinja's own writes for pages: < as \u003c
        string=lambda value: str(_shown(value)), join=_join, replace=_replace, sum=_sum,
        slice=_limited(made.filters["slice"]), batch=_limited(made.filters["batch"]))
    for name, function in list(made.filters.items()):
        made.filters[name] = _step(function)
    made.filters["_counted"] = _counted
    made.globals.clear()
    made.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form[:256]),
                        namespace=_namespace(), dict=dict)
    return made


def _namespace() -> Any:
    from jinja2.utils import Namespace

    return Namespace


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
             sort_keys: bool = False) -> str:
    if indent is not None and not 0 <= indent <= 16:
        raise TemplateStop(f"tojson with an indent of {indent}")
    _shown(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: object) -> NoReturn:
    raise TemplateStop(shortened(str(message)))


def _range(*bounds: int) -> range:
    found, budget = range(*bounds), _budget.get()
    budget.counted -= len(found)
    if budget.counted < 0:
        raise TemplateStop("it counts too far")
    return found


# -- what could build or count without an end --------------------------------------------------------------------------
def _too_large() -> TemplateStop:
    return TemplateStop("it builds too large a value")


def _counted(values: Iterable[Any]) -> Iterator[Any]:
    """Items of a loop, counting each iteration."""
    for value in values:
        _spend()
        yield value


def _step(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is paid for."""
    @wraps(function)  # with the marks by which Jinja knows what it wants to be given
    def stepped(*args: Any, **others: Any) -> Any:
        _spend()
        return function(*args, **others)
    return stepped


def _limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that makes as many things as its number says."""
    @wraps(function)
    def limited(*args: Any, **others: Any) -> Any:
        if any(isinstance(each, int | float) and each > MOST_STEPS for each in (*args, *others.values())):
            raise _too_large()
        return function(*args, **others)
    return limited


def _shown(value: Any) -> Any:
    """A value whose text is not too large: lists that hold one list many times are short, and their texts are not."""
    if isinstance(value, str | int | float | None):
        return value
    left, stack = MOST_CHARACTERS, [value]
    while stack:
        each = stack.pop()
        left -= len(each) + 8 if isinstance(each, str) else 8
        if left < 0:
            raise _too_large()
        if isinstance(each, list | tuple | set | frozenset):
            stack.extend(each)
        elif isinstance(each, dict):
            stack.extend((*each.keys(), *each.values()))
    return value


def _joined(pieces: Iterable[str], between: str = "") -> str:
    found, left = [], MOST_CHARACTERS
    for piece in pieces:
        left -= len(piece) + len(between)
        if left < 0:
            raise _too_large()
        found.append(piece)
    return between.join(found)


def _join(values: Iterable[Any], d: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        values = (value[attribute] if isinstance(value, Mapping | list) else getattr(value, str(attribute), "")
                  for value in values)
    return _joined((str(_shown(value)) for value in values), str(d))


def _check_replaced(text: str, new: object) -> None:
    if (len(text) + 1) * max(len(str(new)), 1) > MOST_CHARACTERS:
        raise _too_large()


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    plain = str(_shown(text))
    _check_replaced(plain, new)
    return plain.replace(old, new, -1 if count is None else count)


def _sum(values: Iterable[Any], attribute: Any = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):
        raise TemplateStop("sum adds numbers")
    return sum((value if attribute is None else value[attribute] for value in values), start)
