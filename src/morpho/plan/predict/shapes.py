"""Plain data against the types of dataclasses: a foreign file is looked through before anything is built from it."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from morpho.base.errors import ValueFault, fail

LARGEST = 2**62
LARGEST_FLOAT = 1e60  # no quantity is larger, in any unit


def require(value: Any, kind: Any, where: str) -> None:
    """Raise an error that names the place unless a value has the shape of a type hint.

    >>> require({"a": [1, 2]}, Mapping[str, tuple[int, ...]], "it")
    >>> require({"a": [1, "2"]}, Mapping[str, tuple[int, ...]], "it")
    Traceback (most recent call last):
    ...
    morpho.base.errors.ValueFault: [plan] it.a[1] is '2', not a whole number. ...
    """
    origin = get_origin(kind)
    if kind is Any:
        return
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not type(None)]
        if value is not None or len(options) == len(get_args(kind)):
            require(value, options[0], where)
    elif dataclasses.is_dataclass(kind):
        _require_fields(value, kind, where)
    elif origin is tuple:
        _require_items(value, get_args(kind), where)
    elif origin is not None and issubclass(origin, Mapping):
        _require_mapping(value, get_args(kind), where)
    else:
        _require_plain(value, kind, where)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _complain(where: str, value: Any, wanted: str) -> NoReturn:
    text = repr(value)
    shown = text if len(text) <= 40 else text[:37] + "..."
    raise fail(ValueFault, "plan", f"{where} is {shown}, not {wanted}", "give a file as Morpho wrote it")


def _require_plain(value: Any, kind: type, where: str) -> None:
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST_FLOAT:
            _complain(where, value, "a finite number")
    elif kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST:
            _complain(where, value, "a whole number")
    elif not isinstance(value, kind):
        _complain(where, value, {str: "text", bool: "true or false"}.get(kind, kind.__name__))


def _require_items(value: Any, kinds: tuple[Any, ...], where: str) -> None:
    if not isinstance(value, (list, tuple)):
        _complain(where, value, "a list")
    if len(kinds) == 2 and kinds[1] is ...:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        _complain(where, value, f"a list of {len(kinds)}")
    for position, (item, kind) in enumerate(zip(value, kinds)):
        require(item, kind, f"{where}[{position}]")


def _require_mapping(value: Any, kinds: tuple[Any, Any], where: str) -> None:
    if not isinstance(value, Mapping):
        _complain(where, value, "an object")
    for key, item in value.items():
        if kinds[0] is int and not (isinstance(key, str) and key.isdecimal() and len(key) < 18):
            _complain(f"a key of {where}", key, "a whole number")
        require(item, kinds[1], f"{where}.{key}")


def _require_fields(value: Any, kind: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        _complain(where, value, "an object")
    hints = _hints(kind)
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in known:
            raise fail(ValueFault, "plan", f"{where} has the unknown field {name!r}", "give a file as Morpho wrote it")
    for name, field in known.items():
        if name in value:
            require(value[name], hints[name], f"{where}.{name}" if where else name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise fail(ValueFault, "plan", f"{where} lacks {name!r}", "give a file as Morpho wrote it")
