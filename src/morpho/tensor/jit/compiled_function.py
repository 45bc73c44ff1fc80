"""A compiled function below its ways of calling: the original, its compilation, and counts of calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from morpho.backends.driver.abi import CommonField
from morpho.passes.remat.remat import Budget
from morpho.tensor.jit.changes import Changes
from morpho.tensor.jit.dynamic import dynamic_sizes
from morpho.tensor.jit.kept_traces import TraceSource
from morpho.tensor.jit.lifting import Numbers
from morpho.tensor.jit.native.native_entry import NativeEntry


class CompiledFunction(NativeEntry):
    """The state of one compiled function; `Compiled` adds what its user sees."""

    def __init__(self, function: Callable[..., Any], through_python: Callable[..., Any],
                 dynamic: Mapping[str, Any] | None, whole: bool, budget: Budget | None) -> None:
        super().__init__(through_python)
        self.function, self.whole, self.budget = function, whole, budget
        self.__name__ = getattr(function, "__name__", type(function).__name__)  # a module has no name of its own
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.signature = inspect.signature(function)
        plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in self.signature.parameters.values())
        self.positional = tuple(self.signature.parameters) if plain else None
        self.dynamic = dynamic_sizes(dynamic, self.signature)
        self.changes = Changes()
        self.numbers = Numbers()
        self.source: TraceSource | None = None
        self.recompiles = self.slow_calls = self.fallbacks = 0

    @property
    def calls(self) -> int:
        return self.native_calls + self.slow_calls

    @property
    def native_calls(self) -> int:
        """Calls that the native entry served."""
        return int(self.common[CommonField.CALLS])
