"""Arguments that are checked where a layer, an optimiser or a schedule is made, so that the error stands on that line.

>>> check_sizes("Linear", inputs=16, outputs=4)
>>> check_numbers("SGD", 0, lr=0.1)
"""

from __future__ import annotations

import math
from numbers import Integral, Real

from morpho.base.errors import ArgumentError, fail


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
        fits = isinstance(number, Real) and not isinstance(number, bool) and math.isfinite(number)
        if not (fits and least <= number < below):  # type: ignore[operator]
            wanted = ("" if least == -math.inf else f" of at least {least:g}") if below == math.inf else \
                f" in [{least:g}, {below:g})"
            raise fail(ArgumentError, operation, f"{name}={shown(number)} is not a number{wanted}")


def shown(value: object) -> str:
    """A value in an error, short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
