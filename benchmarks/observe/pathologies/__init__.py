"""Programs with a known bottleneck, each beside the same program with the advice applied.

How to add some, without reading the analyser: put a file into this folder and register programs in it::

    from benchmarks.observe.pathologies import Program, pathology

    @pathology("many tiny calls", "python")
    def many_tiny_calls() -> Program:
        f = mo.compile(lambda x: x + 1)            # whatever belongs to neither version
        def bad() -> None: ...                     # some 20 to 500 ms, the bottleneck dominating
        def good() -> None: ...                    # the same result as one who takes the advice would write it
        return Program(bad, good)

The second argument is the kind of verdict that must come first: one of `morpho.observe.analyse.verdict.KINDS`, whose
values say in a line what each means; several, where more than one is a right answer. `cold=True` says that the program
is about first calls, so it is not called once before it is profiled.

    python -m benchmarks.observe.verdicts             # runs all of them: hit rate, and speed-up after the advice
    python -m benchmarks.observe.verdicts --only tiny
    python -m benchmarks.observe.verdicts --record    # stores each trace in tests/observe/traces for the test suite

A program that must not run in the suite needs nothing more: the tests read the stored traces.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """Two versions of a program; `close` undoes what they need."""

    bad: Callable[[], object]
    good: Callable[[], object]
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Pathology:
    """A program with the verdicts that are right for it."""

    name: str
    kinds: tuple[str, ...]
    make: Callable[[], Program]
    cold: bool


REGISTRY: dict[str, Pathology] = {}


def pathology(name: str, *kinds: str, cold: bool = False) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Register what makes a program under a name and the right verdicts."""
    from morpho.observe.analyse.verdict import KINDS

    assert kinds and all(kind in KINDS for kind in kinds), f"{name}: {kinds} are not among {sorted(KINDS)}"

    def register(make: Callable[[], Program]) -> Callable[[], Program]:
        assert name not in REGISTRY, f"{name} is there already"
        REGISTRY[name] = Pathology(name, kinds, make, cold)
        return make

    return register


def all_pathologies() -> dict[str, Pathology]:
    """Those of every file in this folder."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return REGISTRY
