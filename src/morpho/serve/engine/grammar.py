"""Text of a given form: which tokens may come next, by the library llguidance (extra `serve`).

It was chosen over xgrammar: its wheel needs nothing but itself, xgrammar's needs PyTorch. Both are measured by
`benchmarks/serve/grammar_masks.py`. A mask is computed by another thread while the model computes the logits that it
is applied to; the library gives up the interpreter lock meanwhile.
"""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, IndexFault, fail
from morpho.base.python.lazy import cached_property
from morpho.serve.engine.request import GRAMMAR_FAILED, Grammar

# Small models like to write blanks for ever: JSON has one after a comma and a colon, and no others.
JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
VALUES = ("enum", "const", "default", "examples")  # of a schema: what stands there is no schema
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const")
LARGEST = (1 << 53) - 1  # an integer that every reader of JSON takes exactly (RFC 8259)
MOST_FUEL = 100_000  # of an automaton: a mask of a larger one takes a second, and holds up every text meanwhile
BEFORE, MOST_BEFORE = "\x02", 8  # a character that no token joins to others, and the tokens it may take
MOST_SOURCE = 1 << 16  # characters of a schema, expression or grammar


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise fail(ArgumentError, "serve", "text of a given form needs the library llguidance",
                   "pip install 'morpho-tensor[serve]'") from None
    return llguidance


class _Vocabulary:
    """A tokenizer as the library wants to see it, with a token of no bytes for each further row of the model: the
    library counts the tokens, whatever it is told."""

    def __init__(self, tokenizer: Any, size: int, ends: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        tokens = [_token_bytes(tokenizer, number) for number in range(min(tokenizer.vocab_size, size))]
        self.tokens = tokens + [b""] * (size - len(tokens))
        self.special_token_ids = sorted(number for number in tokenizer._special_numbers if number < size)
        self.eos_token_id = ends[0] if ends else 0
        self.bos_token_id = None

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens whose bytes join to the text: where the tokenizer puts a blank before a text, those that follow
        another character."""
        raw = text.encode() if isinstance(text, str) else text
        plain = raw.decode("utf-8", "replace")
        for before in ("", BEFORE):
            ids = self._tokenizer.encode(before + plain, specials=False, around=False)
            if any(number >= len(self.tokens) for number in ids):
                continue
            for start in range(len(ids) + 1 if before else 1):
                if b"".join([self.tokens[number] for number in ids[start:]]) == raw:
                    return [*ids[start:]]
                if start > MOST_BEFORE:
                    break
        return self._longest(raw)

    def _longest(self, raw: bytes) -> list[int]:
        """The longest token at each place, where the tokenizer's own choice loses something of the text."""
        ids, place = [], 0
        while place < len(raw):
            stop = next((end for end in range(min(len(raw), place + self._most), place, -1)
                         if raw[place:end] in self._numbers), None)
            if stop is None:
                break
            ids.append(self._numbers[raw[place:stop]])
            place = stop
        return ids

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        special = {*self.special_token_ids}
        return {token: number for number, token in enumerate(self.tokens) if token and number not in special}

    @cached_property
    def _most(self) -> int:
        return max(map(len, self._numbers), default=0)


def _token_bytes(tokenizer: Any, number: int) -> bytes:
    try:
        return bytes(tokenizer.token_bytes(number))
    except IndexFault:  # a number between others without a token
        return b""


class Grammars:
    """The grammars of one engine: made of one vocabulary, masks by a thread of their own."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: tuple[int, ...]) -> None:
        self._tokenizer, self._size, self._ends = tokenizer, vocabulary, ends
        self._made: Any = None
        self._pool: ThreadPoolExecutor | None = None

    def matcher(self, grammar: Grammar) -> Matcher:
        """What follows one text; an error says what is wrong with the grammar."""
        library = _library()
        if self._tokenizer is None:
            raise fail(ArgumentError, "serve", "a grammar needs the tokenizer of the model")
        if len(grammar.source) > MOST_SOURCE:
            raise fail(ArgumentError, "serve", f"a grammar of {len(grammar.source)} characters is too large",
                       f"at most {MOST_SOURCE}")
        if self._made is None:
            vocabulary = library.TokenizerWrapper(_Vocabulary(self._tokenizer, self._size, self._ends))
            self._made = library.LLTokenizer(vocabulary, eos_token=[*self._ends] or None)
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="morpho-grammar")
        try:
            text = _text_of(library, grammar)
            matcher = library.LLMatcher(self._made, text, log_level=0,
                                        limits=library.LLParserLimits(initial_lexer_fuel=MOST_FUEL))
        except Exception as error:
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(error)}") from None
        if matcher.is_error():
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(matcher.get_error())}")
        assert self._pool is not None
        found = Matcher(matcher, self._size, self._pool)
        found.allowed()  # some grammars fail only where a text would begin: a fault of the request, not of the server
        if matcher.is_error():
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(matcher.get_error())}")
        return found

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _text_of(library: Any, grammar: Grammar) -> str:
    make = library.LLMatcher
    if grammar.kind in ("json_schema", "json_object"):
        schema = grammar.source if grammar.kind == "json_schema" else '{"type": "object"}'
        return str(make.grammar_from_json_schema(json.dumps(_bounded(json.loads(schema))), defaults=JSON))
    if grammar.kind == "regex":
        if (len(grammar.source) - len(grammar.source.rstrip("\\"))) % 2:  # the library would take it for its own
            raise ValueError("it ends with a backslash that escapes nothing")
        return str(make.grammar_from_regex(grammar.source))
    from llguidance.gbnf_to_lark import any_to_lark

    return str(make.grammar_from_lark(any_to_lark(grammar.source)))  # llama.cpp's notation too


def _bounded(schema: Any) -> Any:
    """The schema with at most 53 bits for an integer that has no bounds of its own. Small models also like to
    write digits for ever, and a text that is cut within a number does not parse."""
    if isinstance(schema, list):
        return [_bounded(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value if name in VALUES else _bounded(value) for name, value in schema.items()}
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    if "integer" in kinds and "number" not in kinds and not any(name in schema for name in BOUNDS):
        found |= {"minimum": -LARGEST, "maximum": LARGEST}
    elif kinds == ["integer"] and {*BOUNDS} & {*schema} == {"minimum"} and 0 <= _number(schema["minimum"]) <= LARGEST:
        found["maximum"] = LARGEST  # from 0 or 1 on: the usual count
    return found


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else -1


def _first(error: Any) -> str:
    line = str(error).strip().split("\n")[0]
    return "the library that follows it cannot" if "panic" in line else line[:200]


class Matcher:
    """Follows one text and says which tokens may come next."""

    def __init__(self, matcher: Any, size: int, pool: ThreadPoolExecutor) -> None:
        self._matcher, self._size, self._pool = matcher, size, pool
        self._words = np.zeros((max(size, 1) + 31) // 32, np.int32)
        self._next: Future[None] | None = None
        self.prepare()

    def prepare(self) -> None:
        """Begin with the mask of the next token, in another thread."""
        self._next = self._pool.submit(self._fill)

    def _fill(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)

    def allowed(self) -> np.ndarray:
        """True at the tokens that may come next."""
        assert self._next is not None
        self._next.result()
        bits = np.unpackbits(self._words.view(np.uint8), bitorder="little")
        return bits[:self._size].astype(bool)

    def took(self, token: int) -> bool:
        """A token came; says whether the text is complete and nothing may follow."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise fail(ArgumentError, "serve", f"{GRAMMAR_FAILED}: {_first(self._matcher.get_error())}")
        if self._matcher.is_stopped():
            return True
        self.prepare()
        return False
