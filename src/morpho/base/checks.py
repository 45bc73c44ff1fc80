"""Arguments that are checked where a layer, an optimiser or a schedule is made, so that the error stands on that line.

>>> check_sizes("Linear", inputs=16, outputs=4)
>>> check_numbers("SGD", 0, lr=0.1)
"""

from __future__ import annotations

import math
import operator
import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail


def as_whole(value: Any) -> int | None:
    """A whole number as Python's, from anything with `__index__`; None for what is none, such as True.

    >>> import numpy as np
    >>> as_whole(np.int64(3)), as_whole(3.0), as_whole(True)
    (3, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_real(value: Any) -> float | None:
    """A finite real number as Python's; None for what is none, such as True, NaN or a text.

    >>> import numpy as np
    >>> as_real(np.float32(0.5)), as_real(2), as_real("2")
    (0.5, 2.0, None)
    """
    try:
        fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return None
    return float(value) if fits else None


def check_sizes(operation: str, /, **sizes: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise fail(ArgumentError, operation, f"{name}={shown(size)} is not a positive whole number",
                       f"write {name}={size}" if isinstance(size, str) and size.isdecimal() and int(size) else "")


def check_whole(operation: str, /, **numbers: object) -> None:
    """Refuse what is not a whole number, such as an axis."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise fail(ArgumentError, operation, f"{name}={shown(number)} is not a whole number")


def check_numbers(operation: str, least: float = -math.inf, below: float = math.inf, /, **numbers: object) -> None:
    """Refuse what is not a finite number of at least `least` and less than `below`."""
    for name, number in numbers.items():
        real = as_real(number)
        if real is None or not least <= real < below:
            wanted = ("" if least == -math.inf else f" of at least {least:g}") if below == math.inf else \
                f" in [{least:g}, {below:g})"
            raise fail(ArgumentError, operation, f"{name}={shown(number)} is not a number{wanted}")


def as_seconds(operation: str, name: str, value: object, longest_s: float = math.inf) -> float:
    """A time of more than nothing as a float; an error for what is none."""
    seconds = as_real(value)
    if seconds is None or not 0 < seconds <= longest_s:
        limit = "" if longest_s == math.inf else f" up to {longest_s:g}"
        raise fail(ArgumentError, operation, f"{name}={shown(value)} is not positive, as a number of seconds{limit}",
                   f"write {name}=30.0")
    return seconds


def check_flags(operation: str, /, **flags: object) -> None:
    """Refuse what is neither True nor False."""
    for name, flag in flags.items():
        if type(flag) is not bool and type(flag).__name__ not in ("bool", "bool_"):  # NumPy's
            raise fail(ArgumentError, operation, f"{name}={shown(flag)} is neither True nor False")


def check_texts(operation: str, /, **texts: object) -> None:
    """Refuse what is no text, or none that a file holds."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise fail(ArgumentError, operation, f"{name}={shown(text)} is not a text")
        if not text.isascii() and any(0xD800 <= ord(letter) < 0xE000 for letter in text):
            raise fail(ArgumentError, operation, f"{name}={shown(text)} has half of a letter, which no file holds")


def as_path(operation: str, name: str, value: object) -> Path:
    """A file or folder by its name; an error for what is no name of one."""
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "\0" in text:
        raise fail(ArgumentError, operation, f"{name}={shown(value)} names no file or folder",
                   "give a text or a pathlib.Path")
    return Path(text)


def shown(value: object) -> str:
    """A value in an error, short."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = f"a {type(value).__name__} of very many digits"
    except RecursionError:
        text = f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= 60 else text[:57] + "..."
