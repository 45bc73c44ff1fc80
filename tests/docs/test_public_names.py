"""Every public name has a docstring whose example runs, and an entry in the reference."""

from __future__ import annotations

import contextvars
import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.tools import public
from morpho import plan
from morpho.plan.solve.registry import STRATEGIES

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TESTED = {name: value for name, value in public.names().items() if public.needs_example(value)}
# Of several names of one thing the first is run.
RUN = {name: TESTED[name] for name in {public.docstring(TESTED[name]): name for name in reversed(TESTED)}.values()}
# By namespace, and the large ones by first letter: few tests, and as many as there are processes to share them.
GROUPS = sorted({(name.rpartition(".")[0], name.rpartition(".")[2][0].lower()) for name in RUN})


@pytest.fixture(autouse=True)
def strategies_as_before() -> Iterator[None]:
    """The example of `register_strategy` adds one, and there is no way to take it back."""
    known = set(plan.strategies())
    yield
    for added in set(plan.strategies()) - known:
        STRATEGIES.pop(added)


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    """Functions and classes alike."""
    bare = [name for name, value in TESTED.items() if not public.docstring(value)]
    assert not bare, f"no docstring: {bare}"
    without = [name for name, value in TESTED.items() if ">>>" not in public.docstring(value)]
    assert not without, f"a docstring without an example (>>>): {without}"


def failures(name: str, value: Any) -> str:
    """What is not as the docstring says, in doctest's words; empty when all is."""
    told: list[str] = []
    example = doctest.DocTestParser().get_doctest(public.docstring(value), public.globals_of(value), name, name, 0)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    contextvars.copy_context().run(runner.run, example, out=told.append)
    return "".join(told)


@pytest.mark.parametrize(("namespace", "letter"), GROUPS)
def test_examples_of_public_names_are_true(namespace: str, letter: str, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in an empty folder, with settings that do not leak."""
    monkeypatch.chdir(tmp_path)
    for name, value in RUN.items():
        if name.rpartition(".")[0] == namespace and name.rpartition(".")[2][0].lower() == letter:
            told = failures(name, value)
            assert not told, told


def test_a_false_example_is_told() -> None:
    """With the name and what came instead."""
    def half(x: float) -> float:
        """>>> mo.asarray([1.0, 2.0]).sum().item()
        4.0
        """
        return x / 2

    assert "half" in failures("half", half) and "3.0" in failures("half", half)
