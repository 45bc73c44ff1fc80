"""`mo.cache`: computed objects kept in memory and on disk, and functions whose results are kept."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from morpho.base.checks import as_path, check_texts, shown
from morpho.base.dtypes import BY_NAME
from morpho.base.errors import ArgumentError, fail
from morpho.base.units import parse_bytes
from morpho.runtime.memory.buffer import borrow
from morpho.runtime.object_cache.cache import ObjectCache, check_key
from morpho.runtime.object_cache.keys import digest
from morpho.runtime.object_cache.values import DEEPEST, Bits, freeze
from morpho.tensor.autodiff.autograd import requires_grad
from morpho.tensor.autodiff.grad_mode import held_below, tracing
from morpho.tensor.core import Tensor
from morpho.tensor.tools.code_version import CodeVersion

__all__ = ["Cache", "Memoised", "cache"]


def cache(function: Callable[..., Any] | None = None, /, *, memory: str | int = "256MiB",
          disk: str | os.PathLike[str] | None = None, disk_bytes: str | int = "4GiB", ttl_s: float | None = None,
          name: str = "", version: Any = None, key: Callable[..., Any] | None = None) -> Any:
    """A cache of computed objects, which also decorates functions: `@mo.cache`, `@mo.cache(disk="results")`, or
    `store = mo.cache(memory="1GiB")` with `store.get_or_create(key, make)`.

    memory, disk_bytes: most bytes of either tier. disk: a folder, made if it is not there, that processes share; None
        keeps in memory only. ttl_s: seconds after which a value is made anew. name: for figures.
    version, key: see `Cache.__call__`.

    Keys of a decorated function are the content of its arguments (bytes, dtype and shape of tensors and arrays) and the
    version of its code. Values are tensors, arrays, numbers, texts, bytes, and lists, tuples and dicts of them; arrays
    come back read-only. However many threads and processes ask, a missing value is made once.

    >>> import morpho as mo
    >>> @mo.cache
    ... def gram(x):
    ...     print("computed")
    ...     return x.T @ x
    >>> x = mo.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> float(gram(x).sum()), float(gram(mo.asarray([[1.0, 2.0], [3.0, 4.0]])).sum())
    computed
    (58.0, 58.0)
    """
    check_texts("cache", name=name)
    if key is not None and not callable(key):
        raise fail(ArgumentError, "cache", f"key={shown(key)} is no function")
    folder = None if disk is None else as_path("cache", "disk", disk).absolute()
    made = Cache(parse_bytes(memory, "cache", "memory"), folder, parse_bytes(disk_bytes, "cache", "disk_bytes"), ttl_s,
                 name)
    if function is None:
        return made if version is None and key is None else functools.partial(made, version=version, key=key)
    return made(function, version=version, key=key)


def _frozen(value: Any) -> Any:
    """A value as caches keep it: tensors as their bits, in memory of their own."""
    if isinstance(value, Tensor):
        bits = value.elements().numpy().copy()
        bits.flags.writeable = False
        return Bits(value.dtype.name, bits)
    return freeze(_replaced(value, _frozen))


def _replaced(value: Any, bits_of: Callable[[Any], Any], depth: int = 0) -> Any:
    """The value with `Bits` for tensors, at whatever depth that can be kept; keys of dicts are never tensors."""
    if isinstance(value, Tensor):
        return bits_of(value)
    if depth > DEEPEST:
        return value  # what is given on is refused for its depth
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, bits_of, depth + 1) for item in value)
    if type(value) is dict:
        return {name: _replaced(item, bits_of, depth + 1) for name, item in value.items()}
    return value


def _tensor(bits: Bits) -> Tensor:
    """A tensor over the cache's memory, which no tensor writes."""
    return Tensor.of_buffer(borrow(bits.array, BY_NAME[bits.dtype]))


def _content(value: Any) -> str:
    """The digest of a value with tensors in it, without copies."""
    return digest(_replaced(value, _seen))


def _seen(value: Tensor) -> Bits:
    _refuse_gradient(value)
    return Bits(value.dtype.name, value.elements().numpy())


def _refuse_gradient(tensor: Tensor) -> None:
    """A kept result has no gradient: where one is taken that is an error, not a gradient of zero."""
    if not tensor.dtype.is_inexact or tracing.gradients_off:
        return
    if requires_grad(tensor) or (tracing.transformed and held_below(tensor)):
        raise fail(ArgumentError, "cache", "a gradient is taken of this argument, and kept results have none",
                   "give x.detach(), or call the function within mo.no_grad()")


class Cache(ObjectCache):
    """A cache from `mo.cache(...)`.

    >>> import morpho as mo
    >>> store = mo.cache(memory="1MiB", name="squares")
    >>> store.get_or_create(7, lambda: 7 * 7), store.get(7), store.get(8)
    (49, 49, None)
    >>> store.put("weights", mo.asarray([1.0, 2.0]))
    >>> store.get("weights")
    Tensor([1., 2.], dtype=float32)
    >>> store.stats()["hits"], len(store)
    (2, 2)
    """

    def __init__(self, memory_bytes: int, folder: Path | None = None, disk_bytes: int = 4 << 30,
                 ttl_s: float | None = None, name: str = "", **options: Any) -> None:
        super().__init__(memory_bytes, folder, disk_bytes, ttl_s, name, _frozen, _tensor, **options)

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of `key`."""
        check_key(key)
        super().put(key, value)

    def __call__(self, function: Callable[..., Any], /, *, version: Any = None,
                 key: Callable[..., Any] | None = None) -> Memoised:
        """Decorate a function: its results are kept here.

        version: what stands for its code, instead of a digest of it and of what it reads. key: a function of the same
            arguments that says what the result depends on, where the arguments have no content of their own.

        >>> import morpho as mo
        >>> store = mo.cache(memory="1MiB")
        >>> @store
        ... def double(x):
        ...     return 2 * x
        >>> double(4), double(4), double.cache is store
        (8, 8, True)
        """
        if not callable(function):
            raise fail(ArgumentError, "cache", f"a {type(function).__qualname__} is no function")
        return Memoised(self, function, version, key)


class Memoised:
    """A function whose results are kept in `cache`; `__wrapped__` is the function itself.

    >>> import morpho as mo
    >>> @mo.cache
    ... def add(x, y=1):
    ...     return x + y
    >>> add(1), add(1, 1), add(x=1), add.stats()["made"]
    (2, 2, 2, 1)
    """

    def __init__(self, store: Cache, function: Callable[..., Any], version: Any,
                 key: Callable[..., Any] | None) -> None:
        functools.update_wrapper(self, function)
        self.cache, self._function, self._key = store, function, key
        self._signature, self._count = _signature(function)
        self._given = version
        self._head: tuple[str, ...] = ()
        self._version: CodeVersion | None = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.cache.get_or_create(self.key(*args, **options), lambda: self._made(*args, **options))

    def _made(self, *args: Any, **options: Any) -> Any:
        """Globals and closure variables that a run itself changes (a counter): they make no new version."""
        try:
            return self._function(*args, **options)
        finally:
            if self._version is not None:
                self._version.adopt()

    def key(self, *args: Any, **options: Any) -> str:
        """The key of a call: a digest of the function, its version, and the content of the arguments."""
        head = self._head if self._head and (self._version is None or self._version.holds()) else self._found_head()
        if self._key is not None:
            return _content((*head, self._key(*args, **options)))
        if self._signature is None:
            return _content((*head, args, options))
        if options or len(args) != self._count:
            bound = self._signature.bind(*args, **options)
            bound.apply_defaults()
            if self._count >= 0:
                return _content((*head, *bound.args, *bound.kwargs.values()))
            return _content((*head, bound.args, bound.kwargs))
        return _content((*head, *args))

    def _found_head(self) -> tuple[str, ...]:
        """Name and version, when first asked for (the globals of a module are all there only then), and when what the
        function reads is another one."""
        inner = inspect.unwrap(self._function)
        name = f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
        if self._given is not None:
            self._head = (name, _content(("version", self._given)))
        elif inspect.isfunction(inner):
            self._version = CodeVersion(self._function, _content)
            self._head = (name, self._version.digest)
        else:
            raise fail(ArgumentError, "cache", f"{name} is not written in Python: its version is not known",
                       "give version=")
        return self._head

    def forget(self, *args: Any, **options: Any) -> None:
        """Forget the result of a call."""
        self.cache.remove(self.key(*args, **options))

    def stats(self) -> dict[str, Any]:
        return self.cache.stats()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method: the object is the first argument."""
        return self if instance is None else functools.partial(self, instance)


def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature | None, int]:
    """(the signature, the number of its parameters where all of them may be given by place)."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):  # not written in Python, and says nothing of itself
        return None, -1
    kinds = [parameter.kind for parameter in found.parameters.values()]
    plain = all(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
    return found, len(kinds) if plain else -1
