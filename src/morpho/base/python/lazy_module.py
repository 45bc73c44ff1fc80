"""Modules loaded at first use, so that `import morpho` stays quick."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class LazyModule:
    """Stands for the module that `load()` gives, and loads it when an attribute is first asked for."""

    __slots__ = ("_load", "_module")

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            self._module = self._load()
        return getattr(self._module, name)
