"""A call that is ready to be timed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Prepared:
    """``function(*arguments, **keywords)`` followed by ``suffix``, e.g. ".block_until_ready()"."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    suffix: str = ""

    def loop(self) -> Callable[[int], float]:
        """A function that makes n calls and returns the seconds; the call is spelled out, as in timeit, so that
        nothing but the call itself is timed (unpacking of ``*arguments`` costs as much as a small add)."""
        positional = [f"argument{index}" for index in range(len(self.arguments))]
        words = ", ".join(positional + [f"{key}=keyword_{key}" for key in self.keywords])
        source = (
            "def run(calls):\n"
            "    iterator = repeat(None, calls)\n"
            "    start = clock()\n"
            "    for _ in iterator:\n"
            f"        function({words}){self.suffix}\n"
            "    return clock() - start\n"
        )
        names = ["function", "repeat", "clock", *positional, *(f"keyword_{key}" for key in self.keywords)]
        indented = "".join(f"    {line}\n" for line in source.splitlines())
        namespace: dict[str, Any] = {}
        exec(f"def make({', '.join(names)}):\n{indented}    return run\n", namespace)
        return namespace["make"](self.function, itertools.repeat, time.perf_counter, *self.arguments,
                                 *self.keywords.values())
