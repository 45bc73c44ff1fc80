"""The fields of a body that a client sent: each one is taken by name and kind, and what nobody takes is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from morpho.serve.api.errors import ApiError

MOST_DEPTH = 64  # of lists and objects inside each other
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair, perhaps


def parsed(raw: bytes) -> Fields:
    """The object that a body holds."""
    try:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass")
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None
    except (ValueError, UnicodeDecodeError) as error:
        reason = "a number has too many digits" if "set_int_max_str_digits" in str(error) else error
        raise ApiError(400, f"the body is not JSON: {reason}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not a JSON object", code="invalid_json")
    if text.count("[") + text.count("{") > MOST_DEPTH:
        _check_depth(found)
    try:
        if not text.isascii():
            text.encode()
        if "\\u" in text and _HALF.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # some fields are said again in answers, and errors name others
        raise ApiError(400, "the body holds half of a surrogate pair, which is no text", code="invalid_json") from None
    fields = Fields(found)
    fields.size = len(raw)
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A name that comes twice has two values, of which others might take the other one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:80]!r} comes twice in one object")
    return found


def _check_depth(found: Any) -> None:
    level, depth = [found], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ApiError(400, f"the body is nested more than {MOST_DEPTH} deep", code="invalid_json")
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
                 if type(inner) in (dict, list)]


class Fields:
    """Fields of one object, taken one by one; `finish` refuses those that are left. null is a field left out.

    >>> from morpho.serve.api.fields import Fields
    >>> fields = Fields({"n": 2})
    >>> fields.whole("n", 1, most=8), fields.number("temperature", 1.0, 0, 2)
    (2, 1.0)
    >>> fields.finish()
    """

    size = 0  # bytes of the body that they were read from

    def __init__(self, given: dict[str, Any], within: str = "") -> None:
        self._left, self._within = {name: value for name, value in given.items() if value is not None}, within

    def name(self, field: str) -> str:
        return f"{self._within}.{field}" if self._within else field

    def take(self, field: str, default: Any = None) -> Any:
        """Any value."""
        return self._left.pop(field, default)

    def wrong(self, field: str, what: str) -> ApiError:
        return ApiError(400, f"'{self.name(field)}' {what}", self.name(field))

    def text(self, field: str, default: str | None = None, *, most: int = 1 << 20) -> str | None:
        found = self.take(field, default)
        if found is not None and not isinstance(found, str):
            raise self.wrong(field, "is not a string")
        if found is not None and len(found) > most:
            raise self.wrong(field, f"has more than {most} characters")
        return found

    def flag(self, field: str, default: bool = False) -> bool:
        found = self.take(field, default)
        if not isinstance(found, bool):
            raise self.wrong(field, "is neither true nor false")
        return found

    def number(self, field: str, default: float | None, least: float, most: float) -> float | None:
        found = self.take(field, default)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self.wrong(field, f"is not a number from {least:g} to {most:g}")
        return float(found)

    def whole(self, field: str, default: int | None, *, least: int = 0, most: int = 1 << 31) -> int | None:
        found = self.take(field, default)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)
                                  or not least <= found <= most):
            raise self.wrong(field, f"is not a whole number from {least} to {most}")
        return found

    def one_of(self, field: str, default: str | None, choices: Collection[str]) -> str | None:
        found = self.text(field, default)
        if found is not None and found not in choices:
            raise self.wrong(field, f"is {found[:80]!r}, and must be one of {', '.join(choices)}")
        return found

    def list(self, field: str, *, most: int) -> list[Any]:
        found = self.take(field, [])
        if not isinstance(found, list):
            raise self.wrong(field, "is not a list")
        if len(found) > most:
            raise self.wrong(field, f"has more than {most} items")
        return found

    def object(self, field: str) -> Fields | None:
        found = self.take(field)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(field, "is not an object")
        return None if found is None else Fields(found, self.name(field))

    def irrelevant(self, *names: str) -> None:
        """Fields that do not change what is computed here."""
        for name in names:
            self._left.pop(name, None)

    def only(self, field: str, *values: Any, why: str) -> None:
        """A field that is taken where it changes nothing."""
        found = self.take(field)
        if found is not None and found not in values:
            raise self.wrong(field, f"is not supported: {why}")

    def left(self) -> dict[str, Any]:
        """Fields that nobody has taken yet."""
        return dict(self._left)

    def finish(self) -> None:
        """Nothing is ignored in silence."""
        for name in self._left:
            shown = "".join(each if each.isprintable() else "?" for each in self.name(name)[:80])
            raise ApiError(400, f"'{shown}' is not a field that is known here", shown, "unknown_parameter")
