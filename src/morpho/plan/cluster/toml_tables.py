"""Tables of foreign files (TOML, JSON) whose every fault names the file and the field."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from morpho.base.checks import shown
from morpho.base.errors import ArgumentError, MorphoError, ValueFault, fail
from morpho.plan.model.strict_json import read_limited, strict_json


def read_tables(path: Path) -> dict[str, Any]:
    """The contents of a TOML or JSON file."""
    try:
        text = read_limited(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise fail(ArgumentError, "plan", f"{path} cannot be read: {reason}", "give the path of a text file") from None
    return _json(text, path.name) if path.suffix == ".json" else _toml(text, path.name)


def _json(text: str, file: str) -> dict[str, Any]:
    data = strict_json(text, file)
    if not isinstance(data, dict):
        raise fail(ValueFault, "plan", f"{file} holds a {type(data).__name__}",
                   "its outermost value is an object {...}")
    return data


def _toml(text: str, file: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise fail(ValueFault, "plan", f"{file} is not valid TOML: {error}", "repair the file") from None


class TomlTable:
    """A table of a file that knows where it stands, so that every complaint can say it."""

    def __init__(self, file: str, place: str, data: Any, known: Iterable[str]) -> None:
        self.file, self.place = file, place
        if not isinstance(data, Mapping):
            self.complain(f"is {shown(data)}", "it is a table of fields")
        self.data: Mapping[str, Any] = data
        known = tuple(known)
        for field in data:
            if field not in known:
                near = difflib.get_close_matches(str(field), known, 1)
                self.complain(f"has the unknown field {field!r}",
                              f"did you mean {near[0]}" if near else f"its fields are {', '.join(known)}")

    def complain(self, what: str, hint: str) -> NoReturn:
        """Raise the error of this table."""
        raise fail(ValueFault, "plan", f"{self.file}: {self.place} {what}", hint)

    def text(self, field: str) -> str:
        """A field that must be there and be text."""
        if field not in self.data:
            self.complain(f"lacks the field {field!r}", f"add {field} = ...")
        if not isinstance(self.data[field], str) or not self.data[field]:
            self.complain(f"has {field} = {shown(self.data[field])}", "it is text that is not empty")
        if not self.data[field].isprintable():
            self.complain(f"has {field} = {shown(self.data[field])}", "it is text that can be printed in a line")
        return str(self.data[field])

    def quantity(self, field: str, parse: Callable[[str], float], example: str, zero: bool = False) -> float:
        """A field that must be there: a positive quantity with its unit."""
        if field not in self.data:
            self.complain(f"lacks the field {field!r}", f'add {field} = "{example}"')
        return self.parsed(field, self.data[field], parse, example, zero)

    def parsed(self, field: str, value: Any, parse: Callable[[str], float], example: str, zero: bool = False) -> float:
        """The number that a value of a field means."""
        if not isinstance(value, str):
            self.complain(f"has {field} = {shown(value)} without a unit",
                          f'write it as text, as in {field} = "{example}"')
        if value.strip().replace(".", "", 1).isdecimal() and not (zero and not float(value)):
            self.complain(f"has {field} = {shown(value)} without a unit", f'write it as in {field} = "{example}"')
        if value.strip().startswith("-"):
            self.complain(f"has the negative {field} = {shown(value)}", f'give a positive one, as in "{example}"')
        try:
            number = parse(value)
        except MorphoError:
            self.complain(f"has {field} = {shown(value)}", f'write it as in "{example}"')
        if number <= 0 and not (zero and number == 0):
            self.complain(f"has {field} = {shown(value)}", "it must be more than zero")
        return number

    def number(self, field: str, default: float) -> float:
        """A plain positive number."""
        value = self.data.get(field, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
            self.complain(f"has {field} = {shown(value)}", "it is a positive number without a unit")
        return float(value)
