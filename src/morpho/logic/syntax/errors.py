"""Errors of logic programs: one sentence, and the line of the program with a caret under what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.errors import MorphoError, sentence


@dataclass(frozen=True)
class Source:
    """A text with a name, for messages."""

    text: str
    name: str = "program"

    def line(self, number: int) -> str:
        """Line `number`, counted from 1; empty beyond the end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True)
class Place:
    """Where something stands: line and column from 1, and how many characters it has."""

    source: Source
    line: int
    column: int
    length: int = 1

    @property
    def excerpt(self) -> str:
        """The line, and a caret below the place."""
        text = self.source.line(self.line)
        shown = max(1, min(self.length, len(text) - self.column + 1))
        indent = "".join("\t" if letter == "\t" else " " for letter in text[: self.column - 1])
        return f"  {text}\n  {indent}{'^' * shown}"

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


class LogicError(MorphoError, ValueError):
    """A logic program that is not one: a mistake in its text, an unsafe variable, an arity or type that does not fit, a
    negation inside its own recursion. `line` and `column` (from 1) are where, `excerpt` shows the line and a caret.

    >>> try:
    ...     mo.logic.Program("p(X) :- q(Y).")
    ... except mo.logic.LogicError as error:
    ...     print(error.line, error.column)
    ...     print(error.excerpt)
    1 3
      p(X) :- q(Y).
        ^
    """

    line = column = 0
    excerpt = ""


def fault(message: str, place: Place | None, hint: str = "") -> LogicError:
    """The error to raise: `raise fault("variable X ...", term.place)`."""
    if place is None:
        error = LogicError(sentence("logic", message, hint, ""))
    else:
        error = LogicError(sentence("logic", f"{place}: {message}", hint, "") + "\n" + place.excerpt)
        error.line, error.column, error.excerpt = place.line, place.column, place.excerpt
    error.message, error.hint = message, hint
    return error
