"""JSON schemas that the library of grammars does not take as they are: what pydantic writes, items that differ."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.serve.engine.grammar import Grammars
from morpho.serve.engine.request import Grammar, SamplingParams
from morpho.serve.engine.sampler import Sampler
from morpho.serve.engine.schema import UniqueItems

pytest.importorskip("llguidance", reason="the extra `serve`")
pydantic = pytest.importorskip("pydantic", reason="the client library of the extra `test`")

LETTERS = b'ab"], 1}'  # which random texts prefer, so that they end, and repeat themselves


@pytest.fixture(scope="module")
def grammars() -> Any:
    tokenizer = mo.weights.train_bpe('["a", "b", "ab"] {"a": 1} to be or not ' * 4, 300)
    return Grammars(tokenizer, tokenizer.vocab_size, (tokenizer.eos,))


def text_of(grammars: Any, schema: Any, seed: int, most: int = 400, temperature: float = 1.0) -> str | None:
    """What random logits write; None where the text is not complete after so many tokens."""
    matcher = grammars.matcher(Grammar("json_schema", json.dumps(schema)))
    sampler = Sampler(SamplingParams(temperature=temperature, seed=seed), (), stops=grammars._ends)
    rng, found = np.random.default_rng(seed), b""
    tokens = grammars._vocabulary.tokens
    liked = np.array([5.0 * (0 < len(token) < 5 and all(byte in LETTERS for byte in token)) for token in tokens])
    for _ in range(most):
        logits = (rng.normal(size=len(tokens)) + liked).astype(np.float32)
        token = sampler.choose(logits, *matcher.choice())
        if token in grammars._ends:
            return found.decode()
        found += tokens[token]
        if matcher.took(token):
            return found.decode()
    return None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: Annotated[int, pydantic.Field(ge=0, le=9)]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, pydantic.Field(max_length=4)]


@pytest.mark.parametrize("kind", [
    Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], set[Literal["red", "reddish", "blue", "b"]],
    Annotated[set[Annotated[str, pydantic.Field(max_length=3)]], pydantic.Field(max_length=4)], set[bool],
    Annotated[frozenset[Annotated[int, pydantic.Field(ge=0, le=30)]], pydantic.Field(max_length=3)], set[Colour],
    dict[Literal["x", "y"], bool], dict[Colour, bool],
    Annotated[dict[str, bool], pydantic.Field(min_length=1, max_length=2)],
    Annotated[dict[UUID, bool], pydantic.Field(max_length=1)], tuple[bool, bool], pydantic.SecretStr, None | bool,
    Annotated[list[set[bool]], pydantic.Field(max_length=2)]])
def test_what_pydantic_writes(grammars: Any, kind: Any) -> None:
    """Complete texts are valid by pydantic, and lists of sets have no item twice."""
    adapter = pydantic.TypeAdapter(kind)
    texts = [text_of(grammars, adapter.json_schema(), seed) for seed in range(6)]
    complete = [text for text in texts if text is not None]
    assert complete or kind is pydantic.SecretStr
    for text in complete:
        adapter.validate_json(text)
        value = json.loads(text)
        if isinstance(value, list) and "uniqueItems" in adapter.json_schema():
            assert len({json.dumps(each) for each in value}) == len(value)


@pytest.mark.parametrize("items", [
    {"type": "string", "maxLength": 2}, {"enum": ["a", "ab", "abc", 'a"b', "é"]}, {"type": "boolean"},
    {"anyOf": [{"const": 1}, {"enum": ["1"]}, {"type": "null"}]}, {"$ref": "#/$defs/A"},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a"],
     "additionalProperties": False}])
def test_items_differ_wherever_the_list_stands(grammars: Any, items: Any) -> None:
    """Inside objects, behind references and alternatives; a list beside it may repeat itself."""
    inner = {"type": "array", "items": items, "uniqueItems": True, "maxItems": 3, "minItems": 2}
    schema = {"type": "object", "additionalProperties": False, "required": ["free", "all"], "properties": {
        "free": {"type": "array", "items": {"const": "a"}, "minItems": 2, "maxItems": 3},
        "all": {"anyOf": [{"$ref": "#/$defs/L"}, {"type": "null"}]}},
        "$defs": {"A": {"enum": ["a", "b", "c"]}, "L": inner}}
    lists = 0
    for seed in range(5):
        try:
            text = text_of(grammars, schema, seed, 120)
        except ArgumentError as error:  # a value that could only be the same one again
            assert "uniqueItems" in str(error) and items["type"] in ("object", "array", "string")
            continue
        if text is None:
            continue
        value = json.loads(text)
        assert {*value["free"]} == {"a"} and len(value["free"]) > 1
        if value["all"] is not None:
            lists += 1
            assert len({json.dumps(each) for each in value["all"]}) == len(value["all"]) >= 2
    assert lists or items.get("type") in ("object", "array", "string")


def test_an_expression_of_pydantics_that_looks_ahead(grammars: Any) -> None:
    schema = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "maxLength": 9}
    text = next(text for seed in range(20) if (text := text_of(grammars, schema, seed)))
    assert Decimal(json.loads(text)).is_finite()


def test_equal_is_what_json_schema_calls_equal() -> None:
    unique = UniqueItems({"type": "array", "uniqueItems": True})
    unique.take(b'[1, "a\\u0062", {"x": [1], "y": true}, ')
    for again in (b"1, ", b"1.0]", b"1e0,", b'"ab"', b'{"y": true, "x": [1.0]}'):
        assert not unique.fits(again), again
    for other in (b"true]", b'"1"', b"11,", b'{"x": [1], "y": 1}', b"1", b"[1]", b'"a\\"b'):
        assert unique.fits(other), other


def test_the_same_random_number_chooses_again(grammars: Any) -> None:
    """A text that goes on elsewhere draws one number for each token."""
    schema = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 2}
    for seed in range(4):
        assert sorted(json.loads(text_of(grammars, schema, seed) or "")) == ["a", "b"]
    params = SamplingParams(temperature=1.0, seed=1)
    free, bound = Sampler(params, ()), Sampler(params, ())
    logits = np.zeros(8, np.float32)
    for _ in range(20):
        free.choose(logits, np.ones(8, bool))
        bound.choose(logits, np.ones(8, bool), lambda token, allowed: None if token > 5 else allowed & (
            np.arange(8) != token))
    assert free.rng.random() == bound.rng.random()


@pytest.mark.parametrize(("schema", "said"), [
    ({"properties": {"a": {}}, "propertyNames": {"enum": ["a"]}}, "'propertyNames'"),
    ({"propertyNames": {"maxLength": 2}}, "'propertyNames'"), ({"unevaluatedProperties": False}, "'unevaluatedProp")])
def test_keywords_that_no_text_is_held_to(grammars: Any, schema: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        grammars.matcher(Grammar("json_schema", json.dumps({"type": "object", "properties": {"p": schema}})))


@pytest.mark.parametrize("schema", [
    {"type": "string", "format": "path"}, {"type": "array", "uniqueItems": False, "minContains": 2},
    {"unevaluatedProperties": True}, {"propertyNames": {"type": "string"}}, {"properties": {"contains": {}, "not": {}}},
    {"properties": {"uniqueItems": {"type": "boolean"}}, "enum": [{"not": 1}]}])
def test_keywords_that_ask_for_nothing(grammars: Any, schema: Any) -> None:
    grammars.matcher(Grammar("json_schema", json.dumps(schema)))
