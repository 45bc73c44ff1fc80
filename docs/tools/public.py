"""Every public name of Morpho: what `__all__` lists in `morpho` and in the namespaces that it names.

A namespace without `__all__` is asked for the functions and classes that it defines itself.

>>> from docs.tools.public import names
>>> len(names()) > 500, names()["mo.nn.Linear"].__name__
(True, 'Linear')
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

import morpho as mo


@functools.cache
def namespaces() -> dict[str, ModuleType]:
    """`mo`, `mo.nn`, `mo.nn.init`, ...: modules that are reached through `__all__`."""
    found: dict[str, ModuleType] = {}
    waiting: list[tuple[str, ModuleType]] = [("mo", mo)]
    while waiting:
        name, module = waiting.pop(0)
        found[name] = module
        for part in listed(module):
            value = getattr(module, part)
            if inspect.ismodule(value) and value not in found.values():
                waiting.append((f"{name}.{part}", value))
    return found


def listed(module: ModuleType) -> list[str]:
    """The public names of one namespace."""
    own = [name for name, value in vars(module).items()
           if not name.startswith("_") and needs_example(value) and value.__module__ == module.__name__]
    return list(getattr(module, "__all__", own))


@functools.cache
def names() -> dict[str, Any]:
    """Name -> object, in the order of `__all__`; modules apart."""
    return {f"{prefix}.{name}": value for prefix, module in namespaces().items() for name in listed(module)
            if not inspect.ismodule(value := getattr(module, name))}


def needs_example(value: Any) -> bool:
    """Functions and classes do; numbers, dtypes and tables show themselves."""
    return inspect.isclass(value) or inspect.isroutine(value)


def docstring(value: Any) -> str:
    """The text of a function or class, indented from 0; a class has its own, never its base's."""
    text = value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    return inspect.cleandoc(text) if text else ""


@functools.cache
def docstrings() -> frozenset[str]:
    """Those of all public names; tests/docs runs their examples, so that other tests need not."""
    return frozenset(docstring(value) for value in names().values() if needs_example(value))


def globals_of(value: Any) -> dict[str, Any]:
    """What an example may use beside what it imports: `mo`, and the names of the module that defines it."""
    home = sys.modules.get(getattr(inspect.unwrap(value), "__module__", "") or "")
    return {**(vars(home) if home else {}), "mo": mo, "__name__": "__main__"}


def home_of(value: Any) -> str:
    """The last part of the module that defines it: `elementwise`, `reduce`, ...; of a constant `constants`."""
    module = getattr(inspect.unwrap(value), "__module__", None) if needs_example(value) else None
    return module.rpartition(".")[2] if module else "constants"


def defined_in(value: Any) -> ModuleType | None:
    """The module whose source holds it."""
    module = getattr(inspect.unwrap(value), "__module__", None)
    return importlib.import_module(module) if module else None
