"""The version of a function's code: a digest that changes when what the function computes may have changed.

It covers the byte code, constants and defaults, the values of its closure and of the globals it reads, and, followed
through, the functions, classes and modules of the same package that it uses. What other packages have counts by name.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import sys
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.runtime.object_cache.keys import digest

_NOT_THERE = object()
_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
_FIXED = (bool, int, float, complex, str, bytes, type(None), FunctionType, ModuleType, type, np.ufunc)


def code_version(function: Any, content: Any = digest) -> str:
    """32 hexadecimal digits; `content` gives the digest of a value that the code reads.

    >>> def one(x): return x + 1
    >>> def same(x): return x + 1
    >>> def other(x): return x + 2
    >>> code_version(one) == code_version(same), code_version(one) == code_version(other)
    (True, False)
    """
    return CodeVersion(function, content).digest


class CodeVersion:
    """The version of a function in `digest`, and whether what it was made from still stands.

    >>> space = {"scale": 2, "__name__": "program"}
    >>> exec("def scaled(x): return scale * x", space)
    >>> version = CodeVersion(space["scaled"])
    >>> version.holds(), space.update(scale=3), version.holds()
    (True, None, False)
    """

    def __init__(self, function: Any, content: Any = digest) -> None:
        self._content, self._package = content, _package(getattr(inspect.unwrap(function), "__module__", ""))
        self._parts: list[str] = ["%d.%d" % sys.version_info[:2]]
        self._seen: dict[Any, Any] = {}  # what was followed, kept so that no other takes its id
        self._reads: list[tuple[Any, str, Any, str]] = []  # (its holder, its name there, the value, its digest)
        self._value("the function", function, function)
        joined = "\0".join(self._parts).encode("utf-8", "surrogatepass")
        self.digest = hashlib.blake2b(joined, digest_size=16).hexdigest()

    def holds(self) -> bool:
        """Whether globals, closures and defaults hold what they held: the same objects, with the same content."""
        for holder, name, value, content in self._reads:
            if holder is not None and _held(holder, name) is not value:
                return False
            if content and self._content(value) != content:
                return False
        return True

    def adopt(self) -> None:
        """Take what is held now for what `holds` compares with: a run of the function itself changed it."""
        found = []
        for holder, name, before, content in self._reads:
            value = before if holder is None else _held(holder, name)
            try:
                found.append((holder, name, value, content and str(self._content(value))))
            except MorphoError:  # no longer a value with content: the next call says so
                found.append((holder, name, value, content))
        self._reads = found

    # -- what is followed ----------------------------------------------------------------------------------------------
    def _is_new(self, *key: Any) -> bool:
        """Whether this is met for the first time; its number stands for it afterwards."""
        ids = tuple(map(id, key))
        known = ids in self._seen
        self._parts.append(f"number {self._seen.setdefault(ids, (len(self._seen), key))[0]}")
        return not known

    def _function(self, function: FunctionType) -> None:
        if not self._is_new(function):
            return
        code = function.__code__
        _code(code, self._parts)
        for default in (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
            self._read("a default", None, "", default, function)
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            self._parts.append(name)
            self._read(f"'{name}' of the enclosing function", cell, "", _held(cell, ""), function)
        for name in _names(code):
            value = function.__globals__.get(name, _NOT_THERE)
            if value is not _NOT_THERE:
                self._parts.append(name)
            self._read(f"the global '{name}'", function.__globals__, name, value, function)

    def _read(self, what: str, holder: Any, name: str, value: Any, reader: FunctionType) -> None:
        """A value that is read out of `holder`: of the version, and looked at again in `holds`."""
        plain = value is _NOT_THERE or isinstance(value, _FIXED) or callable(value)
        found = "" if plain else self._digest(what, value, reader)
        self._reads.append((holder, name, value, found))
        if found:
            self._parts.append(found)
        elif value is _NOT_THERE:
            self._parts.append("nothing")
        else:
            self._value(what, value, reader)

    def _value(self, what: str, value: Any, reader: Any) -> None:
        wrapped, owner = getattr(value, "__wrapped__", None), getattr(value, "__self__", None)
        if isinstance(value, FunctionType):
            own = _package(value.__globals__.get("__name__")) == self._package
            if own or (value is reader and wrapped is None):
                self._function(value)
            else:
                self._foreign(value)
        elif isinstance(value, ModuleType):
            self._module(value, reader)
        elif isinstance(value, type):
            self._class(value, reader)
        elif isinstance(wrapped, FunctionType) and _package(type(value).__module__) != self._package:
            self._value(what, wrapped, reader)  # a jitted function, one of lru_cache
        elif callable(value) and hasattr(value, "__qualname__") and wrapped is None:
            self._parts.append(_named(value))
            if owner is not None:  # a method: of a module, a class, or of an object that has content
                self._read(f"the object of {what}", None, "", owner, reader)
            if isinstance(getattr(value, "__func__", None), FunctionType):
                self._value(what, value.__func__, reader)
        elif isinstance(value, np.ufunc):
            self._parts.append(f"ufunc {value.__name__}")
        else:
            self._parts.append(self._digest(what, value, reader))

    def _foreign(self, function: FunctionType) -> None:
        """Another package's function counts by name; a wrapper of it with what it wraps and holds."""
        self._parts.append(_named(function))
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is None or not self._is_new(function):
            return
        for cell in function.__closure__ or ():
            value = _held(cell, "")
            try:
                self._parts.append("" if value is wrapped else self._content(value))
            except MorphoError:
                self._parts.append(type(value).__qualname__)
        self._value("the function", wrapped, function)

    def _module(self, module: ModuleType, reader: FunctionType) -> None:
        """Of a module of the same package, what the reader's names may mean there."""
        self._parts.append(module.__name__)
        if _package(module.__name__) != self._package or not self._is_new(module, reader.__code__):
            return
        for name in _names(reader.__code__):
            if name in vars(module):
                self._parts.append(name)
                self._read(f"'{module.__name__}.{name}'", vars(module), name, vars(module)[name], reader)

    def _class(self, kind: type, reader: Any) -> None:
        """Of a class of the same package, its functions and what else it holds that has content."""
        self._parts.append(_named(kind))
        if _package(kind.__module__) != self._package or not self._is_new(kind):
            return
        for base in kind.__mro__[1:]:
            self._class(base, reader)
        for name, item in sorted(vars(kind).items()):
            functions = [each for each in (item, *(getattr(item, part, None) for part in _INSIDE))
                         if isinstance(each, FunctionType)]
            if not functions and (name.startswith("__") or name.startswith("_abc_")):
                continue  # __doc__, __firstlineno__
            self._parts.append(name)
            self._reads.append((vars(kind), name, item, ""))
            for function in functions:
                self._value("the class", function, reader)
            if not functions:
                self._member(item)

    def _member(self, item: Any) -> None:
        try:
            self._parts.append(self._content(item.value if isinstance(item, enum.Enum) else item))
        except MorphoError:
            self._parts.append(type(item).__qualname__)

    def _digest(self, what: str, value: Any, reader: Any) -> str:
        try:
            return str(self._content(value))
        except MorphoError:
            kind = type(value)
            raise fail(ArgumentError, "cache", f"{getattr(reader, '__qualname__', reader)} reads {what}, a "
                                               f"{kind.__module__}.{kind.__qualname__}, whose content has no digest",
                       "pass what it needs of that as an argument, or give version=") from None


_INSIDE = ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")  # of methods, properties, cached ones


def _held(holder: Any, name: str) -> Any:
    if isinstance(holder, CellType):
        try:
            return holder.cell_contents
        except ValueError:  # a cell that is empty as yet
            return _NOT_THERE
    found: Mapping[str, Any] = holder
    return found.get(name, _NOT_THERE)


def _named(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"


def _names(code: CodeType) -> list[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(_names(constant))
    return sorted(found)


def _code(code: CodeType, parts: list[str]) -> None:
    """Byte code, what it catches, parameters, names and constants; neither lines nor file names."""
    parts += [code.co_code.hex(), getattr(code, "co_exceptiontable", b"").hex(),
              f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} "
              f"{code.co_flags & _FLAGS}"]
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        parts += [str(len(names)), *names]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _code(constant, parts)
        else:
            parts.append(_constant(constant))


def _constant(value: Any) -> str:
    if isinstance(value, frozenset):  # its order is another one in each process
        return f"frozenset {sorted(map(_constant, value))}"
    return f"{type(value).__name__} {value!r}"


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]
