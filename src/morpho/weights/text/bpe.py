"""Byte-level BPE: every text is bytes, and pairs are merged in the order in which training found them.

>>> tokenizer = mo.weights.train_bpe("the cat and the hat and the bat", vocab_size=264)
>>> ids = tokenizer.encode("the rat")
>>> tokenizer.decode(ids), len(ids)
('the rat', 4)
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from operator import add

import numpy as np

from morpho.base.errors import IndexFault, fail
from morpho.base.python.lazy import cached_property
from morpho.weights.errors import FileFault
from morpho.weights.scanner import shortened
from morpho.weights.text.pretokenise import byte_characters, pieces, words
from morpho.weights.text.tokenizer import Tokenizer, checked_text, shares_of

CACHED_WORDS = 1 << 16  # then the cache is emptied: a text of ever new words must not fill the memory
CACHED_BYTES = 256  # longer words are not kept
_CHARACTERS = byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(_CHARACTERS)}
UNBOUNDED, BOUNDED = 1 << 20, 1 << 15  # characters that are cut into words at once: all of them, or as many as needed
SHORT = 48  # up to this many bytes, looking at every pair is quicker than a heap


class BytePairs(Tokenizer):
    """A byte-level BPE tokenizer: `vocabulary` maps the written form of every token (a printable character for each
    byte) to its number, `merges` lists the pairs in order, `specials` the texts that are tokens of their own; `added`
    are so too, but belong to the text and are shown. `before` and `after` are put around every text. `pattern` is how
    a text falls into words: "gpt-2", "qwen2" or "llama-bpe".

    >>> tokenizer = mo.weights.train_bpe(["low lower lowest"], 270)
    >>> type(tokenizer).__name__, tokenizer.decode(tokenizer.encode("lower"))
    ('BytePairs', 'lower')
    """

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], specials: Mapping[str, int],
                 *, added: Mapping[str, int] | None = None, split_digits: bool = False, eos: int | None = None,
                 bos: int | None = None, pad: int | None = None, before: Sequence[int] = (),
                 after: Sequence[int] = (), chat_template: str = "", pattern: str = "gpt-2") -> None:
        self.vocabulary, self.merges, self.specials = dict(vocabulary), list(merges), dict(specials)
        self.added, self.pattern = dict(added or {}), pattern
        self.split_digits, self.eos, self.bos, self.chat_template = split_digits, eos, bos, chat_template
        self.pad, self.before, self.after = pad, list(before), list(after)
        written = {**self.vocabulary, **self.added, **self.specials}
        self._text_of_number = dict(zip(written.values(), written, strict=True))
        self._byte_numbers = _byte_numbers(self.vocabulary)
        self._ranks = _ranks(self.vocabulary, self.merges)
        self._cache: dict[str, list[int]] = {}
        self._splitters = {True: splitter_of({**self.added, **self.specials}), False: splitter_of(self.added)}

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest number."""
        return max(self._text_of_number) + 1

    @cached_property
    def _special_numbers(self) -> frozenset[int]:
        return frozenset(self.specials.values())

    def token_bytes(self, number: int) -> bytes:
        """Bytes of a token; a token with a character outside the byte alphabet is its own text."""
        text = self._text_of_number.get(number)
        if text is None:
            raise fail(IndexFault, "decode", f"token {number} is not in the vocabulary")
        try:
            return bytes([_BYTE_OF[character] for character in text])
        except KeyError:
            return text.encode()

    def encode(self, text: str, *, specials: bool = True, around: bool = True) -> list[int]:
        """The numbers of a text; the text of a special token becomes that token unless `specials=False`."""
        text, splitter = checked_text(text, "encode"), self._splitters[specials]
        found = self._encode_split(text, splitter)
        return [*self.before, *found, *self.after] if around else found

    def _encode_within(self, text: str, most: int, specials: bool, around: bool) -> list[int] | None:
        before, after = (self.before, self.after) if around else ([], [])
        room = most - len(before) - len(after)
        ids = self._encode_split(text, self._splitters[specials], room)
        return [*before, *ids, *after] if len(ids) <= room else None

    @cached_property
    def _shares(self) -> np.ndarray:
        shares = shares_of(self.token_bytes(number) for number in self._text_of_number)
        shares[[byte not in self._byte_numbers for byte in range(256)]] = 0
        return shares

    def _encode_split(self, text: str, splitter: re.Pattern[str] | None, most: int | None = None) -> list[int]:
        """All numbers of a text; beyond `most` no more than a word or piece."""
        if splitter is None:
            return self._encode_plain(text, most)
        found: list[int] = []
        for place, piece in enumerate(splitter.split(text)):
            if most is not None and len(found) > most:
                break
            if place % 2:  # what the splitter looks for stands between what it does not
                found.append(self.specials[piece] if piece in self.specials else self.added[piece])
            elif piece:
                found += self._encode_plain(piece, None if most is None else most - len(found))
        return found

    def _encode_plain(self, text: str, most: int | None = None) -> list[int]:
        found: list[int] = []
        cache = self._cache
        bounded = most is not None
        for piece in pieces(text, BOUNDED if bounded else UNBOUNDED, self.pattern):
            for word in words(piece, self.split_digits, self.pattern):
                if bounded and len(found) > most:  # type: ignore[operator]
                    return found
                numbers = cache.get(word)
                if numbers is None:
                    numbers = self._merged(word.encode())
                    if len(word) <= CACHED_BYTES:
                        if len(cache) >= CACHED_WORDS:
                            cache.clear()
                        cache[word] = numbers
                found += numbers
        return found

    @property
    def whole_words(self) -> bool:
        """Whether a word that is a token is taken as it is, as Llama 3's are, whatever merges would make of it."""
        return self.pattern == "llama-bpe"

    def _merged(self, word: bytes) -> list[int]:
        if self.whole_words and (known := self.vocabulary.get("".join(_CHARACTERS[byte] for byte in word))) is not None:
            return [known]
        numbers = [self._byte_numbers[byte] for byte in word if byte in self._byte_numbers]
        return merge_short(numbers, self._ranks) if len(word) <= SHORT else merge_long(numbers, self._ranks)


Ranks = Mapping[tuple[int, int], tuple[int, int]]  # a pair -> (its place in the order of merges, the number it becomes)


def merge_short(numbers: list[int], ranks: Ranks) -> list[int]:
    """Merge the first pair in the order of merges, the leftmost of equals, until none is left."""
    while len(numbers) > 1:
        best, at = None, 0
        for place in range(len(numbers) - 1):
            found = ranks.get((numbers[place], numbers[place + 1]))
            if found is not None and (best is None or found[0] < best[0]):
                best, at = found, place
        if best is None:
            return numbers
        numbers[at:at + 2] = [best[1]]
    return numbers


def merge_long(numbers: list[int], ranks: Ranks) -> list[int]:
    """The same in n log n: a heap of pairs by (order, place), over a list linked both ways."""
    following = [*range(1, len(numbers)), -1]
    before = [*range(-1, len(numbers) - 1)]
    heap: list[tuple[int, int, int, int]] = []  # order, place of the left one, and the pair as it was

    def note(left: int, right: int) -> None:
        if left >= 0 and right >= 0:
            found = ranks.get((numbers[left], numbers[right]))
            if found is not None:
                heapq.heappush(heap, (found[0], left, numbers[left], numbers[right]))

    for place in range(len(numbers) - 1):
        note(place, place + 1)
    while heap:
        _, left, one, two = heapq.heappop(heap)
        right = following[left]
        if right < 0 or numbers[left] != one or numbers[right] != two:
            continue  # one of the two has been merged since
        numbers[left] = ranks[one, two][1]
        numbers[right] = -1
        following[left] = following[right]
        if following[left] >= 0:
            before[following[left]] = left
        note(before[left], left)
        note(left, following[left])
    return [number for number in numbers if number >= 0]


def _ranks(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> dict[tuple[int, int], tuple[int, int]]:
    number = vocabulary.__getitem__
    try:  # without a loop of Python's: there are a hundred thousand, and a server waits for them
        sides = [*zip(*merges, strict=True)] or [(), ()]
        pairs = [*zip(*(map(number, side) for side in sides), strict=True)]
        become = [*enumerate(map(number, map(add, *sides)))]
    except KeyError as error:
        raise fail(FileFault, "tokenizer", f"a merge needs {shortened(error.args[0])}, which is not in the vocabulary"
                   ) from None
    return dict(zip(reversed(pairs), reversed(become), strict=True))  # of a pair that is there twice, the first


def _byte_numbers(vocabulary: Mapping[str, int]) -> dict[int, int]:
    """The numbers of single bytes. Foreign vocabularies may lack some that are rare or never part of UTF-8; those are
    left out of a text, as the tokenizers library does."""
    found = {byte: vocabulary[character] for character, byte in _BYTE_OF.items() if character in vocabulary}
    missing = [chr(byte) for byte in range(33, 127) if byte not in found]
    if missing:
        raise fail(FileFault, "tokenizer", f"the vocabulary has no token for {len(missing)} characters of ASCII, "
                                           f"{missing[0]!r} for one")
    return found


def splitter_of(tokens: Mapping[str, int]) -> re.Pattern[str] | None:
    """Finds tokens that are texts of their own; of two at one place the longer is meant."""
    if not tokens:
        return None
    return re.compile("(" + "|".join(re.escape(text) for text in sorted(tokens, key=len, reverse=True)) + ")")
