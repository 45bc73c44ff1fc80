"""The few error classes of Morpho, and the one sentence every one of them says.

An error names the operation, what is wrong with both values, the user's line, and what to do:

    [matmul] shapes (3, 4) and (5, 6) do not align: 4 != 5. At train.py:41. Hint: transpose the second operand.

Each class derives from the built-in one a NumPy user would catch.
"""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep


class MorphoError(Exception):
    """Everything Morpho raises on purpose. `message` and `hint` are its parts without operation and line, for an
    operation that tells the same as its own error."""

    message = hint = ""


class ShapeError(MorphoError, ValueError):
    """Shapes that do not broadcast, align or reshape into each other."""


class DTypeError(MorphoError, TypeError):
    """A dtype an operation does not take, or two that do not promote."""


class AxisError(MorphoError, ValueError, IndexError):
    """An axis outside the tensor's dimensions, or named twice."""


class IndexFault(MorphoError, IndexError):
    """An index outside its axis, found while building the graph or while it runs."""


class ArgumentError(MorphoError, TypeError, ValueError):
    """A call with other arguments than the function takes: count, kind, name, value of an option, or a compiled
    function's guards. Callers may expect either built-in error, so it is both."""


class ValueFault(MorphoError, ValueError):
    """A value outside what the operation is defined for."""


class NotFinite(MorphoError, FloatingPointError):
    """An operation that made NaN or an infinity from finite numbers, inside `mo.debug.nans()`."""


class GradientMismatch(MorphoError, AssertionError):
    """A gradient that differs from that by differences, found by `mo.testing.check_gradients`."""


class DeviceError(MorphoError, RuntimeError):
    """A device or instruction set this machine does not have, or memory that is used up."""


class SharedError(MorphoError, RuntimeError):
    """A target that cannot be written because another tensor or an export shares its memory."""


class CompileError(MorphoError, RuntimeError):
    """A function that cannot become one native function; the message says which part and what to do instead."""


class MemoryLimit(MorphoError, MemoryError):
    """The pool's byte cap is reached, or no way to compute something keeps to the limit it was given."""


class TaskError(MorphoError, RuntimeError):
    """A task that did not run: something it needs failed or was cancelled, or it would wait for itself.

    `task` is the name of the task that failed first, where there is one; what that one raised is the cause.
    """

    task: str | None = None


class TaskTimeout(MorphoError, TimeoutError):
    """A task that was not done within the time its caller would wait."""


def user_line() -> str:
    """`file:line` of the innermost frame outside Morpho, or an empty string when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        # The __init__ that `dataclass` writes is compiled from text, and belongs to the class's module.
        written = filename == "<string>" and str(frame.f_globals.get("__name__", "")).startswith("morpho.")
        if not filename.startswith(_PACKAGE) and not written:
            return f"{filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def sentence(operation: str, message: str, hint: str = "", line: str | None = None) -> str:
    """The text of an error: operation, what is wrong, where, and what to do."""
    line = user_line() if line is None else line
    text = f"[{operation}] {message}."
    if line:
        text += f" At {line}."
    if hint:
        text += f" Hint: {hint}."
    return text


def fail(kind: type[MorphoError], operation: str, message: str, hint: str = "", line: str | None = None) -> MorphoError:
    """The error to raise: `raise fail(ShapeError, "matmul", "...")`."""
    error = kind(sentence(operation, message, hint, line))
    error.message, error.hint = message, hint
    return error
