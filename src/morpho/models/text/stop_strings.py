"""Strings that end a text, looked for as tokens are made: what is decoded and searched at each token does not grow with
the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LONGEST = 8  # tokens that wait for the end of a character; it has four bytes at most
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


class StopStrings:
    """Takes one token after another, and says when one of the strings is complete. `after` are the prompt's tokens:
    the text of a token may depend on those before it.

    >>> tokenizer = mo.weights.train_bpe("so on and so on", vocab_size=260)
    >>> stop = StopStrings(["n a"], tokenizer)
    >>> [stop.push(token) for token in tokenizer.encode("on and")].index(True)
    2
    """

    def __init__(self, strings: Sequence[str], tokenizer: Any, after: Sequence[int] = ()) -> None:
        self.strings, self._tail = tuple(strings), ""
        self._kept = max(map(len, strings), default=1) - 1  # what a string may have begun in
        if strings:
            self._stream = tokenizer.stream(after=after) if hasattr(tokenizer, "stream") else _Stream(tokenizer, after)

    def push(self, token: int) -> bool:
        """Whether a string ends in the text that this token completes."""
        if not self.strings:
            return False
        text = self._tail + self._stream.push(token)
        self._tail = text[max(len(text) - self._kept, 0):]
        return any(string in text for string in self.strings)


class _Stream:
    """The text of one token after another from a tokenizer that has `decode` alone. A token is decoded together with
    those before it, as its text may depend on them, and what it adds is its text."""

    def __init__(self, tokenizer: Any, after: Sequence[int]) -> None:
        self._decode = tokenizer.decode
        self._before = [*after[-LONGEST:]]  # tokens whose text has been given
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        self._waiting.append(token)
        known, text = self._decode(self._before), self._decode(self._before + self._waiting)
        if text.endswith(UNFINISHED) and len(self._waiting) < LONGEST:
            return ""
        self._before, self._waiting = self._waiting, []
        return str(text[len(known):])
