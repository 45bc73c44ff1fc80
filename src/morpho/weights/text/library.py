"""Any other `tokenizer.json`, by the tokenizers library: texts to numbers and back, and the bytes of each token.

The library decodes lists of tokens and knows no bytes of a single one; grammars and log-probabilities need them. They
follow from the file's decoder, step by step: `Ġon` is ` on` under ByteLevel, `▁on` under Metaspace, `<0x0A>` is a line
end under ByteFallback.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.distribution import install
from morpho.base.errors import ArgumentError, IndexFault, fail
from morpho.base.python.lazy import cached_property
from morpho.weights.errors import FileFault, MissingExtra
from morpho.weights.text.pretokenise import byte_characters
from morpho.weights.text.tokenizer import StreamDecoder, Tokenizer, checked_ids, checked_text, shares_of

LONG = 1 << 15  # characters of a text that is encoded while other threads run: a batch costs more than it saves below
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
Piece = str | bytes  # a token in the middle of its decoder: bytes as soon as a step has said which
Step = Callable[[str], Piece]


class LibraryTokenizer(Tokenizer):
    """Any `tokenizer.json`, by the tokenizers library."""

    def __init__(self, document: str, specials: Mapping[str, int], *, eos: int | None, bos: int | None,
                 pad: int | None, chat_template: str, name: str = "tokenizer.json") -> None:
        self.document, self.specials, self.name = document, dict(specials), name
        self.eos, self.bos, self.pad, self.chat_template = eos, bos, pad, chat_template
        self._library = _library_tokenizer(document, name)

    @cached_property
    def _literal(self) -> Any:
        """A copy to which special tokens are text: the library keeps that choice in the object."""
        copy = _library_tokenizer(self.document, self.name)
        copy.encode_special_tokens = True
        return copy

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest number."""
        return max(self._library.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def _special_numbers(self) -> frozenset[int]:
        return frozenset(self.specials.values())

    @cached_property
    def _steps(self) -> list[Step]:
        decoder = json.loads(self.document).get("decoder")
        if decoder is None:
            return [lambda text: " " + text]  # as the library joins tokens
        return list(_steps(decoder, self.name))

    def encode(self, text: str, *, specials: bool = True, around: bool = True) -> list[int]:
        """The numbers of a text, with what the file's own post-processor adds around it."""
        library = self._library if specials else self._literal
        plain = checked_text(text, "encode")

        def encoding() -> Any:
            if len(plain) < LONG:
                return library.encode(plain, add_special_tokens=around)
            return library.encode_batch([plain], add_special_tokens=around)[0]  # without Python's lock

        return list(_by_library("encode", self.name, encoding).ids)

    def encode_pair(self, first: str, second: str, most: int | None = None) -> tuple[list[int], list[int]]:
        """The numbers of two texts as one input, and the segment of each."""
        texts = checked_text(first, "encode_pair"), checked_text(second, "encode_pair")
        found = _by_library("encode_pair", self.name, lambda: self._literal.encode(*texts))
        rows = [*zip(found.ids, found.type_ids, found.sequence_ids, strict=True)]
        over = 0 if most is None else len(rows) - most
        places = [place for place, row in enumerate(rows) if row[2] == 1]
        if over > 0 and over >= len(places):
            raise fail(ArgumentError, "encode_pair", f"the first text fills all {most} tokens",
                       "cut it")
        left = {*places[len(places) - over:]} if over > 0 else set()
        kept = [row for place, row in enumerate(rows) if place not in left]
        return [number for number, _, _ in kept], [kind for _, kind, _ in kept]

    @cached_property
    def _shares(self) -> np.ndarray | None:
        document = json.loads(self.document)
        scale = _kept(document)
        if scale is None:
            return None
        tokens = [self.token_bytes(number) for number in range(self.vocab_size)]
        shares = shares_of(tokens) * scale
        shares[[bytes([byte]) not in tokens for byte in range(256)]] = 0
        if any(token.get("lstrip") or token.get("rstrip") for token in document.get("added_tokens") or []):
            shares[list({byte for blank in _BLANKS for byte in blank.encode()})] = 0  # such tokens take blanks along
        return shares

    def _written(self, text: str) -> bytes:
        return text.replace("▁", " ").encode()

    def decode(self, ids: Any, *, specials: bool = False) -> str:
        """The text of token numbers, special tokens left out unless asked for."""
        numbers = checked_ids(ids)
        for number in numbers:
            if not 0 <= number < self.vocab_size:
                raise fail(IndexFault, "decode", f"token {number} is not in a vocabulary of {self.vocab_size}")
        return str(_by_library("decode", self.name,
                               lambda: self._library.decode(numbers, skip_special_tokens=not specials)))

    def stream(self, *, specials: bool = False, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder that takes one token after another."""
        return _LibraryStream(self, specials, after)

    def token_bytes(self, number: int) -> bytes:
        """Bytes that a token adds to a text that has begun. A special token is its own text, a number without a token
        no bytes."""
        piece: Piece = self._library.id_to_token(number) or ""
        if not piece or number in self._special_numbers:
            return piece.encode() if isinstance(piece, str) else piece
        for step in self._steps:
            if isinstance(piece, bytes):
                break
            piece = step(piece)
        return piece.encode() if isinstance(piece, str) else piece


def _library_tokenizer(document: str, name: str) -> Any:
    return _by_library("load_tokenizer", name, lambda: _library("load_tokenizer").Tokenizer.from_str(document))


def _library(operation: str) -> Any:
    try:
        import tokenizers
    except ImportError:
        raise fail(MissingExtra, operation, "this kind of tokenizer.json needs the tokenizers library",
                   install("models")) from None
    return tokenizers


def _by_library(operation: str, name: str, call: Callable[[], Any]) -> Any:
    """The result of a call of the tokenizers library; its complaints, also of a file that it took, as a sentence."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, MemoryError, MissingExtra):
        raise
    except BaseException as error:  # the library raises bare Exception, and its panics are no Exception at all
        reason = " ".join(str(error).split())[:200]
        raise fail(FileFault, operation, f"{name} is refused by the tokenizers library: {reason}") from None


class _LibraryStream(StreamDecoder):
    """As a decoder's rules may look at neighbours, tokens are decoded together with those shown last, and the new end
    of the text is shown."""

    LONGEST = 8  # tokens that wait for the end of a character; it has four bytes at most

    def __init__(self, tokenizer: LibraryTokenizer, specials: bool, after: Iterable[int]) -> None:
        super().__init__(tokenizer, specials)
        self._waiting: list[int] = []
        shown = after if isinstance(after, Sequence) else [*after]
        tail = [number for number in shown[-64:] if specials or number not in tokenizer._special_numbers]
        self._before = tail[-self.LONGEST:]  # the tokens shown last
        while self._before and self._text(self._before).endswith(UNFINISHED):
            self._before.pop()  # what follows half a character does not complete it: it has been shown

    def push(self, number: int) -> str:
        """The text that is complete with this token, perhaps none."""
        if not self._specials and number in self._tokenizer._special_numbers:
            return ""
        self._waiting.append(number)
        text = self._new_text()
        if text.endswith(UNFINISHED) and len(self._waiting) < self.LONGEST:
            return ""
        self._before, self._waiting = self._waiting, []
        return text

    def finish(self) -> str:
        text = self._new_text() if self._waiting else ""
        self._before, self._waiting = self._waiting or self._before, []
        return text

    def _text(self, numbers: list[int]) -> str:
        return self._tokenizer.decode(numbers, specials=self._specials)

    def _new_text(self) -> str:
        return self._text(self._before + self._waiting)[len(self._text(self._before)):]


# -- how long a text must be -------------------------------------------------------------------------------------------
_BLANKS = [character for character in map(chr, range(0x3001)) if character.isspace()]
NFC_SHRINKS = 4  # at most: three syllables' parts of nine bytes become one of three


def _kept(document: Mapping[str, Any]) -> float | None:
    """The fraction of a text's bytes that are in its tokens at least; None where any may be lost."""
    scale = 1.0
    for part in _flat(document.get("normalizer"), "normalizers"):
        kind = part.get("type")
        if kind == "NFC":
            scale /= NFC_SHRINKS
        elif kind == "Replace":
            if part.get("pattern") != {"String": " "} or part.get("content") != "▁":
                return None
        elif kind != "Prepend":
            return None
    steps = _flat(document.get("pre_tokenizer"), "pretokenizers")
    for part in steps:
        if part.get("type") not in ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation") \
                or part.get("behavior", "Isolated") == "Removed" or part.get("replacement", "▁") != "▁":
            return None
    model = document.get("model") or {}
    whole = any(part["type"] == "ByteLevel" for part in steps) or model.get("byte_fallback")
    return scale if whole and model.get("type", "BPE") == "BPE" else None


def _flat(part: Any, inner: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [step for each in part[inner] for step in _flat(each, inner)]


# -- the bytes of a token ----------------------------------------------------------------------------------------------
def _steps(decoder: Mapping[str, Any], name: str) -> Iterator[Step]:
    """Work of each part of a decoder on a token in the middle of a text. What a part does to the first or the last
    token alone, or to the whole text after Fuse, is no part of a token."""
    fused = False
    for part in _flat(decoder, "decoders"):
        kind = part.get("type")
        if kind == "Fuse":
            fused = True
        elif kind == "Strip":
            if not fused:
                yield _strip(part)
        elif kind in _STEPS:
            yield _STEPS[kind](part)
        else:
            raise fail(FileFault, "token_bytes", f"{name} has the decoder {kind!r}, and what its tokens stand for is "
                                                 "not known")


_BYTE_OF = {character: byte for byte, character in enumerate(byte_characters())}


def _byte_level(part: Mapping[str, Any]) -> Step:
    def step(text: str) -> Piece:
        try:
            return bytes([_BYTE_OF[character] for character in text])
        except KeyError:  # a token with a character that stands for no byte is its own text
            return text.encode()
    return step


def _byte_fallback(part: Mapping[str, Any]) -> Step:
    def step(text: str) -> Piece:
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            try:
                return bytes([int(text[3:5], 16)])
            except ValueError:
                return text
        return text
    return step


def _strip(part: Mapping[str, Any]) -> Step:
    content, start, stop = part["content"], part["start"], part["stop"]

    def step(text: str) -> Piece:
        for _ in range(start):
            text = text.removeprefix(content)
        for _ in range(stop):
            text = text.removesuffix(content)
        return text
    return step


def _replace(part: Mapping[str, Any]) -> Step:
    pattern, content = part["pattern"], part["content"]
    if "String" in pattern:
        return lambda text: text.replace(pattern["String"], content)
    library = _library("token_bytes")
    decoder = library.decoders.Replace(library.Regex(pattern["Regex"]), content)  # in the library's own notation
    return lambda text: str(decoder.decode([text]))


def _metaspace(part: Mapping[str, Any]) -> Step:
    return lambda text: text.replace(part["replacement"], " ")


# What the library's WordPiece and CTC decoders put right in English texts, token by token.
_CLEANUP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))


def _cleaned(text: str) -> str:
    for before, after in _CLEANUP:
        text = text.replace(before, after)
    return text


def _word_piece(part: Mapping[str, Any]) -> Step:
    prefix, cleanup = part["prefix"], part["cleanup"]

    def step(text: str) -> Piece:
        text = text.removeprefix(prefix) if text.startswith(prefix) else " " + text
        return _cleaned(text) if cleanup else text
    return step


def _suffixed(part: Mapping[str, Any]) -> Step:
    return lambda text: text.replace(part["suffix"], " ")


def _ctc(part: Mapping[str, Any]) -> Step:
    def step(text: str) -> Piece:
        text = text.replace(part["pad_token"], "")
        return _cleaned(text).replace(part["word_delimiter_token"], " ") if part["cleanup"] else text
    return step


_STEPS: dict[str | None, Callable[[Mapping[str, Any]], Step]] = {
    "ByteLevel": _byte_level, "ByteFallback": _byte_fallback, "Replace": _replace, "Metaspace": _metaspace,
    "WordPiece": _word_piece, "BPEDecoder": _suffixed, "CTC": _ctc}
