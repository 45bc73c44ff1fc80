"""The reference: the public names of a namespace, from their docstrings, as Markdown for the directive `public`.

    ```{public} mo.nn
    ```

    ```{public} mo
    :homes: elementwise, activations
    ```

`homes` picks the names that these modules define (the last part of their name); `rest` takes those that no other page
has picked. Docstrings are Markdown; their examples become blocks to copy, and tests run them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import morpho as mo
from docs.tools import public

PAGES = Path(__file__).resolve().parent.parent / "reference"
DIRECTIVE = re.compile(r"^```\{public\} (\S+)\n((?::.*\n)*)```$", re.MULTILINE)
RESULTS = {"mo.compile": lambda: type(mo.compile(lambda x: x))}  # what a function gives, shown below it
# Methods that other rooms of the engine use, and no program of a user.
INTERNAL = {("Tensor", name) for name in ("of_node", "of_buffer", "claim", "release_leaf", "replace", "program",
                                          "buffer", "elements", "node")}
INTERNAL |= {("State", name) for name in ("wait_for", "checked", "replace")}


def picked(namespace: str, homes: str = "", rest: bool = False) -> dict[str, Any]:
    """The names that one directive shows."""
    found = {name: value for name, value in public.names().items() if name.rpartition(".")[0] == namespace}
    if homes:
        wanted = {home.strip() for home in homes.split(",")}
        return {name: value for name, value in found.items() if public.home_of(value) in wanted}
    if rest:
        taken = {name for other, options in directives() if other == namespace and "homes" in options
                 for name in picked(namespace, options["homes"])}
        return {name: value for name, value in found.items() if name not in taken}
    return found


def directives() -> list[tuple[str, dict[str, str]]]:
    """Every `{public}` of the pages of the reference, with its options."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for namespace, options in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            found.append((namespace, dict(re.findall(r"^:(\w+): ?(.*)$", options, re.MULTILINE))))
    return found


def covered() -> set[str]:
    """All names that the reference shows."""
    return {name for namespace, options in directives()
            for name in picked(namespace, options.get("homes", ""), "rest" in options)}


def signature_of(value: Any) -> str:
    """`(x, /, axis=-1)`: names and defaults; types stand in the text where they matter."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "()" if inspect.isroutine(value) else ""
    plain = [parameter.replace(annotation=inspect.Parameter.empty, default=_shown(parameter.default))
             for parameter in found.parameters.values() if parameter.name != "self"]
    return str(inspect.Signature(plain))


class _Written(str):
    """A default as it is to be read."""

    def __repr__(self) -> str:
        return str(self)


def _shown(default: Any) -> Any:
    text = repr(default)
    if default is inspect.Parameter.empty:
        return default
    if inspect.isroutine(default) or re.search(r" at 0x|<factory>|object at", text):
        return _Written("...")
    return _Written(text) if len(text) < 60 else _Written("...")


def markdown(docstring: str) -> str:
    """A docstring as Markdown: examples in blocks, `name: what it is` as items of a list, other text as it stands."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        first = paragraph.lstrip()
        if first.startswith(">>>"):
            parts.append("```pycon\n" + paragraph.replace("<BLANKLINE>", "") + "\n```")
        elif ">>>" in paragraph and re.search(r"^\s*>>>", paragraph, re.MULTILINE):
            words, _, example = paragraph.partition("\n>>>")
            parts += [words, "```pycon\n>>>" + example + "\n```"]
        elif (re.match(r"\w+: \S", first) and re.search(r"\n    ", paragraph)) or _all_fields(paragraph):
            parts.append(_fields(paragraph))
        elif paragraph.startswith("    "):
            parts.append("```text\n" + inspect.cleandoc(paragraph) + "\n```")
        else:
            parts.append(_plain(paragraph))
    return "\n\n".join(parts)


def _all_fields(paragraph: str) -> bool:
    lines = paragraph.splitlines()
    return len(lines) > 1 and all(re.match(r"[a-z_]\w*: \S", line) for line in lines)


def _fields(paragraph: str) -> str:
    """Lines `name: text` with indented continuations as a list."""
    joined = re.sub(r"\n\s{2,}", " ", paragraph)
    return "\n".join(re.sub(r"^(\w+): ", r"- `\1`: ", line) for line in joined.splitlines())


def _plain(paragraph: str) -> str:
    """Text outside backticks without the signs that Markdown would take for its own; pages named are linked."""
    pieces = re.split(r"(`[^`]*`)", paragraph)
    safe = [piece if number % 2 else re.sub(r"([*_<\[\]])", r"\\\1", piece) for number, piece in enumerate(pieces)]
    return re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", "".join(safe))


def kind_of(value: Any) -> str:
    """The directive of Sphinx's Python domain."""
    if inspect.isclass(value):
        return "py:exception" if issubclass(value, BaseException) else "py:class"
    return "py:function" if inspect.isroutine(value) else "py:data"


def entry(name: str, value: Any) -> str:
    """One name: its signature, its docstring, and the methods of a class."""
    if not public.needs_example(value):
        shown = repr(value) if len(repr(value)) < 600 else "..."
        return f"````{{py:data}} {name}\n`{shown}`\n````\n"
    colons = "``````"
    body = markdown(public.docstring(value))
    if inspect.isclass(value):
        body += "\n\n" + "\n".join(member(part, found) for part, found in members(value))
    text = f"{colons}{{{kind_of(value)}}} {name}{signature_of(value)}\n{body}\n{colons}\n"
    if name in RESULTS:
        text += "\n" + entry(f"mo.{RESULTS[name]().__name__}", RESULTS[name]())
    return text


def members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties with a docstring that the class itself, or a private base of it, defines."""
    bases = [kind, *(base for base in kind.__mro__[1:] if base.__name__.startswith("_"))]
    found = {name: value for base in reversed(bases) for name, value in vars(base).items()
             if not name.startswith("_") and not inspect.isclass(value)}
    return [(name, value) for name, value in found.items()
            if getattr(value, "__doc__", None) and _is_member(value) and (kind.__name__, name) not in INTERNAL]


def _is_member(value: Any) -> bool:
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isroutine(value) or hasattr(
        value, "function")


def member(name: str, value: Any) -> str:
    """A method or property of a class."""
    text = markdown(inspect.getdoc(value) or "")
    if isinstance(value, (classmethod, staticmethod)):
        return f"`````{{py:method}} {name}{_bound(value.__func__, isinstance(value, classmethod))}\n" \
               f":{'classmethod' if isinstance(value, classmethod) else 'staticmethod'}:\n\n{text}\n`````\n"
    if inspect.isroutine(value):
        return f"`````{{py:method}} {name}{signature_of(value)}\n{text}\n`````\n"
    return f"`````{{py:attribute}} {name}\n{text}\n`````\n"


def _bound(function: Any, drop_first: bool) -> str:
    found = signature_of(function)
    return re.sub(r"^\((?:cls|kind)(?:, )?", "(", found) if drop_first else found
