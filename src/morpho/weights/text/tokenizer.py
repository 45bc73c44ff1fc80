"""Interface of every tokenizer: texts to numbers and back, also token by token."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, IndexFault, fail
from morpho.weights.scanner import is_text

WORTH_COUNTING = 1 << 14  # characters: the bytes of every token of a vocabulary are looked at before the first count


class Tokenizer(ABC):
    """Texts to lists of token numbers and back.

    `specials` maps the texts of special tokens to their numbers, `eos` is the number of the one that ends a text (None
    where none does), `bos` of the one that begins it, `pad` of the one that fills up a batch (0 is put where there is
    none), `chat_template` the form of a chat, empty where there is none.

    >>> tokenizer = mo.weights.train_bpe(["low lower lowest"], 270)
    >>> isinstance(tokenizer, mo.weights.Tokenizer), tokenizer.decode(tokenizer.encode("slow"))
    (True, 'slow')
    """

    specials: Mapping[str, int]
    eos: int | None = None
    bos: int | None = None
    pad: int | None = None
    chat_template: str = ""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """One more than the largest number."""

    @abstractmethod
    def encode(self, text: str, *, specials: bool = True, around: bool = True) -> list[int]:
        """The numbers of a text. With `specials=False` the text of a special token is text like any other, and with
        `around=False` the file's own tokens are not put before and after it: a chat template writes them itself."""

    def encode_within(self, text: str, most: int, *, specials: bool = True, around: bool = True) -> list[int] | None:
        """The numbers of a text, None where there are more than `most`. A text that is much too long is known by its
        bytes, and of others no more is read than is needed.

        >>> tokenizer = mo.weights.train_bpe("so on and so on", vocab_size=260)
        >>> tokenizer.encode_within("so on", 8) == tokenizer.encode("so on"), tokenizer.encode_within("a" * 10**6, 8)
        (True, None)
        """
        text = checked_text(text, "encode")
        if len(text) > max(most, WORTH_COUNTING) and self._fewest(text) > most:
            return None
        return self._encode_within(text, most, specials, around)

    def encode_pair(self, first: str, second: str, most: int | None = None) -> tuple[list[int], list[int]]:
        """The numbers of two texts as one input, with the file's own tokens around and between them, and the segment
        (0 or 1) of each; texts of special tokens are text. Where there are more than `most`, the second text is cut.
        Only a `tokenizer.json` that the tokenizers library reads says how pairs are written."""
        raise fail(ArgumentError, "encode_pair", f"a {type(self).__name__} does not say how pairs are written",
                   "encode each text by itself")

    def _encode_within(self, text: str, most: int, specials: bool, around: bool) -> list[int] | None:
        ids = self.encode(text, specials=specials, around=around)
        return ids if len(ids) <= most else None

    def _fewest(self, text: str) -> float:
        """A number of tokens that a text has at least: each of its bytes is a share of a token, and the share is the
        smallest where the token is the longest of those that have the byte."""
        shares = self._shares
        if shares is None:
            return 0.0
        counts = np.bincount(np.frombuffer(self._written(text), np.uint8), minlength=256)
        return float(counts @ shares) * (1 - 1e-6)  # the sum is rounded

    def _written(self, text: str) -> bytes:
        """The bytes that tokens are made of."""
        return text.encode()

    @property
    def _shares(self) -> np.ndarray | None:
        """The least share that each byte has in a token, 0 for one that may be lost; None where a text may lose any."""
        return None

    def encode_batch(self, texts: Iterable[str], *, pad: bool = False, specials: bool = True) -> Any:
        """The numbers of several texts: a list for each, or with `pad` two arrays, (texts, longest) each: the numbers,
        filled up on the right, and a mask that is 1 at tokens and 0 at padding, as models take it.

        >>> tokenizer = mo.weights.train_bpe("so on and so on", vocab_size=260)
        >>> ids, mask = tokenizer.encode_batch(["so on", "so"], pad=True)
        >>> ids.shape == mask.shape, int(mask[1].sum()) == len(tokenizer.encode("so"))
        (True, True)
        """
        if isinstance(texts, str):
            raise fail(ArgumentError, "encode_batch", "one text is not several", "give a list of texts, or use encode")
        found = [self.encode(text, specials=specials) for text in texts]
        if not pad:
            return found
        longest = max(map(len, found), default=0)
        ids = np.full((len(found), longest), self.pad or 0, np.int64)
        mask = np.zeros((len(found), longest), np.int64)
        for row, numbers in enumerate(found):
            ids[row, :len(numbers)], mask[row, :len(numbers)] = numbers, 1
        return ids, mask

    @abstractmethod
    def token_bytes(self, number: int) -> bytes:
        """Bytes of a token, which may hold only a part of a character."""

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The text of token numbers, special tokens left out unless asked for. Bytes that are not UTF-8 become `�`."""
        return b"".join(self._shown(number, specials) for number in checked_ids(ids)).decode("utf-8", "replace")

    def stream(self, *, specials: bool = False, after: Iterable[int] = ()) -> StreamDecoder:
        """A decoder that takes one token after another. `after` are the tokens that they follow, such as those of a
        prompt: some files' decoders drop the blank before the first word of a text.

        >>> tokenizer = mo.weights.train_bpe("so on and so on", vocab_size=260)
        >>> stream = tokenizer.stream()
        >>> "".join(stream.push(number) for number in tokenizer.encode("só")) + stream.finish()
        'só'
        """
        return StreamDecoder(self, specials)

    def special(self, text: str) -> int:
        """The number of a special token: `tokenizer.special("<|im_end|>")`."""
        if text not in self.specials:
            raise fail(ArgumentError, "tokenizer", f"{text!r} is not a special token",
                       "they are " + (", ".join(self.specials) or "none at all"))
        return self.specials[text]

    def _shown(self, number: int, specials: bool) -> bytes:
        if not 0 <= number < self.vocab_size:
            raise fail(IndexFault, "decode", f"token {number} is not in a vocabulary of {self.vocab_size}")
        return b"" if not specials and number in self._special_numbers else self.token_bytes(number)

    @property
    def _special_numbers(self) -> frozenset[int]:
        return frozenset(self.specials.values())


class StreamDecoder:
    """Text from tokens as they come: the bytes of a character that is not complete wait for the next token.

    >>> tokenizer = mo.weights.train_bpe(["abc"], 260)
    >>> stream = mo.weights.StreamDecoder(tokenizer, specials=False)
    >>> [stream.push(token) for token in tokenizer.encode("aé")]
    ['a', '', 'é']
    """

    def __init__(self, tokenizer: Tokenizer, specials: bool) -> None:
        self._tokenizer, self._specials = tokenizer, specials
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, number: int) -> str:
        """The text that is complete with this token, perhaps none."""
        (number,) = checked_ids([number])
        return self._decoder.decode(self._tokenizer._shown(number, self._specials))

    def finish(self) -> str:
        """Return the rest: `�` for a character that was never completed."""
        return self._decoder.decode(b"", True)


def shares_of(tokens: Iterable[bytes]) -> np.ndarray:
    """One divided by the bytes of the longest token that has a byte, for each of the 256; 0 where none has."""
    longest = [0] * 256
    for token in sorted(tokens, key=len):
        length = len(token)
        for byte in token:
            longest[byte] = length
    return np.array([1 / length if length else 0.0 for length in longest])


def checked_ids(ids: Iterable[Any]) -> list[int]:
    """Token numbers as Python's integers."""
    from operator import index

    try:
        return [index(number) for number in ids]
    except TypeError:
        raise fail(ArgumentError, "decode", "token numbers are integers") from None


def checked_text(text: Any, operation: str) -> str:
    """A text that UTF-8 can say; half of a surrogate pair is none."""
    if not isinstance(text, str):
        raise fail(ArgumentError, operation, f"a {type(text).__name__} is not a text")
    if not is_text(text):
        raise fail(ArgumentError, operation, "the text holds half of a surrogate pair, which UTF-8 cannot say")
    return text
