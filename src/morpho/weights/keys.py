"""Tables of keys: a foreign file's key is used, known not to matter, or an error that names key and file: tables of
keys.

A `KeyTable` maps every key that a kind of file may have to a `Key`: `used` with the kind of value it takes, `only` for
what is computed for some values alone, `irrelevant` with the reason. One that ends with `*` stands for all that begin
so.

>>> from morpho.weights.keys import KeyTable, irrelevant, only, positive, used
>>> table = KeyTable({"width": used(positive(8)), "gated": only(False), "made_*": irrelevant("who wrote it")})
>>> table.check("load", "config.json", {"width": 4, "gated": False, "made_by": "me"})
>>> table.check("load", "config.json", {"width": 4, "gated": True})
Traceback (most recent call last):
...
morpho.base.errors.ArgumentError: [load] config.json: gated is True, and only False is computed. At ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.weights.scanner import shortened

MOST = 1 << 40  # of any size


@dataclass(frozen=True)
class Kind:
    """Test of a value, and the words for it."""

    fits: Callable[[Any], bool]
    wanted: str

    def or_null(self) -> Kind:
        return Kind(lambda value: value is None or self.fits(value), self.wanted + " or null")


@dataclass(frozen=True)
class Key:
    """Role of a key: "used", "only" or "irrelevant"."""

    role: str
    kind: Kind
    why: str = ""


class KeyTable(dict[str, Key]):
    """The keys of one kind of file."""

    def find(self, name: str) -> Key | None:
        """Return a key's entry; None if it is unknown."""
        found = self.get(name)
        if found is None:
            found = next((key for start, key in self.items() if start.endswith("*") and name.startswith(start[:-1])),
                         None)
        return found

    def check(self, operation: str, file: str, found: Mapping[str, Any], *, ignore: Collection[str] = (),
              within: str = "", kind: type[MorphoError] = ArgumentError) -> None:
        """Every key is known and its value is one of those it may have; the first that is not is an error. A null says
        nothing. `within` is what the keys are parts of, `ignore` what the caller goes on without."""
        where = f"{file}: " if file else ""
        for name, value in found.items():
            full = f"{within}.{name}" if within else str(name)
            if full in ignore or (value is None and self.find(name) is None):
                continue
            key = self.find(name)
            if key is None:
                raise fail(kind, operation, f"{where}{full} is {shortened(value)}, which Morpho does not know",
                           f"if it does not matter, go on without it: ignore=[{full!r}]" if file else "")
            if key.kind.fits(value):
                continue
            if key.role == "only":
                raise fail(kind, operation, f"{where}{full} is {shortened(value)}, and only {key.kind.wanted} is "
                                            "computed")
            raise fail(kind, operation, f"{where}{full} is {shortened(value)}", f"give {key.kind.wanted}")


# -- what becomes of a key ---------------------------------------------------------------------------------------------
def used(kind: Kind) -> Key:
    """A key that changes what is made."""
    return Key("used", kind)


def only(*values: Any, why: str = "") -> Key:
    """A key that would change the result, and is computed for these values alone."""
    def fits(value: Any) -> bool:
        return any(type(value) is type(wanted) and value == wanted for wanted in values)
    return Key("only", Kind(fits, " or ".join("null" if value is None else repr(value) for value in values)), why)


def irrelevant(why: str) -> Key:
    """A key that changes nothing here, whatever it says."""
    return Key("irrelevant", Kind(lambda value: True, "anything"), why)


# -- kinds of values ---------------------------------------------------------------------------------------------------
def is_whole(value: Any, least: int, most: int = MOST) -> bool:
    return type(value) is int and least <= value < most


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _such_as(example: Any) -> str:
    return "" if example is None else f", such as {example!r}"


def positive(example: Any = None) -> Kind:
    return Kind(lambda value: is_whole(value, 1), "a positive whole number" + _such_as(example))


def whole(example: Any = None) -> Kind:
    return Kind(lambda value: is_whole(value, 0), "a whole number" + _such_as(example))


def number(example: Any = None, least: float = -math.inf, most: float = math.inf, above: float = -math.inf) -> Kind:
    """A finite number from `least` to `most`, and more than `above`."""
    bounds = f" of more than {above:g}" if above > -math.inf else f" from {least:g} on" if least > -math.inf else ""
    bounds += f" to {most:g}" if most < math.inf else ""
    return Kind(lambda value: is_number(value) and least <= value <= most and value > above,
                f"a number{bounds}" + _such_as(example))


def flag() -> Kind:
    return Kind(lambda value: isinstance(value, bool), "true or false")


def text(example: Any = None) -> Kind:
    return Kind(lambda value: isinstance(value, str), "a name" + _such_as(example))


def one_of(*names: str) -> Kind:
    return Kind(lambda value: isinstance(value, str) and value in names, "one of " + ", ".join(names))


def token() -> Kind:
    return Kind(lambda value: is_whole(value, 0, 1 << 31), "the number of a token")


def tokens() -> Kind:
    """One token, or a list of them."""
    def fits(value: Any) -> bool:
        many = value if isinstance(value, list) else [value]
        return bool(many) and all(is_whole(each, 0, 1 << 31) for each in many)
    return Kind(fits, "the number of a token, or a list of them")


def sizes() -> Kind:
    return Kind(lambda value: isinstance(value, list) and all(is_whole(each, 1) for each in value),
                "a list of positive whole numbers")


def record() -> Kind:
    return Kind(lambda value: isinstance(value, dict), "an object of settings")
