"""The version of a function's code: a digest that changes when what the function computes may have changed.

It covers the byte code, constants and defaults, the values of its closure and of the globals it reads, and, followed
through, the Python functions of the same package that it calls. Modules and names of other packages count by name.
"""

from __future__ import annotations

import hashlib
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.runtime.object_cache.keys import digest

_NOT_THERE = object()


def code_version(function: Any, content: Any = digest) -> str:
    """32 hexadecimal digits; `content` gives the digest of a value that the code reads.

    >>> def one(x): return x + 1
    >>> def same(x): return x + 1
    >>> def other(x): return x + 2
    >>> code_version(one) == code_version(same), code_version(one) == code_version(other)
    (True, False)
    """
    parts: list[str] = ["%d.%d" % sys.version_info[:2]]
    _function(function, parts, set(), content)
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _function(function: FunctionType, parts: list[str], seen: set[int], content: Any) -> None:
    if id(function.__code__) in seen:
        return
    seen.add(id(function.__code__))
    _code(function.__code__, parts)
    for default in (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
        _read("a default", default, function, parts, seen, content)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # a cell that is empty as yet
            parts.append(f"empty {name}")
            continue
        _read(f"'{name}' of the enclosing function", value, function, parts, seen, content)
    for name in _names(function.__code__):
        value = function.__globals__.get(name, _NOT_THERE)
        if value is not _NOT_THERE:
            parts.append(name)
            _read(f"the global '{name}'", value, function, parts, seen, content)


def _names(code: CodeType) -> list[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(_names(constant))
    return sorted(found)


def _code(code: CodeType, parts: list[str]) -> None:
    """Byte code, names and constants; neither lines nor file names."""
    parts += [code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _code(constant, parts)
        else:
            parts.append(f"{type(constant).__name__} {constant!r}")


def _read(what: str, value: Any, function: FunctionType, parts: list[str], seen: set[int], content: Any) -> None:
    inner = getattr(value, "__wrapped__", value)
    if isinstance(inner, FunctionType):
        if _package(inner.__module__) == _package(function.__module__):
            _function(inner, parts, seen, content)
        else:
            parts.append(f"{inner.__module__}.{inner.__qualname__}")
    elif isinstance(value, ModuleType):
        parts.append(value.__name__)
    elif isinstance(value, type | np.ufunc) or (callable(value) and hasattr(value, "__qualname__")):
        parts.append(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}")
    else:
        try:
            parts.append(content(value))
        except MorphoError:
            kind = type(value)
            raise fail(ArgumentError, "cache", f"{function.__qualname__} reads {what}, a {kind.__module__}."
                                               f"{kind.__qualname__}, whose content has no digest",
                       "pass what it needs of that as an argument, or give version=") from None


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]
