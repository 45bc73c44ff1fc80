"""JSON schemas as the library of grammars takes them, and what it cannot follow.

A schema is rewritten where the library lacks a word that other words can say (`propertyNames`, `not`, `if`, some
patterns of pydantic's), keywords that a text cannot be held to are refused by name, and formats that it does not know
are left out: to JSON Schema a format is a remark. `uniqueItems` is no matter of a grammar: `UniqueItems` looks at
tokens for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from morpho.serve.engine.schema_logic import in_json, opposite, refusal, resolved, statements

VALUES = ("enum", "const", "default", "examples", "example")  # of a schema: what stands there is no schema
NAMED = ("properties", "$defs", "definitions", "patternProperties")  # names -> schemas
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const")
LARGEST = (1 << 53) - 1  # an integer that every reader of JSON takes exactly (RFC 8259)
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"})
REFUSED = {"unevaluatedProperties": "write 'additionalProperties'", "unevaluatedItems": "write 'items'"}
ELSEWHERE = ("minContains", "maxContains", "then", "else", "uniqueItems", "propertyNames", "not", "if", "contains",
             "dependentRequired", "dependentSchemas", "dependencies")  # looked at elsewhere
MOST_OPPOSITES = 1000  # of one schema
# What pydantic writes for a Decimal: its expression looks ahead, which automata cannot.
PATTERNS = {r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$"}
NAMES = {"uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",  # of properties, by format
         "date": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"}
MOST_FINITE = 1024  # values of an item that are looked at one by one
CLOSING = b'",]}'  # bytes that may end an item


def prepared(schema: Any, apart: bool = False) -> Any:
    """The schema in the library's words. `apart`: alternatives of a `oneOf` that may overlap are told apart.

    >>> from morpho.serve.engine.schema import prepared
    >>> prepared({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "null"}})
    {'type': 'object', 'additionalProperties': False, 'properties': {'a': {'type': 'null'}, 'b': {'type': 'null'}}}
    """
    found = _Preparing(schema, apart).prepared(schema)
    if found is False:
        raise ValueError("no value fits it")
    _require_tags(found, found)
    return found


def _require_tags(schema: Any, root: Any) -> None:
    """Make the tag of alternatives with a discriminator a property that they must have: that is what the word means,
    but pydantic leaves out of `required` what has a default."""
    for one in schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ():
        _require_tags(one, root)
    tag = schema.get("discriminator") if isinstance(schema, dict) else None
    name = tag.get("propertyName") if isinstance(tag, dict) else None
    alternatives = schema.get("oneOf", schema.get("anyOf")) if name is not None else None
    for each in alternatives if isinstance(alternatives, list) else ():
        each = resolved(each, root)
        if isinstance(each, dict) and name in each.get("properties", ()) and name not in each.get("required", ()):
            each["required"] = [*each.get("required", ()), name]


class _Preparing:
    """One schema on its way."""

    def __init__(self, root: Any, apart: bool) -> None:
        self.root, self.apart, self.opposites = root, apart, 0

    def prepared(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.prepared(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        if {*schema} == {"not"}:  # what stands in its place
            self.opposites += 1
            if self.opposites > MOST_OPPOSITES:
                raise refusal("not", "its opposite is too large, or never ends")
            return self.prepared(opposite(schema["not"], self.root))
        for word, hint in REFUSED.items():
            if word in schema and schema[word] is not True and schema[word] != {}:
                raise refusal(word, hint)
        found: dict[str, Any] = {}
        for name, value in schema.items():
            if name in REFUSED or name in ELSEWHERE or (name == "format" and value not in FORMATS) or (
                    name == "oneOf" and self.apart):
                continue
            if name in NAMED and isinstance(value, dict):
                found[name] = {key: self.prepared(each) for key, each in value.items()}
            else:
                found[name] = value if name in VALUES else self.prepared(value)
        beside = [self.prepared(each) for each in statements(schema, self.root, self.apart)]
        if beside:
            found["allOf"] = [*found.get("allOf", ()), *beside]
        if isinstance(found.get("pattern"), str):
            found["pattern"] = in_json(PATTERNS.get(found["pattern"], found["pattern"]))
        return _bounded(_with_names(found, schema.get("propertyNames"), self.root))


def _with_names(schema: dict[str, Any], names: Any, root: Any) -> dict[str, Any]:
    """`propertyNames` as properties or patterns of them."""
    names = resolved(names, root)
    if not isinstance(names, dict) or not {"enum", "const", "pattern", "format"} & {*names}:
        if isinstance(names, dict) and {"minLength", "maxLength", "anyOf", "oneOf", "allOf"} & {*names}:
            raise ValueError("'propertyNames' is taken with 'enum', 'const', 'pattern' or 'format' alone")
        return schema
    others = schema.get("additionalProperties", True)
    if "properties" in schema or "patternProperties" in schema:
        raise ValueError("'propertyNames' beside 'properties' is not taken: list the properties")
    listed = names.get("enum", [names["const"]] if "const" in names else None)
    if isinstance(listed, list):
        return {**schema, "properties": {name: others for name in listed if isinstance(name, str)},
                "additionalProperties": False}
    pattern = names.get("pattern", NAMES.get(names.get("format", "")))
    if pattern is None:
        return schema
    return {**schema, "patternProperties": {pattern: others}, "additionalProperties": False}


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """At most 53 bits for an integer that has no bounds of its own. Small models like to write digits for ever, and a
    text that is cut within a number does not parse."""
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "integer" in kinds and "number" not in kinds and not any(name in schema for name in BOUNDS):
        return {**schema, "minimum": -LARGEST, "maximum": LARGEST}
    if kinds == ["integer"] and {*BOUNDS} & {*schema} == {"minimum"} and 0 <= _number(schema["minimum"]) <= LARGEST:
        return {**schema, "maximum": LARGEST}  # from 0 or 1 on: the usual count
    return schema


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else -1


# -- items that differ -------------------------------------------------------------------------------------------------
def asks_unique(schema: Any) -> bool:
    """Whether a list of a schema wants items that differ."""
    if isinstance(schema, list):
        return any(map(asks_unique, schema))
    if not isinstance(schema, dict):
        return False
    return schema.get("uniqueItems") is True or any(asks_unique(each) for name, each in schema.items()
                                                    if name not in VALUES)


@dataclass
class _Level:
    """An array or object that has begun: where in the text, and the schemas that may hold for it."""

    start: int
    array: bool
    schemas: list[dict[str, Any]]
    unique: bool = False
    finite: tuple[bytes, ...] | None = None  # the items there can be, as text
    seen: frozenset[Any] = frozenset()
    texts: frozenset[bytes] = frozenset()  # of the items that were seen
    index: int = 0
    key: str | None = None
    names: bool = field(default=False)  # the next string is a name


class UniqueItems:
    """Follows a text of JSON and says which tokens would end an item that is there already. Where a schema has
    alternatives, items differ if one of those that a list may follow wants that.

    >>> from morpho.serve.engine.schema import UniqueItems
    >>> unique = UniqueItems({"type": "array", "items": {"type": "string"}, "uniqueItems": True})
    >>> unique.take(b'["a", "')
    >>> unique.fits(b'b"'), unique.fits(b'a"'), unique.fits(b'ab')
    (True, False, True)
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._text = bytearray()
        self._levels: list[_Level] = []
        self._string = self._escaped = False
        self._begun = -1  # where the value begins that is neither array nor object

    @property
    def listed(self) -> bool:
        """Whether an item is one of some that are known."""
        return bool(self._levels) and self._levels[-1].finite is not None

    def fits(self, token: bytes) -> bool:
        """Whether a token may come."""
        length, state = len(self._text), (self._string, self._escaped, self._begun)
        levels, self._levels = self._levels, [replace(level) for level in self._levels]
        right = self._read(token)
        self._levels = levels
        self._string, self._escaped, self._begun = state
        del self._text[length:]
        return right

    def take(self, token: bytes) -> None:
        """A token came."""
        self._read(token)

    def _read(self, token: bytes) -> bool:
        for byte in token:
            self._text.append(byte)
            if not self._next(chr(byte), len(self._text) - 1):
                return False
        level = self._levels[-1] if self._levels else None
        if level is None or level.finite is None or self._begun < 0:
            return True
        part = bytes(self._text[self._begun:])
        return any(text.startswith(part) for text in level.finite if text not in level.texts)

    def _next(self, letter: str, place: int) -> bool:
        level = self._levels[-1] if self._levels else None
        if self._string:
            if self._escaped:
                self._escaped = False
            elif letter == "\\":
                self._escaped = True
            elif letter == '"':
                self._string = False
                if level is not None and level.names:
                    level.key, level.names = str(json.loads(self._text[self._begun:place + 1])), False
                    self._begun = -1
                    return True
                return self._ended(place + 1)
            return True
        if letter in "{[":
            schemas = self._here()
            self._levels.append(self._level(place, letter == "[", schemas))
            return True
        if letter in " \n\r\t,]}":
            if self._begun >= 0 and not self._ended(place):
                return False
            if letter == "," and level is not None:
                level.index, level.names = level.index + 1, not level.array
                return level.finite is None or any(text not in level.texts for text in level.finite)
            if letter in "]}" and self._levels:
                start = self._levels.pop().start
                return self._add(start, place + 1)
            return True
        if letter != ":" and self._begun < 0:
            self._begun, self._string = place, letter == '"'
        return True

    def _ended(self, stop: int) -> bool:
        start, self._begun = self._begun, -1
        return self._add(start, stop)

    def _add(self, start: int, stop: int) -> bool:
        """A value is complete."""
        level = self._levels[-1] if self._levels else None
        if level is None or not level.unique:
            return True
        text = bytes(self._text[start:stop])
        try:
            value = _plain(json.loads(text))
        except ValueError:  # half of a surrogate pair
            value = text
        if value in level.seen:
            return False
        level.seen, level.texts = level.seen | {value}, level.texts | {text}
        return True

    # -- schemas ----------------------------------------------------------------------------------------------------
    def _level(self, start: int, array: bool, schemas: list[dict[str, Any]]) -> _Level:
        unique = array and any(each.get("uniqueItems") is True for each in schemas)
        finite = None
        if unique:
            items = [values for each in schemas if each.get("uniqueItems") is True
                     and (values := self._finite(each.get("items"))) is not None]
            finite = tuple(items[0]) if len(items) == 1 else None
        return _Level(start, array, schemas, unique, finite, names=not array)

    def _here(self) -> list[dict[str, Any]]:
        """The schemas of the value that begins."""
        if not self._levels:
            return [*self._wide(self._root)]
        level, found = self._levels[-1], []
        for schema in level.schemas:
            found += self._inner(schema, level)
        return [each for one in found for each in self._wide(one)]

    @staticmethod
    def _inner(schema: dict[str, Any], level: _Level) -> list[Any]:
        if level.array:
            first = schema.get("prefixItems", [])
            return [first[level.index] if level.index < len(first) else schema.get("items")]
        key, properties = level.key or "", schema.get("properties", {})
        found = [properties[key]] if key in properties else []
        found += [each for pattern, each in schema.get("patternProperties", {}).items() if re.search(pattern, key)]
        return found or [schema.get("additionalProperties")]

    def _wide(self, schema: Any) -> Iterator[dict[str, Any]]:
        """A schema, what it refers to, and its alternatives."""
        waiting, seen = [schema], set()
        while waiting:
            one = waiting.pop()
            if not isinstance(one, dict) or id(one) in seen:
                continue
            seen.add(id(one))
            yield one
            waiting += [resolved(one, self._root) if "$ref" in one else None]
            for word in ("anyOf", "oneOf", "allOf"):
                waiting += one.get(word, ())
            waiting += [one.get("then"), one.get("else")]
            for word in ("dependentSchemas", "dependencies"):
                waiting += one[word].values() if isinstance(one.get(word), dict) else ()

    def _finite(self, schema: Any) -> list[bytes] | None:
        """The values of a schema as text, where they are listed."""
        schema = resolved(schema, self._root)
        if not isinstance(schema, dict):
            return None
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is None and isinstance(schema.get("anyOf"), list):
            parts = [self._finite(each) for each in schema["anyOf"]]
            return None if None in parts else [text for part in parts for text in part or ()]
        if values is None:
            listed = {"boolean": [True, False], "null": [None], "integer": _between(schema)}
            values = listed.get(str(schema.get("type")))
        if not isinstance(values, list) or len(values) > MOST_FINITE or any(isinstance(each, dict | list)
                                                                           for each in values):
            return None
        return [json.dumps(each, ensure_ascii=False).encode("utf-8", "replace") for each in values]


def _between(schema: dict[str, Any]) -> list[int] | None:
    """The integers of a schema, where it has few."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if type(least) is not int or type(most) is not int or {*BOUNDS[2:]} & {*schema} or most - least >= MOST_FINITE:
        return None
    return [*range(least, most + 1)]


def _plain(value: Any) -> Any:
    """A value that can be compared as JSON Schema does: 1 and 1.0 are equal, true is not 1."""
    if isinstance(value, dict):
        return "object", frozenset((name, _plain(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_plain, value))
    return type(value).__name__ if isinstance(value, bool | str) else "", value
