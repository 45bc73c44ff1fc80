"""Modules loaded at first use, so that `import morpho` stays quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from morpho.base.errors import CompileError, fail


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


class NeedsHandle(MetaPathFinder):
    """Says in one sentence that a process has no file handle left to load a part of Morpho with; finds no module."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.startswith("morpho."):
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                raise fail(CompileError, "load", f"the system gives no handle to load {fullname} ({error.strerror})",
                           "close files, or raise the limit of the process (ulimit -n)") from None


def expect_handles() -> None:
    """Check from here on, whenever a module of Morpho is loaded, that a file handle is free."""
    if not any(isinstance(finder, NeedsHandle) for finder in sys.meta_path):
        sys.meta_path.insert(0, NeedsHandle())
