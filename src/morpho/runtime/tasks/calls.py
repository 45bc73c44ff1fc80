"""Functions as a scheduler calls them: with arguments by name, or in a thread of its own process in any case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from morpho.runtime.tasks.futures import function_name


class Here:
    """A function that a scheduler of processes runs in a thread of its own process."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__name__ = function, function_name(function)

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class Named:
    """A function with its last arguments by name, so that the rest of the scheduler knows plain arguments only."""

    def __init__(self, function: Callable[..., Any], names: tuple[str, ...]) -> None:
        self.function, self.names = function, names

    def __call__(self, *arguments: Any) -> Any:
        first = len(arguments) - len(self.names)
        return self.function(*arguments[:first], **dict(zip(self.names, arguments[first:], strict=True)))
