"""Text to tokens, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from morpho.logic.syntax.errors import Place, Source, fault
from morpho.logic.syntax.terms import Value

_TOKEN = re.compile(r"""
    (?P<space>[ \t\r\n\f]+|[%\#][^\n]*)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<name>[a-z][A-Za-z0-9_]*)
  | (?P<variable>[A-Z_][A-Za-z0-9_]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<sign><->|:-|\?-|::|\.\.|->|<=|>=|!=|[()\[\]{},.;:=<>+\-*/!])
""", re.VERBOSE)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
MOST_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class Token:
    """`kind` is number, name, variable, string, sign or end; `value` what a number or string stands for."""

    kind: str
    text: str
    place: Place
    value: Value = ""


def tokens(source: Source) -> list[Token]:
    """All tokens, and one of kind `end`.

    >>> [token.text for token in tokens(Source("p(X) :- q(X).  % done"))]
    ['p', '(', 'X', ')', ':-', 'q', '(', 'X', ')', '.', '']
    """
    found: list[Token] = []
    text, position, line, start = source.text, 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unknown(text[position], Place(source, line, position - start + 1))
        word, kind = match.group(), str(match.lastgroup)
        if kind != "space":
            place = Place(source, line, position - start + 1, len(word))
            found.append(Token(kind, word, place, _value(kind, word, place)))
        if newlines := word.count("\n"):
            line, start = line + newlines, position + word.rindex("\n") + 1
        position = match.end()
    found.append(Token("end", "", Place(source, line, position - start + 1)))
    return found


def _unknown(letter: str, place: Place) -> Exception:
    if letter in "\"'":
        return fault("a string is not closed on its line", place, f"end it with {letter}")
    return fault(f"the character {letter!r} has no meaning here", place)


def _value(kind: str, word: str, place: Place) -> Value:
    if kind == "number":
        if not word.isdigit():
            return float(word)
        if len(word) > 19 or int(word) > MOST_INTEGER:
            raise fault(f"{word} is more than 64 bits hold", place, f"integers go to {MOST_INTEGER}")
        return int(word)
    if kind == "string":
        return _unescaped(word[1:-1], place)
    return ""


def _unescaped(text: str, place: Place) -> str:
    def letter(match: re.Match[str]) -> str:
        if match.group(1) not in _ESCAPES:
            raise fault(f"\\{match.group(1)} is no escape", place, "those are \\n \\t \\\\ \\\" \\'")
        return _ESCAPES[match.group(1)]

    return re.sub(r"\\(.)", letter, text)
