"""The text of tokens as they are made, in whole characters, up to a stop string and without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from morpho.weights import StreamDecoder


class TextStream:
    """Takes tokens, gives text. What may be the beginning of a stop string waits until that is known. `after` are the
    prompt's tokens. With `exact` the text is the bytes of its tokens, which a grammar looks at, whatever the
    tokenizer's decoder does to the first of a text. `marks` are special tokens that are shown, with their text.

    >>> from morpho.serve.engine.text import TextStream
    >>> tokenizer = mo.weights.train_bpe("so on and so on", vocab_size=260)
    >>> text = TextStream(tokenizer, ("n a",))
    >>> "".join(text.push(token) for token in tokenizer.encode("on and on")), text.stopped
    ('o', 'n a')
    """

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], after: Sequence[int] = (), *, exact: bool = False,
                 specials: bool = False, include: bool = False, marks: Mapping[int, str] = MappingProxyType({})
                 ) -> None:
        self._stream = None if tokenizer is None else \
            StreamDecoder(tokenizer, specials) if exact else tokenizer.stream(specials=specials, after=after)
        self._size = 0 if tokenizer is None else tokenizer.vocab_size
        self._stop, self._held, self._include, self._marks = stop, "", include, marks
        self.stopped: str | None = None  # the stop string that ended it

    def push(self, token: int, look: bool = True) -> str:
        """Add a token and return text that can be sent; nothing after a stop string. Without `look`, none is looked
        for."""
        if self._stream is None or self.stopped or token >= self._size:  # models have rows for tokens that are none
            return ""
        mark = self._marks.get(token)
        text = self._stream.push(token) if mark is None else self._stream.finish() + mark
        return self._told(self._held + text) if look else text

    def finish(self) -> str:
        """Return the text that waited for the end."""
        if self._stream is None or self.stopped:
            return ""
        told = self._told(self._held + self._stream.finish())
        held, self._held = self._held, ""
        return told if self.stopped else told + held

    def _told(self, text: str) -> str:
        found = [(at + len(string), at) for string in self._stop if (at := text.find(string)) >= 0]
        if found:
            end, begin = min(found)
            self.stopped, self._held = text[begin:end], ""
            return text[:end if self._include else begin]  # that ends first, however the text was cut into tokens
        waits = max((_begun(text, string) for string in self._stop), default=0)
        self._held = text[len(text) - waits:]
        return text[:len(text) - waits]


def _begun(text: str, string: str) -> int:
    """How many characters at the end of a text are the beginning of a string."""
    return next((n for n in range(min(len(string) - 1, len(text)), 0, -1) if text.endswith(string[:n])), 0)
