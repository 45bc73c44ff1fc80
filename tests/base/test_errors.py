"""One sentence a user can act on, with the user's line, from classes a NumPy user would catch."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import morpho as mo
from morpho.base import errors
from morpho.base.errors import MorphoError, fail, sentence, user_line

BUILT_IN = {"ShapeError": ValueError, "DTypeError": TypeError, "AxisError": IndexError, "IndexFault": IndexError,
            "ArgumentError": TypeError, "ValueFault": ValueError, "DeviceError": RuntimeError,
            "SharedError": RuntimeError, "CompileError": RuntimeError, "MemoryLimit": MemoryError,
            "NotFinite": FloatingPointError, "GradientMismatch": AssertionError,
            "TaskError": RuntimeError, "TaskTimeout": TimeoutError, "GroupError": RuntimeError,
            "PeerLost": ConnectionError}
FORM = re.compile(r"\[[\w<> ]+\] .+\. At .*test_errors\.py:\d+\.( Hint: .+\.)?")


def test_classes() -> None:
    found = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and kind is not MorphoError}
    classes = {name: kind for name, kind in found.items() if issubclass(kind, MorphoError)}
    assert set(classes) == set(BUILT_IN)
    for name, kind in classes.items():
        assert issubclass(kind, BUILT_IN[name]) and kind.__doc__


def test_the_sentence() -> None:
    assert sentence("add", "wrong", "do this", "a.py:3") == "[add] wrong. At a.py:3. Hint: do this."
    assert sentence("add", "wrong", line="") == "[add] wrong."
    assert user_line().endswith(f"test_errors.py:{test_the_sentence.__code__.co_firstlineno + 3}")
    assert FORM.fullmatch(str(fail(errors.ShapeError, "add", "wrong", "do this")))


@pytest.mark.parametrize(("kind", "wrong"), [
    (errors.ShapeError, lambda: mo.ones((3, 4)) @ mo.ones((5, 6))),
    (errors.ShapeError, lambda: mo.ones((3, 4)) + mo.ones(5)),
    (errors.ShapeError, lambda: mo.ones((3, 4)).reshape(5, 5)),
    (errors.AxisError, lambda: mo.ones((3, 4)).sum(axis=2)),
    (errors.IndexFault, lambda: mo.ones((3, 4))[5]),
    (errors.DTypeError, lambda: mo.ones(3, dtype=mo.uint64) + mo.ones(3, dtype=mo.int8)),
    (errors.DTypeError, lambda: mo.ones(3) & mo.ones(3)),
    (errors.DTypeError, lambda: mo.ones(3, dtype=mo.uint8) + 300),
    (errors.DTypeError, lambda: mo.asarray("text")),
    (errors.DeviceError, lambda: mo.ones(3, device="moon")),
    (errors.ArgumentError, lambda: mo.Tensor()),
    (errors.ArgumentError, lambda: bool(mo.ones(3))),
    (errors.ArgumentError, lambda: mo.settings(colour=3)),
    (errors.ArgumentError, lambda: mo.settings(level=7)),
])
def test_errors_are_raised_on_the_line_that_is_wrong(kind: type[MorphoError], wrong: object) -> None:
    with pytest.raises(kind) as caught:
        wrong()  # type: ignore[operator]
    assert type(caught.value) is kind
    message = str(caught.value)
    assert FORM.fullmatch(message), message
    line = int(re.findall(r"test_errors\.py:(\d+)", message)[-1])
    assert line == wrong.__code__.co_firstlineno, message  # type: ignore[attr-defined]


def test_a_thread_s_own_line_is_nobody_s() -> None:
    """Nobody wrote the line of Python's library that runs what a thread was given; a user's function has a line."""
    def theirs() -> str:
        return str(fail(errors.ArgumentError, "serve", "this is wrong"))

    with ThreadPoolExecutor(1) as pool:
        assert "test_errors.py" in pool.submit(theirs).result()
        told = pool.submit(fail, errors.ArgumentError, "serve", "this is wrong").result()
    assert str(told) == "[serve] this is wrong."
