"""`not`, `if`, `oneOf`, `contains` and dependences in JSON schemas: what a grammar takes, and what the words mean."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.grammar import Grammars
from morpho.serve.engine.request import Grammar

pytest.importorskip("llguidance", reason="the extra `serve`")

LIMITS = {"minimum": (float, lambda x, y: x >= y), "maximum": (float, lambda x, y: x <= y),
          "exclusiveMinimum": (float, lambda x, y: x > y), "exclusiveMaximum": (float, lambda x, y: x < y),
          "minLength": (str, lambda x, y: len(x) >= y), "maxLength": (str, lambda x, y: len(x) <= y),
          "minItems": (list, lambda x, y: len(x) >= y), "maxItems": (list, lambda x, y: len(x) <= y)}
VALUES = [None, True, False, 0, 1, 2, 3, 7, -1, 1.5, "", "a", "b", "ab", "abc", 'a"\n', [], ["a"], [1], ["a", 1],
          [1, "a", None], ["a", "a"], [1, 1, "a"], {}, {"k": "a"}, {"k": "b"}, {"k": "a", "n": 1}, {"k": "b", "n": 1},
          {"n": 1}, {"n": 7}, {"k": "a", "n": 1, "s": "a"}, {"k": "b", "n": 7, "s": "b"}, {"n": 7, "s": "ab"},
          {"s": "a"}]


def kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def equal(one: Any, other: Any) -> bool:
    return kind(one) is kind(other) and bool(one == other)


def fits(schema: Any, value: Any) -> bool:
    """JSON Schema 2020-12, as far as these tests use it."""
    if isinstance(schema, bool):
        return schema
    return all(holds(word, schema, value) for word in schema)


def holds(word: str, schema: Any, value: Any) -> bool:
    said = schema[word]
    if word == "type":
        kinds = {"null": type(None), "boolean": bool, "number": float, "string": str, "array": list, "object": dict}
        return any(kind(value) is float and value == int(value) if one == "integer" else kind(value) is kinds[one]
                   for one in ([said] if isinstance(said, str) else said))
    if word in LIMITS:
        return kind(value) is not LIMITS[word][0] or LIMITS[word][1](value, said)
    if word in ("const", "enum"):
        return any(equal(value, one) for one in ([said] if word == "const" else said))
    if word in ("allOf", "anyOf", "oneOf"):
        count = sum(fits(one, value) for one in said)
        return {"allOf": count == len(said), "anyOf": count > 0, "oneOf": count == 1}[word]
    if word == "not":
        return not fits(said, value)
    if word == "if":
        return fits(schema.get("then", True) if fits(said, value) else schema.get("else", True), value)
    if kind(value) is list and word in ("items", "prefixItems", "contains"):
        first = schema.get("prefixItems", [])
        if word == "prefixItems":
            return all(fits(one, item) for one, item in zip(said, value, strict=False))
        if word == "items":
            return all(fits(said, item) for item in value[len(first):])
        return schema.get("minContains", 1) <= sum(fits(said, item) for item in value) <= schema.get("maxContains", 99)
    if kind(value) is dict:
        if word == "required":
            return all(name in value for name in said)
        if word == "properties":
            return all(fits(said[name], value[name]) for name in value if name in said)
        if word == "additionalProperties":
            return all(name in schema.get("properties", {}) or fits(said, value[name]) for name in value)
        if word in ("dependentRequired", "dependentSchemas"):
            return all(all(other in value for other in then) if word == "dependentRequired" else fits(then, value)
                       for name, then in said.items() if name in value)
    return True


@pytest.fixture(scope="module")
def grammars() -> Any:
    tokenizer = mo.weights.train_bpe('["a", "b", "ab"] {"k": 1} to be or not ' * 4, 300)
    return Grammars(tokenizer, tokenizer.vocab_size, (tokenizer.eos,))


def taken(grammars: Any, schema: Any) -> list[bool]:
    """Of each value, whether the grammar writes it."""
    found = []
    matcher = grammars.matcher(Grammar("json_schema", json.dumps(schema)))._matcher
    for value in VALUES:
        ids = grammars._vocabulary(json.dumps(value))
        one = matcher.deep_copy()
        found.append(one.try_consume_tokens(ids) == len(ids) and one.is_accepting())
    return found


OBJECT = {"type": "object", "additionalProperties": False, "properties": {
    "k": {"enum": ["a", "b"]}, "n": {"type": "integer"}, "s": {"type": "string"}}}


@pytest.mark.parametrize("schema", [
    {"not": {"type": "string"}}, {"not": {"const": "ab"}}, {"not": {"enum": ["a", "ab", "", 1, None, True, []]}},
    {"type": "string", "not": {"enum": ["a", 'a"\n', "abc"]}}, {"type": "integer", "not": {"enum": [1, 3]}},
    {"type": "number", "not": {"minimum": 1, "maximum": 2}}, {"not": {"minLength": 1, "type": "string"}},
    {**OBJECT, "not": {"required": ["n"]}}, {**OBJECT, "not": {"required": ["k", "n"]}},
    {**OBJECT, "not": {"properties": {"k": {"const": "a"}}, "required": ["k"]}},
    {**OBJECT, "not": {"anyOf": [{"required": ["s"]}, {"properties": {"n": {"minimum": 5}}}]}},
    {**OBJECT, "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["n"]}, "else": {"required": ["s"]}},
    {**OBJECT, "if": {"required": ["s"]}, "then": {"required": ["k"]}},
    {**OBJECT, "if": {"required": ["s"]}, "else": {"properties": {"n": {"const": 1}}}},
    {**OBJECT, "required": ["k"], "allOf": [
        {"if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["n"]}},
        {"if": {"properties": {"k": {"const": "b"}}}, "then": {"required": ["s"]}}]},
    {"if": {"type": "string"}, "then": {"maxLength": 1}, "else": {"type": ["null", "boolean"]}},
    {**OBJECT, "dependentRequired": {"n": ["s"], "s": ["k", "n"]}},
    {**OBJECT, "dependentSchemas": {"n": {"properties": {"k": {"const": "a"}}, "required": ["k"]}}},
    {"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 2}]},
    {"oneOf": [{"type": "number", "minimum": 1}, {"type": "integer", "maximum": 2}, {"type": "null"}]},
    {"oneOf": [{**OBJECT, "required": ["n"]}, {**OBJECT, "required": ["s"]}]},
    {"not": {"not": {"type": "array", "items": {"const": "a"}}}},
    {"type": "array", "not": {"items": {"type": "number"}}},
    {"type": "array", "items": {"enum": ["a", 1, None]}, "contains": {"type": "number"}},
    {"type": "array", "contains": {"const": "a"}, "maxContains": 1, "maxItems": 2},
    {"type": "array", "contains": {"const": 1}, "minContains": 2}, {"contains": {"const": "a"}, "minContains": 0}])
def test_a_grammar_takes_what_fits_the_schema(grammars: Any, schema: Any) -> None:
    """All that fits where nothing is narrower by intention, and nothing else."""
    wanted, found = [fits(schema, value) for value in VALUES], taken(grammars, schema)
    wrong = [value for value, one, other in zip(VALUES, wanted, found, strict=True) if other and not one]
    missing = [value for value, one, other in zip(VALUES, wanted, found, strict=True) if one and not other]
    assert not wrong and any(found)
    assert not missing or "contains" in json.dumps(schema) or "items" in json.dumps(schema) or missing == [1.5]


def test_random_schemas(grammars: Any, session_seed: int) -> None:
    """No text of a grammar breaks its schema."""
    rng, refused, written = np.random.default_rng(session_seed), 0, 0
    for _ in range(60):
        schema = random_schema(rng, 3)
        try:
            found = taken(grammars, schema)
        except ArgumentError as error:
            assert "not usable" in str(error)
            refused += 1
            continue
        written += any(found)
        wrong = [value for value, one in zip(VALUES, found, strict=True) if one and not fits(schema, value)]
        assert not wrong, (schema, wrong)
    assert written > 20 > refused, (written, refused)


def test_an_expression_without_quotes(grammars: Any) -> None:
    """The library's own classes let a quote through where they have control characters."""
    schema = {"type": "string", "pattern": '^[^"a]+$'}
    assert [value for value, one in zip(VALUES, taken(grammars, schema), strict=True) if one] == ["b"]


def random_schema(rng: np.random.Generator, depth: int) -> Any:
    def pick(items: Any) -> Any:
        return items[int(rng.integers(len(items)))]

    leaves = [{"type": pick(["string", "integer", "null", "array", "object"])}, {"const": pick(VALUES[:15])},
              {"type": pick(["string", "number"])}, {"enum": ["a", 1, None]}, {"required": [pick("kns")]},
              {"minimum": 2}, {"maxLength": 1}, {"minItems": 1},
              {"properties": {pick("kns"): {"const": pick(["a", 1])}}}]
    if depth == 0:
        return pick(leaves)
    inner = [random_schema(rng, depth - 1) for _ in range(3)]
    return pick([{"not": inner[0]}, {"if": inner[0], "then": inner[1], "else": inner[2]}, {"oneOf": inner[:2]},
                 {"anyOf": inner[:2]}, {"allOf": inner[:2]}, {"type": "array", "contains": inner[0], "maxItems": 3},
                 {**OBJECT, "if": inner[0], "then": inner[1]}, {"dependentSchemas": {"k": inner[0]}}, pick(leaves)])


@pytest.mark.parametrize(("schema", "said"), [
    ({"not": {"pattern": "a"}}, "'pattern': it stands in a 'not'"), ({"not": {}}, "no value fits it"),
    ({"not": {"multipleOf": 2}}, "'multipleOf'"), ({"not": {"const": [1]}}, "'not'"),
    ({"type": "array", "contains": {"type": "null"}, "maxContains": 9}, "'maxContains'"),
    ({"not": {"required": "a"}}, "'required': its value cannot be \"a\""), ({"not": {"minimum": True}}, "'minimum'"),
    ({"not": {"properties": [1]}}, "'properties': its value"), ({"not": {"allOf": 3}}, "'allOf'"),
    ({"unevaluatedProperties": False}, "'unevaluatedProperties': write 'additionalProperties'"),
    ({"$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["b"]}}, "not": {"$ref": "#/$defs/A"}},
     "nested too deeply"),
    ({"if": {"patternProperties": {"a": {}}}, "then": False}, "'patternProperties'.*anyOf")])
def test_what_has_no_form_is_named(grammars: Any, schema: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        grammars.matcher(Grammar("json_schema", json.dumps(schema)))
