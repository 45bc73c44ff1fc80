"""JSON of strangers: sizes are limited before anything is made of it, and every fault is one sentence."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, NoReturn

from morpho.base.errors import ValueFault, fail

MOST_CHARACTERS = 256_000_000
MOST_DIGITS = 19  # of a whole number: 64 bits


def read_limited(path: Path) -> str:
    """The text of a file or a pipe; an OSError for one that is too long, such as a device that never ends."""
    with open(path, "rb") as file:
        raw = file.read(MOST_CHARACTERS + 1)
    if len(raw) > MOST_CHARACTERS:
        raise OSError(errno.EFBIG, f"it has more than {MOST_CHARACTERS} bytes", str(path))
    return raw.decode("utf-8")


class _TooManyDigits(ValueError):
    """A whole number beyond 64 bits."""


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise _TooManyDigits(len(digits.lstrip("-")))
    return int(digits)


def strict_json(text: str, what: str) -> Any:
    """Parse a JSON text; `what` names it in errors.

    >>> strict_json("[1, 2.5]", "it")
    [1, 2.5]
    >>> strict_json("1" * 5000, "it")
    Traceback (most recent call last):
    ...
    morpho.base.errors.ValueFault: [plan] it holds a whole number of 5000 digits. ...
    """
    def complain(problem: str, hint: str = "repair the file") -> NoReturn:
        raise fail(ValueFault, "plan", f"{what} {problem}", hint)

    if len(text) > MOST_CHARACTERS:
        complain(f"has {len(text)} characters", "no model or cluster needs so many")
    try:
        return json.loads(text, parse_int=_whole)
    except _TooManyDigits as error:
        complain(f"holds a whole number of {error} digits", f"give at most {MOST_DIGITS}")
    except RecursionError:
        complain("is nested too deeply")
    except (json.JSONDecodeError, ValueError) as error:
        complain(f"is not valid JSON: {error}")
