"""A property that is computed once and then kept in its object.

`functools.cached_property` is just that from Python 3.12 on. Before, it holds a lock while it computes, one for all
objects of a class: a process forked meanwhile by another thread waits for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """As `functools.cached_property`: `@cached_property` above a method of no arguments.

    >>> class Circle:
    ...     radius = 2.0
    ...     @cached_property
    ...     def area(self) -> float:
    ...         return 3.0 * self.radius ** 2
    >>> Circle().area
    12.0
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: Any = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: Any = None) -> T: ...
    def __get__(self, instance: object | None, owner: Any = None) -> cached_property[T] | T:
        if instance is None:
            return self
        found = self.function(instance)  # two threads may both compute it: the same value
        return instance.__dict__.setdefault(self.name, found)  # type: ignore[no-any-return]
