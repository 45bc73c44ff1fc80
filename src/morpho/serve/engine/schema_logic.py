"""`not`, `if`, `oneOf`, `contains` and dependences of JSON schemas in words that a grammar can follow.

A schema is a statement about values, so its opposite is one too: the opposite of a minimum is an exclusive maximum, of
properties that all must fit, that one of them does not. With opposites, `if` and `oneOf` are alternatives. `opposite`
goes one level down and leaves `{"not": ...}` around the rest, which its caller takes apart in turn.

Some are narrower than they say: the items that `contains` asks for stand among the first ones, the opposite of
`integer` has no numbers at all, and that of a closed object no object with another property. Every text of the grammar
fits the schema; not every value that fits can be written.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

KINDS = ("null", "boolean", "number", "string", "array", "object")
PLACES = 4  # of a list where an item that `contains` asks for may be
MOST_VALUES = 64  # of an `enum` whose opposite is written
MOST_LETTERS = 4096  # of their texts together
REMARKS = frozenset({"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
                     "discriminator", "$schema", "$id", "$comment", "$anchor", "$defs", "definitions"})
BESIDE = frozenset({"then", "else", "minContains", "maxContains"})  # said with another keyword
LIMITS = {"minimum": ("number", "exclusiveMaximum", 0), "maximum": ("number", "exclusiveMinimum", 0),
          "exclusiveMinimum": ("number", "maximum", 0), "exclusiveMaximum": ("number", "minimum", 0),
          "minLength": ("string", "maxLength", -1), "maxLength": ("string", "minLength", 1),
          "minItems": ("array", "maxItems", -1), "maxItems": ("array", "minItems", 1)}
# Types of keywords' values, which `opposite` looks into.
SHAPES: dict[str, Any] = {**dict.fromkeys(("required", "allOf", "anyOf", "oneOf", "enum", "prefixItems"), list),
                          **dict.fromkeys(("properties", "dependentRequired", "dependentSchemas"), dict),
                          **dict.fromkeys(LIMITS, int | float), "type": str | list}
INSTEAD = "write the alternatives that may come with 'anyOf', 'enum' or 'const' instead"


def refusal(word: str, hint: str = INSTEAD) -> ValueError:
    """The error of a keyword that no text can be held to."""
    return ValueError(f"no text can be held to its keyword '{word}': {hint}")


def statements(schema: Mapping[str, Any], root: Any, apart: bool) -> list[Any]:
    """Conditions of a schema by `not`, `if`, `contains` and dependences (`apart`: and by `oneOf`), as schemas that must
    hold beside the rest.

    >>> from morpho.serve.engine.schema_logic import statements
    >>> statements({"type": "string", "not": {"minLength": 3}}, {}, False)
    [{'not': {'minLength': 3}}]
    >>> statements({"dependentRequired": {"a": ["b"]}}, {}, False)
    [{'anyOf': [{'properties': {'a': False}}, {'required': ['a', 'b']}]}]
    """
    found: list[Any] = []
    if "not" in schema:
        found.append({"not": schema["not"]})
    if "if" in schema and {"then", "else"} & {*schema}:
        test = schema["if"]
        found.append({"anyOf": [{"allOf": [test, schema.get("then", True)]},
                                {"allOf": [{"not": test}, schema.get("else", True)]}]})
    if "contains" in schema:
        found += _containing(schema)
    dependences = {word: schema.get(word) for word in ("dependentRequired", "dependentSchemas", "dependencies")}
    for word, each in dependences.items():
        if each is not None and not isinstance(each, dict):
            raise refusal(word, "it is an object of names")
        found += [_dependent(name, then) for name, then in (each or {}).items()]
    if apart and isinstance(schema.get("oneOf"), list):
        found.append({"anyOf": _apart(schema["oneOf"], root)})
    return found


def _containing(schema: Mapping[str, Any]) -> list[Any]:
    least, most, item = schema.get("minContains", 1), schema.get("maxContains"), schema["contains"]
    if type(least) is not int or not (most is None or type(most) is int):
        raise refusal("contains", "'minContains' and 'maxContains' are whole numbers")
    others = {"type": [kind for kind in KINDS if kind != "array"]}
    if most is not None:  # those that fit come first
        if most - least >= PLACES or max(least, most) > MOST_VALUES:
            raise refusal("maxContains", f"give it at most {PLACES - 1} above 'minContains'")
        lists = [{"type": "array", "prefixItems": [item] * count, "minItems": count, "items": {"not": item}}
                 for count in range(least, most + 1)]
        return [{"anyOf": [*lists, others]}]
    if least < 1:
        return []
    if least > MOST_VALUES:
        raise refusal("minContains", f"at most {MOST_VALUES}")
    last = schema.get("maxItems")
    places = PLACES if type(last) is not int else min(PLACES, last - least + 1)
    return [{"anyOf": [*[{"type": "array", "prefixItems": [True] * place + [item] * least, "minItems": place + least}
                         for place in range(places)], others]}]


def _dependent(name: str, then: Any) -> Any:
    """A property that comes with others, or with a schema."""
    if isinstance(then, list):
        return {"anyOf": [{"properties": {name: False}}, {"required": [name, *then]}]}
    return {"anyOf": [{"properties": {name: False}}, {"allOf": [{"required": [name]}, then]}]}


def _apart(alternatives: list[Any], root: Any) -> list[Any]:
    """The alternatives of a `oneOf`, each without the others that it may overlap."""
    plain = [resolved(each, root) for each in alternatives]
    return [{"allOf": [one, *[{"not": other} for m, other in enumerate(alternatives)
                              if m != n and not _disjoint(plain[n], plain[m])]]}
            for n, one in enumerate(alternatives)]


def _disjoint(one: Any, other: Any) -> bool:
    """Whether types, values or a property with values, which both require, tell two schemas apart."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    kinds, values = [_kinds(each) for each in (one, other)], [_values(each) for each in (one, other)]
    if None not in kinds and not kinds[0] & kinds[1]:  # type: ignore[operator]
        return True
    if None not in values and not values[0] & values[1]:  # type: ignore[operator]
        return True
    if kinds != [{"object"}, {"object"}]:
        return False
    both = {*_names(one.get("required"))} & {*_names(other.get("required"))}
    return any(_disjoint(one["properties"][name], other["properties"][name]) for name in both
               if all(isinstance(each.get("properties"), dict) and name in each["properties"] for each in (one, other)))


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _kinds(schema: Mapping[str, Any]) -> set[str] | None:
    kinds = schema.get("type")
    named = {kinds} if isinstance(kinds, str) else {*_names(kinds)}
    return {"number" if kind == "integer" else kind for kind in named} or None


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return None
    return {f"{type(each).__name__ if isinstance(each, bool) else ''}{json.dumps(each, sort_keys=True)}"
            for each in (int(each) if isinstance(each, float) and each.is_integer() else each for each in listed)}


# -- opposites ---------------------------------------------------------------------------------------------------------
def opposite(schema: Any, root: Any) -> Any:
    """A schema that holds where this one does not.

    >>> from morpho.serve.engine.schema_logic import opposite
    >>> opposite({"required": ["a"]}, {})
    {'type': 'object', 'properties': {'a': False}}
    >>> opposite({"type": ["string", "null"]}, {})
    {'type': ['boolean', 'number', 'array', 'object']}
    """
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, dict):
        raise refusal("not", "it holds a schema")
    parts = [part for word in schema if word not in REMARKS | BESIDE for part in _opposites(word, schema, root)]
    return parts[0] if len(parts) == 1 else {"anyOf": parts} if parts else False


def _opposites(word: str, schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """Schemas of which one holds where a keyword does not."""
    value = schema[word]
    if not isinstance(value, SHAPES.get(word, object)) or (word in LIMITS and isinstance(value, bool)):
        raise refusal(word, f"its value cannot be {json.dumps(value)[:40]}")
    if word == "type":
        kinds = _kinds(schema) or set()
        yield {"type": [kind for kind in KINDS if kind not in kinds]}
    elif word in ("const", "enum"):
        yield from _other_than([value] if word == "const" else value)
    elif word == "required":
        yield from ({"type": "object", "properties": {name: False}} for name in value)
    elif word == "properties":
        yield from ({"type": "object", "required": [name], "properties": {name: {"not": each}}}
                    for name, each in value.items() if each is not True and each != {})
    elif word in LIMITS:
        kind, turned, step = LIMITS[word]
        if value + step >= 0 or kind == "number":
            yield {"type": kind, turned: value + step}
    elif word == "allOf":
        yield from ({"not": each} for each in value)
    elif word in ("anyOf", "oneOf"):
        yield {"allOf": [{"not": each} for each in value]}
        if word == "oneOf":
            yield from ({"allOf": [*pair]} for pair in itertools.combinations(value, 2))
    elif word == "not":
        yield value
    elif word == "if":
        yield {"allOf": [value, {"not": schema.get("then", True)}]}
        yield {"allOf": [{"not": value}, {"not": schema.get("else", True)}]}
    elif word == "$ref":
        yield {"not": resolved({"$ref": value}, root)}
    elif word == "prefixItems":
        yield from ({"type": "array", "prefixItems": [*[True] * place, {"not": each}], "minItems": place + 1}
                    for place, each in enumerate(value))
    elif word == "items" and "prefixItems" not in schema:
        yield {"type": "array", "contains": {"not": value}}
    elif word == "contains" and not {"minContains", "maxContains"} & {*schema}:
        yield {"type": "array", "items": {"not": value}}
    elif word == "dependentRequired":
        yield from ({"type": "object", "required": [name], "properties": {other: False}}
                    for name, others in value.items() for other in others)
    elif word == "dependentSchemas":
        yield from ({"type": "object", "required": [name], "allOf": [{"not": each}]} for name, each in value.items())
    elif value is not (word != "uniqueItems") and value != {} and word not in ("format", "additionalProperties"):
        raise refusal(word, f"it stands in a 'not', an 'if' or a 'oneOf' whose opposite is needed; {INSTEAD}")


def _other_than(values: Any) -> Iterator[Any]:
    """Alternatives of all values but these."""
    if not isinstance(values, list) or len(values) > MOST_VALUES:
        raise refusal("enum", f"the opposite of more than {MOST_VALUES} values is needed; {INSTEAD}")
    texts = [value for value in values if isinstance(value, str)]
    numbers = sorted({value for value in values if isinstance(value, int | float) and not isinstance(value, bool)})
    if None not in values:
        yield {"type": "null"}
    truths = [truth for truth in (False, True) if not any(value is truth for value in values)]
    if truths:
        yield {"enum": truths}
    yield {"type": "string", "pattern": other_texts(texts)} if texts else {"type": "string"}
    bounds = [None, *numbers, None]
    for low, high in itertools.pairwise(bounds):
        yield {"type": "number", **({} if low is None else {"exclusiveMinimum": low}),
               **({} if high is None else {"exclusiveMaximum": high})}
    for kind, least, python in (("array", "minItems", list), ("object", "minProperties", dict)):
        listed = [value for value in values if isinstance(value, python)]
        if any(listed):
            raise refusal("not", f"the opposite of a list or object among the values is needed; {INSTEAD}")
        yield {"type": kind, least: 1} if listed else {"type": kind}


def other_texts(texts: list[str]) -> str:
    """An expression for all texts but these.

    >>> from morpho.serve.engine.schema_logic import other_texts
    >>> import re
    >>> [bool(re.match(other_texts(["ab", "a"]), text)) for text in ("", "a", "ab", "abc", "b")]
    [True, False, False, True, True]
    """
    if sum(map(len, texts)) > MOST_LETTERS:
        raise refusal("enum", f"the opposite of texts of more than {MOST_LETTERS} letters is needed; {INSTEAD}")
    return f"^(?:{'|'.join(_behind({*texts}))})$"


def _behind(texts: set[str]) -> list[str]:
    """Alternatives for what may follow where none of these may."""
    branches = [] if "" in texts else [""]
    letters: dict[str, set[str]] = {}
    for text in texts - {""}:
        letters.setdefault(text[0], set()).add(text[1:])
    others = "".join(map(_letter, sorted(letters)))
    branches.append(in_json(f"[^{others}]") + "(?s:.)*" if others else "(?s:.)+")
    return branches + [f"{_letter(first)}(?:{'|'.join(_behind(rest))})" for first, rest in sorted(letters.items())]


def in_json(expression: str) -> str:
    """An expression as the library may have it: of a class that has control characters it writes every escape, `\\"`
    too, so a class without `"` or the backslash goes without control characters.

    >>> from morpho.serve.engine.schema_logic import in_json
    >>> in_json('^[^"]*[^a]$')
    '^[^"\\\\x00-\\\\x1f]*[^a]$'
    """
    def without(match: re.Match[str]) -> str:
        inside = match.group(1)
        escapes = inside is not None and ('"' in inside or "\\\\" in inside)
        return f"[^{inside}\\x00-\\x1f]" if escapes else match.group()

    return re.sub(r"\\.|\[\^((?:\\.|[^\[\]\\])+)\]", without, expression)


def _letter(letter: str) -> str:
    """A letter in an expression, inside of a class too."""
    if letter < " " or letter == "\x7f":
        return f"\\x{ord(letter):02x}"
    return letter if letter.isalnum() or letter > "~" or letter in "<>" else f"\\{letter}"


def resolved(schema: Any, root: Any) -> Any:
    """The schema that a reference within the same one names."""
    for _ in range(64):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        target: Any = root
        for part in schema["$ref"].removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, dict) else None
        schema = target
    return None
