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
from morpho.serve.engine.sampler import Without
from morpho.serve.engine.schema import CLOSING, UniqueItems, asks_unique, prepared

# Small models like to write blanks for ever: JSON has one after a comma and a colon, and no others.
JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
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
        self._vocabulary: Any = None
        self._closing: np.ndarray | None = None  # True at tokens that may end an item of a list

    def matcher(self, grammar: Grammar) -> Matcher:
        """Matcher for one text; an error says what is wrong with the grammar."""
        library = _library()
        if self._tokenizer is None:
            raise fail(ArgumentError, "serve", "a grammar needs the tokenizer of the model")
        if len(grammar.source) > MOST_SOURCE:
            raise fail(ArgumentError, "serve", f"a grammar of {len(grammar.source)} characters is too large",
                       f"at most {MOST_SOURCE}")
        if self._made is None:
            self._vocabulary = _Vocabulary(self._tokenizer, self._size, self._ends)
            wrapper = library.TokenizerWrapper(self._vocabulary)
            self._made = library.LLTokenizer(wrapper, eos_token=[*self._ends] or None)
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="morpho-grammar")
        try:
            matcher = self._library_matcher(library, grammar)
            if matcher.is_error() and "oneOf" in matcher.get_error():
                matcher = self._library_matcher(library, grammar, apart=True)
        except RecursionError:
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is nested too deeply") from None
        except Exception as error:
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(error)}") from None
        if matcher.is_error():
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(matcher.get_error())}")
        assert self._pool is not None
        found = Matcher(matcher, self._size, self._pool, self._unique(grammar))
        found.allowed()  # some grammars fail only where a text would begin: a fault of the request, not of the server
        if matcher.is_error():
            raise fail(ArgumentError, "serve", f"the {grammar.kind} is not usable: {_first(matcher.get_error())}")
        return found

    def _library_matcher(self, library: Any, grammar: Grammar, apart: bool = False) -> Any:
        return library.LLMatcher(self._made, _text_of(library, grammar, apart), log_level=0,
                                 limits=library.LLParserLimits(initial_lexer_fuel=MOST_FUEL))

    def _unique(self, grammar: Grammar) -> Unique | None:
        """Check of items that must differ, if a schema has `uniqueItems`."""
        schema = json.loads(grammar.source) if grammar.kind == "json_schema" else None
        if not asks_unique(schema):
            return None
        tokens = self._vocabulary.tokens
        if self._closing is None:
            closing = [any(byte in CLOSING for byte in token) for token in tokens]
            self._closing = np.zeros(max(self._size, len(tokens)), bool)
            self._closing[:len(tokens)] = closing
        return Unique(UniqueItems(schema), tokens, self._closing)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _text_of(library: Any, grammar: Grammar, apart: bool) -> str:
    make = library.LLMatcher
    if grammar.kind in ("json_schema", "json_object"):
        schema = grammar.source if grammar.kind == "json_schema" else '{"type": "object"}'
        return str(make.grammar_from_json_schema(json.dumps(prepared(json.loads(schema), apart)), defaults=JSON))
    if grammar.kind == "regex":
        if (len(grammar.source) - len(grammar.source.rstrip("\\"))) % 2:  # the library would take it for its own
            raise ValueError("it ends with a backslash that escapes nothing")
        return str(make.grammar_from_regex(grammar.source))
    from llguidance.gbnf_to_lark import any_to_lark

    return str(make.grammar_from_lark(any_to_lark(grammar.source)))  # llama.cpp's notation too


def _first(error: Any) -> str:
    line = str(error).strip().split("\n")[0]
    if "oneOf" in line and "keyword" not in line:
        return "a value may fit two alternatives of its 'oneOf': write 'anyOf'"
    return "the library that follows it cannot" if "panic" in line else line[:200]


class Unique:
    """Tokens that would repeat an item."""

    def __init__(self, items: UniqueItems, tokens: list[bytes], closing: np.ndarray) -> None:
        self.items, self.tokens, self._closing = items, tokens, closing

    def without(self, token: int, allowed: np.ndarray) -> np.ndarray | None:
        """None if a token may come; else what may come besides it. An item that goes on does so by any token that
        ends none, so that a second choice is enough; of items that are listed few tokens are allowed at all."""
        if self.items.fits(self.tokens[token]):
            return None
        left = allowed.copy()
        left[token] = False
        others: np.ndarray = left & ~self._closing[:left.size]
        if not self.items.listed and others.any():
            return others
        if not left.any():
            raise fail(ArgumentError, "serve", f"{GRAMMAR_FAILED}: the list wants items that differ (uniqueItems), and "
                                               "the text can only go on with one that is there", "ask again")
        return left


class Matcher:
    """Follows one text and says which tokens may come next."""

    def __init__(self, matcher: Any, size: int, pool: ThreadPoolExecutor, unique: Unique | None = None) -> None:
        self.unique = unique
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

    def choice(self) -> tuple[np.ndarray, Without | None]:
        """Mask for a sampler: allowed tokens, and those left if one would repeat an item."""
        return self.allowed(), None if self.unique is None else self.unique.without

    def took(self, token: int) -> bool:
        """A token came; says whether the text is complete and nothing may follow."""
        if self.unique is not None:
            self.unique.items.take(self.unique.tokens[token])
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise fail(ArgumentError, "serve", f"{GRAMMAR_FAILED}: {_first(self._matcher.get_error())}")
        if self._matcher.is_stopped():
            return True
        self.prepare()
        return False
