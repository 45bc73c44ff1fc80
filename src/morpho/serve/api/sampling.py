"""Fields that say how tokens are chosen, as the engine's `SamplingParams`. What a client leaves out is as the model's
own files say (generation_config.json), else as `morpho run` does: a chat takes the likeliest tokens, a continued text
is drawn at temperature 0.8 from the 50 likeliest; of several answers to a chat (`n`) each is drawn so, too."""

from __future__ import annotations

import json
import re
from typing import Any

from morpho.base.errors import ArgumentError
from morpho.models.text.generation_keys import USUAL_TOP_K, Defaults, usual_temperature
from morpho.serve.api.errors import ApiError
from morpho.serve.api.fields import Fields
from morpho.serve.api.limits import Limits
from morpho.serve.engine.request import Grammar, SamplingParams

# Fields of OpenAI's clients that say who asks, where to store, or how much to think: none changes the tokens here.
TEXTS_OF_OTHERS = ("user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                   "verbosity")
# A form by the names of vLLM's older fields, of SGLang's and of llama.cpp's, and its name in `structured_outputs`.
OTHER_FORMS = {"guided_json": "json", "guided_json_object": "json_object", "guided_regex": "regex",
               "guided_choice": "choice", "guided_grammar": "grammar", "json_schema": "json", "regex": "regex",
               "ebnf": "grammar", "grammar": "grammar"}
MOST_ALTERNATIVES = 1024  # texts of a choice
FLAGS_OF_OTHERS = ("store", "parallel_tool_calls")
MOST_PAIRS, KEY_CHARACTERS, VALUE_CHARACTERS = 16, 64, 512  # of metadata, as OpenAI's server takes it


def take_of_others(fields: Fields) -> None:
    """Take the fields that change nothing here; what OpenAI's server would refuse is an error all the same.

    >>> from morpho.serve.api.fields import Fields
    >>> from morpho.serve.api.sampling import take_of_others
    >>> fields = Fields({"user": "me", "metadata": {"run": "7"}, "store": False})
    >>> take_of_others(fields), fields.left()
    (None, {})
    """
    for name in TEXTS_OF_OTHERS:
        fields.text(name)
    for name in FLAGS_OF_OTHERS:
        fields.flag(name)
    pairs = fields.take("metadata", {})
    if not isinstance(pairs, dict) or len(pairs) > MOST_PAIRS or not all(
            isinstance(value, str) and len(key) <= KEY_CHARACTERS and len(value) <= VALUE_CHARACTERS
            for key, value in pairs.items()):
        raise fields.wrong("metadata", f"is not an object of at most {MOST_PAIRS} strings, with keys of up to "
                                       f"{KEY_CHARACTERS} and values of up to {VALUE_CHARACTERS} characters")


def params_of(fields: Fields, limits: Limits, said: Defaults, *, max_tokens: int | None, logprobs: int | None,
              vocabulary: int, talks: bool, grammar: Grammar | None = None) -> SamplingParams:
    """The engine's parameters; `max_tokens`, `logprobs` and `grammar` have other names in each kind of request."""
    n = fields.whole("n", 1, least=1, most=limits.choices)
    usual, among = usual_drawing(said, talks and n == 1)
    temperature = fields.number("temperature", None, 0, 2)
    # Who says a temperature means it for all tokens, as OpenAI's server does, unless the model's files say otherwise.
    top_k = fields.whole("top_k", among if temperature is None else said.top_k or 0, least=-1)  # "all" is -1 elsewhere
    seed = fields.whole("seed", None, least=-(1 << 63), most=(1 << 63) - 1)
    try:
        return SamplingParams(
            temperature=usual if temperature is None else temperature, top_k=max(top_k or 0, 0),
            top_p=fields.number("top_p", said.top_p or 1.0, 1e-9, 1),  # type: ignore[arg-type]
            min_p=fields.number("min_p", 0.0, 0, 1),  # type: ignore[arg-type]
            seed=None if seed is None else seed % (1 << 63), max_tokens=max_tokens, stop=_stops(fields, limits),
            stop_token_ids=_tokens(fields, "stop_token_ids", limits.stops, vocabulary),
            logit_bias=_biases(fields, limits, vocabulary),
            repetition_penalty=fields.number("repetition_penalty", said.repetition_penalty or 1.0, 0.01, 100),  # type: ignore[arg-type]
            frequency_penalty=fields.number("frequency_penalty", 0.0, -2, 2),  # type: ignore[arg-type]
            presence_penalty=fields.number("presence_penalty", 0.0, -2, 2),  # type: ignore[arg-type]
            logprobs=logprobs, n=n,  # type: ignore[arg-type]
            grammar=grammar, ignore_eos=fields.flag("ignore_eos"),
            min_tokens=fields.whole("min_tokens", 0, most=limits.max_tokens),  # type: ignore[arg-type]
            allowed_token_ids=_tokens(fields, "allowed_token_ids", vocabulary, vocabulary),
            include_stop=fields.flag("include_stop_str_in_output"),
            show_specials=not fields.flag("skip_special_tokens", True))
    except ArgumentError as error:
        raise ApiError(400, error.message or str(error)) from None


def usual_drawing(said: Defaults, talks: bool) -> tuple[float, int]:
    """Temperature and `top_k` (0: all) for who says neither."""
    if said.temperature is not None:
        return said.temperature, said.top_k or 0
    return usual_temperature(talks), USUAL_TOP_K


def _stops(fields: Fields, limits: Limits) -> tuple[str, ...]:
    found = fields.take("stop", [])
    stops = [found] if isinstance(found, str) else found
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise fields.wrong("stop", "is neither a string nor a list of strings")
    if len(stops) > limits.stops or any(len(each) > limits.stop_characters for each in stops):
        raise fields.wrong("stop", f"has more than {limits.stops} strings, or one of more than "
                                   f"{limits.stop_characters} characters")
    if "" in stops:
        raise fields.wrong("stop", "holds an empty string")
    return tuple(stops)


def _tokens(fields: Fields, name: str, most: int, vocabulary: int) -> tuple[int, ...]:
    found = fields.list(name, most=most)
    if not all(type(each) is int and 0 <= each < vocabulary for each in found):
        raise fields.wrong(name, f"holds what is no token of a vocabulary of {vocabulary}")
    return tuple(found)


def _biases(fields: Fields, limits: Limits, vocabulary: int) -> dict[int, float]:
    found = fields.take("logit_bias", {})
    if not isinstance(found, dict) or len(found) > limits.biases:
        raise fields.wrong("logit_bias", f"is not an object of at most {limits.biases} tokens")
    biases = {}
    for token, bias in found.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,8}", token) or int(token) >= vocabulary:
            raise fields.wrong("logit_bias", f"names {token[:40]!r}, which is no token of a vocabulary of {vocabulary}")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise fields.wrong("logit_bias", "has a bias that is not a number from -100 to 100")
        biases[int(token)] = float(bias)
    return biases


# -- what a text must look like ----------------------------------------------------------------------------------------
def grammar_of(fields: Fields, limits: Limits) -> Grammar | None:
    """`response_format` as OpenAI has it, `structured_outputs` as vLLM has it (json, regex, choice, grammar), or one of
    the fields that other servers and older ones of vLLM name so."""
    form, structured = fields.object("response_format"), fields.object("structured_outputs")
    others = {name: value for name in OTHER_FORMS if (value := fields.take(name)) is not None}
    fields.irrelevant("guided_decoding_backend")
    names = [*others, *(["response_format"] if form else ()), *(["structured_outputs"] if structured else ())]
    if len(names) > 1:
        raise ApiError(400, f"'{names[0]}' and '{names[1]}' both say which form the text has", names[0])
    if form is not None:
        return _response_format(form, limits)
    if others:
        return _structured(Fields(others), limits, {kind: name for name, kind in OTHER_FORMS.items() if name in others})
    return _structured(structured, limits) if structured is not None else None


def _response_format(form: Fields, limits: Limits) -> Grammar | None:
    kind = form.one_of("type", None, ("text", "json_object", "json_schema"))
    if kind is None:
        raise form.wrong("type", "is missing")
    inner = form.object("json_schema")
    plain = form.take("schema") if kind == "json_object" else None  # as llama.cpp takes it
    form.finish()
    if plain is not None:
        return Grammar("json_schema", _source(form, "schema", plain, limits))
    if kind == "json_schema":
        if inner is None:
            raise form.wrong("json_schema", "is missing")
        inner.irrelevant("name", "description", "strict")  # it is always strict
        schema = inner.take("schema", {})
        inner.finish()
        return Grammar("json_schema", _source(inner, "schema", schema, limits))
    return Grammar("json_object") if kind == "json_object" else None


def _structured(given: Fields, limits: Limits, names: dict[str, str] | None = None) -> Grammar | None:
    """One form; `names` are those of the fields, where they differ from their kinds."""
    if names is None:
        names = {kind: kind for kind in OTHER_FORMS.values()}
    names = {kind: names.get(kind, "") for kind in OTHER_FORMS.values()}
    found: list[Grammar] = []
    if (schema := given.take(names["json"])) is not None:
        found.append(Grammar("json_schema", _source(given, names["json"], schema, limits)))
    if given.flag(names["json_object"]):
        found.append(Grammar("json_object"))
    if (pattern := given.text(names["regex"], most=limits.schema_bytes)) is not None:
        found.append(Grammar("regex", pattern))
    if (source := given.text(names["grammar"], most=limits.schema_bytes)) is not None:
        found.append(Grammar("lark", source))
    name = names["choice"]
    if (choices := given.take(name)) is not None:
        if not isinstance(choices, list) or not 1 <= len(choices) <= MOST_ALTERNATIVES:
            raise given.wrong(name, f"is not a list of 1 to {MOST_ALTERNATIVES} texts")
        if not all(isinstance(each, str) and each for each in choices):
            raise given.wrong(name, "must hold texts that are not empty")
        found.append(Grammar("regex", "|".join(f"({re.escape(each)})" for each in choices)))
    given.finish()
    if len(found) != 1:
        if not found and names["json_object"] == "guided_json_object":
            return None  # false, which is no form
        many = "two forms at once" if found else "no form: give json, regex, choice, grammar or json_object"
        raise ApiError(400, f"'structured_outputs' asks for {many}", "structured_outputs")
    return found[0]


def _source(fields: Fields, name: str, schema: Any, limits: Limits) -> str:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise fields.wrong(name, f"is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise fields.wrong(name, "is not a JSON schema")
    text = json.dumps(schema)
    if len(text) > limits.schema_bytes:
        raise fields.wrong(name, f"has more than {limits.schema_bytes} bytes")
    return text
