"""SentencePiece's BPE, as GGUF files of Llama 1 and 2, Gemma, Phi-3 and the first Mistrals have it: pieces with scores
instead of merges, a blank written as `▁`, and a token for each byte that no piece covers."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from morpho.base.errors import IndexFault, fail
from morpho.base.python.lazy import cached_property
from morpho.weights.errors import FileFault
from morpho.weights.text.bpe import splitter_of
from morpho.weights.text.tokenizer import Tokenizer, checked_ids, checked_text, shares_of

BLANK = "▁"
_CACHED_WORDS, _CACHED_LETTERS = 1 << 16, 40
_WORDS, _ALL = re.compile(f"{BLANK}*[^{BLANK}]+|{BLANK}+"), re.compile(".*", re.DOTALL)


class SentencePieces(Tokenizer):
    """`pieces` maps every piece to its number, `scores` has the score of each number: of two neighbours that are a
    piece together the pair with the highest score is joined first, the leftmost of equals. `letters` are the numbers of
    the 256 bytes. `specials` and `added` are tokens of their own, the latter a part of the text; with `blank_first` a
    text is read as if a blank stood before it.

    >>> pieces = {"▁": 0, "a": 1, "▁a": 2, "b": 3}
    >>> tokenizer = mo.weights.SentencePieces(pieces, [-3.0, -1.0, -2.0, -4.0], {byte: 4 + byte for byte in range(256)})
    >>> tokenizer.encode("a ab"), tokenizer.decode(tokenizer.encode("aé"))
    ([1, 2, 3], 'aé')
    """

    def __init__(self, pieces: Mapping[str, int], scores: Sequence[float], letters: Mapping[int, int], *,
                 specials: Mapping[str, int] | None = None, added: Mapping[str, int] | None = None,
                 blank_first: bool = False, unknown: int | None = None, **others: Any) -> None:
        self.pieces, self.scores, self.letters = dict(pieces), scores, dict(letters)
        self.specials, self.added, self.blank_first = dict(specials or {}), dict(added or {}), blank_first
        self.unknown = unknown
        self.eos, self.bos, self.pad = (others.get(name) for name in ("eos", "bos", "pad"))
        self.before, self.after = list(others.get("before", ())), list(others.get("after", ()))
        self.chat_template = others.get("chat_template", "")
        if len(self.letters) < 256 and unknown is None:
            raise fail(FileFault, "tokenizer", f"{256 - len(self.letters)} bytes have no token, and there is no token "
                                               "for what is unknown")
        self._splitters = {True: splitter_of({**self.added, **self.specials}), False: splitter_of(self.added)}
        # A word is merged alone only where no piece reaches over the blank before it.
        self._by_words = not any(BLANK in piece.lstrip(BLANK) for piece in self.pieces)
        self._cache: dict[str, list[int]] = {}

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        found = {number: text.encode() for text, number in {**self.added, **self.specials}.items()}
        found.update((number, piece.replace(BLANK, " ").encode()) for piece, number in self.pieces.items())
        found.update((number, bytes([byte])) for byte, number in self.letters.items())
        return found

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest number."""
        return max(max(self._bytes), len(self.scores) - 1) + 1

    @cached_property
    def _special_numbers(self) -> frozenset[int]:
        return frozenset(self.specials.values())

    def token_bytes(self, number: int) -> bytes:
        """Bytes of a token; a token may be one byte of a character."""
        if number not in self._bytes:
            raise fail(IndexFault, "decode", f"token {number} is not in the vocabulary")
        return self._bytes[number]

    def decode(self, ids: Any, *, specials: bool = False) -> str:
        """The text of token numbers, without the blank that `blank_first` put before it."""
        text = super().decode(checked_ids(ids), specials=specials)
        return text.removeprefix(" ") if self.blank_first else text

    def encode(self, text: str, *, specials: bool = True, around: bool = True) -> list[int]:
        """The numbers of a text; the text of a special token becomes that token unless `specials=False`."""
        found = self._encode_split(checked_text(text, "encode"), self._splitters[specials])
        return [*self.before, *found, *self.after] if around else found

    def _encode_within(self, text: str, most: int, specials: bool, around: bool) -> list[int] | None:
        before, after = (self.before, self.after) if around else ([], [])
        room = most - len(before) - len(after)
        ids = self._encode_split(text, self._splitters[specials], room)
        return [*before, *ids, *after] if len(ids) <= room else None

    @cached_property
    def _shares(self) -> np.ndarray:
        shares = shares_of(self._bytes.values())
        if self.unknown is None:
            shares[[byte not in self.letters for byte in range(256)]] = 0
        return shares

    def _written(self, text: str) -> bytes:
        return text.replace(BLANK, " ").encode()

    def _encode_split(self, given: str, splitter: re.Pattern[str] | None, most: int | None = None) -> list[int]:
        """All numbers of a text; beyond `most` no more than a word or piece."""
        found: list[int] = []
        first = self.blank_first
        for place, piece in enumerate([given] if splitter is None else splitter.split(given)):
            if most is not None and len(found) > most:
                break
            if place % 2:
                found.append(self.specials[piece] if piece in self.specials else self.added[piece])
                first = self.blank_first and piece in self.specials
            elif piece:
                found += self._plain((" " if first else "") + piece, None if most is None else most - len(found))
                first = False
        return found

    def _plain(self, text: str, most: int | None = None) -> list[int]:
        written = text.replace(" ", BLANK)
        found: list[int] = []
        for match in _WORDS.finditer(written) if self._by_words else [_ALL.match(written)]:
            if most is not None and len(found) > most:
                break
            word = match[0]  # type: ignore[index]
            numbers = self._cache.get(word)
            if numbers is None:
                numbers = [number for piece in self._merged(word) for number in self._numbers(piece)]
                if len(word) <= _CACHED_LETTERS:
                    if len(self._cache) >= _CACHED_WORDS:
                        self._cache.clear()
                    self._cache[word] = numbers
            found += numbers
        return found

    def _numbers(self, piece: str) -> list[int]:
        if piece in self.pieces:
            return [self.pieces[piece]]
        spelled = [self.letters.get(byte, self.unknown) for byte in piece.encode()]
        return [number for number in spelled if number is not None]

    def _merged(self, word: str) -> list[str]:
        """The pieces of a word: a heap of pairs by (score, place), over a list linked both ways."""
        parts = [*word]
        following, before = [*range(1, len(parts)), -1], [*range(-1, len(parts) - 1)]
        heap: list[tuple[float, int, str, str]] = []

        def note(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                number = self.pieces.get(parts[left] + parts[right])
                if number is not None:
                    heapq.heappush(heap, (-self.scores[number], left, parts[left], parts[right]))

        for place in range(len(parts) - 1):
            note(place, place + 1)
        while heap:
            _, left, one, two = heapq.heappop(heap)
            right = following[left]
            if right < 0 or parts[left] != one or parts[right] != two:
                continue  # one of the two has been joined since
            parts[left], parts[right] = one + two, ""
            following[left] = following[right]
            if following[left] >= 0:
                before[following[left]] = left
            note(before[left], left)
            note(left, following[left])
        return [part for part in parts if part]
