"""Reads the JSON of foreign headers in bounded memory: flat objects only, no nesting, no duplicate keys.

`json.loads` builds whatever a file says, at many times its size. A header needs little: an object of flat records and
of texts. This scanner takes nothing else, and stops at the first thing that is.

>>> from morpho.weights.scanner import Scanner
>>> scanner = Scanner('{"a": {"shape": [2]}, "b": {"x": "y"}}')
>>> for key in scanner.keys():
...     print(key, scanner.record() if key == "a" else scanner.texts())
a {'shape': [2]}
b {'x': 'y'}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # the text of one JSON string, and where it ends
from typing import Any

RECORD_CHARACTERS = 4096  # the most of one flat record: a shape has a few sizes
_SPACE = re.compile(r"[ \t\n\r]*")


class Malformed(Exception):
    """A malformed text, described in a few words."""


class Scanner:
    """A position in a text; each method reads one thing there and moves on."""

    def __init__(self, text: str, most_keys: int = 1 << 20) -> None:
        self.text, self.at, self.most_keys = text, 0, most_keys

    def keys(self) -> Iterator[str]:
        """The keys of an object, one by one; the caller reads the value of each before asking for the next."""
        seen: set[str] = set()
        self._expect("{")
        if self._peek() == "}":
            self.at += 1
            return
        while True:
            key = self._string()
            if key in seen:
                raise Malformed(f"the key {shortened(key)} stands there twice")
            if len(seen) == self.most_keys:
                raise Malformed(f"more than {self.most_keys} keys stand in one object")
            seen.add(key)
            self._expect(":")
            yield key
            if self._peek() == "}":
                self.at += 1
                return
            self._expect(",")

    def texts(self) -> dict[str, str]:
        """An object whose values are all texts."""
        return {key: self._string() for key in self.keys()}

    def record(self) -> dict[str, Any]:
        """A short object: its values are numbers, texts, or lists of them."""
        self._peek()
        end = self.text.find("}", self.at, self.at + RECORD_CHARACTERS)
        if end < 0:
            raise Malformed(f"a record does not end within {RECORD_CHARACTERS} characters")
        try:
            found = _DECODER.decode(self.text[self.at:end + 1])
        except (ValueError, RecursionError):
            raise Malformed(f"{shortened(self.text[self.at:end + 1])} is not a record") from None
        if not isinstance(found, dict):
            raise Malformed(f"{shortened(self.text[self.at:end + 1])} is not a record")
        self.at = end + 1
        return found

    def finish(self) -> None:
        """Nothing but space may follow."""
        if self._peek():
            raise Malformed(f"{shortened(self.text[self.at:self.at + 80])} follows the end")

    def _peek(self) -> str:
        found = self.text[self.at:self.at + 1]
        if found and found in " \t\n\r":
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            found = self.text[self.at:self.at + 1]
        return found

    def _expect(self, character: str) -> None:
        found = self._peek()
        if found != character:
            raise Malformed(f"{found!r} stands where {character!r} belongs" if found else "it ends too early")
        self.at += 1

    def _string(self) -> str:
        self._expect('"')
        try:
            found, self.at = scanstring(self.text, self.at, True)
        except ValueError:
            raise Malformed("a text does not end, or holds what JSON does not allow") from None
        if not is_text(found):
            raise Malformed("a text holds half of a surrogate pair")
        return found  # type: ignore[no-any-return]


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: an object, or an error if a key stands there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shortened(twice)} stands there twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=without_duplicates)  # made once: a header has as many records as names


def is_text(found: object) -> bool:
    """Whether something is a text that UTF-8 can say: half of a surrogate pair is none."""
    try:
        return isinstance(found, str) and found.encode() is not None
    except UnicodeEncodeError:
        return False


def shortened(text: object, most: int = 60) -> str:
    """A text for an error message, quoted and cut."""
    found = repr(text[:most + 1] if isinstance(text, str) else text)
    return found if len(found) <= most else found[:most - 3] + "..."
