"""The few error classes of Morpho, and the one sentence every one of them says.

An error names the operation, what is wrong with both values, the user's line, and what to do:

    [matmul] shapes (3, 4) and (5, 6) do not align: 4 != 5. At train.py:41. Hint: transpose the second operand.

Each class derives from the built-in one a NumPy user would catch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType

__all__ = [
    "MorphoError", "ShapeError", "DTypeError", "AxisError", "IndexFault", "ArgumentError", "ValueFault", "NotFinite",
    "GradientMismatch", "DeviceError", "SharedError", "CompileError", "MemoryLimit", "TaskError", "TaskTimeout",
    "GroupError", "PeerLost",
]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
# Modules that run what others gave them, or load it.
_CARRIERS = ("threading", "concurrent.futures.thread", "asyncio.events", "asyncio.runners", "importlib",
             "importlib._bootstrap", "importlib._bootstrap_external")
Place = tuple[CodeType, int]
# By file name. An error inside a `with` block of Morpho's own comes through contextlib.
known_files: dict[str, bool] = {contextlib.__file__: True}


class MorphoError(Exception):
    """Everything Morpho raises on purpose. `message` and `hint` are its parts without operation and line, for an
    operation that tells the same as its own error.

    >>> try:
    ...     mo.ones((2, 3)) @ mo.ones((2, 3))
    ... except mo.errors.MorphoError as error:
    ...     print(type(error).__name__, "|", error.message)
    ShapeError | shapes (2, 3) and (2, 3) do not align: 3 != 2
    """

    message = hint = ""

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython and Jupyter show."""
        return "".join(traceback.format_exception(fold(self))).splitlines()


class ShapeError(MorphoError, ValueError):
    """Shapes that do not broadcast, align or reshape into each other.

    >>> mo.ones(2) + mo.ones(3)
    Traceback (most recent call last):
    ...
    morpho.base.errors.ShapeError: [add] shapes (2,) and (3,) do not broadcast: 2 != 3. At ...
    """


class DTypeError(MorphoError, TypeError):
    """A dtype an operation does not take, or two that do not promote.

    >>> mo.bitwise_and(1.5, 2)
    Traceback (most recent call last):
    ...
    morpho.base.errors.DTypeError: [bitwise_and] dtype float32 is not taken. At ...
    """


class AxisError(MorphoError, ValueError, IndexError):
    """An axis outside the tensor's dimensions, or named twice.

    >>> mo.sum(mo.ones(3), axis=1)
    Traceback (most recent call last):
    ...
    morpho.base.errors.AxisError: [sum] axis 1 is out of range for 1 dimensions. At ...
    """


class IndexFault(MorphoError, IndexError):
    """An index outside its axis, found while building the graph or while it runs.

    >>> mo.ones(3)[5]
    Traceback (most recent call last):
    ...
    morpho.base.errors.IndexFault: [index] index 5 is out of range for axis 0 of size 3. At ...
    """


class ArgumentError(MorphoError, TypeError, ValueError):
    """A call with other arguments than the function takes: count, kind, name, value of an option, or a compiled
    function's guards. Callers may expect either built-in error, so it is both.

    >>> mo.exp(3, 4)
    Traceback (most recent call last):
    ...
    morpho.base.errors.ArgumentError: [exp] exp() takes 1 positional argument but 2 were given. At ...
    """


class ValueFault(MorphoError, ValueError):
    """A value outside what the operation is defined for.

    >>> mo.fft.fft([1.0], n=0)
    Traceback (most recent call last):
    ...
    morpho.base.errors.ValueFault: [fft] a transform of length 0 does not exist. At ...
    """


class NotFinite(MorphoError, FloatingPointError):
    """An operation that made NaN or an infinity from finite numbers, inside `mo.debug.nans()`.

    >>> with mo.debug.nans():
    ...     mo.log(mo.asarray([0.0])).numpy()
    Traceback (most recent call last):
    ...
    morpho.base.errors.NotFinite: [log] 1 of 1 elements are not finite, the first, -inf, at [0]; its ...
    """


class GradientMismatch(MorphoError, AssertionError):
    """A gradient that differs from that by differences, found by `mo.testing.check_gradients`.

    >>> @mo.custom_gradient
    ... def wrong(x):
    ...     return x * x, lambda cotangent: cotangent * 3.0
    >>> mo.testing.check_gradients(wrong, mo.asarray([2.0]))
    Traceback (most recent call last):
    ...
    morpho.base.errors.GradientMismatch: [check_gradients] the gradient of argument 0 at [0] is ...
    """


class DeviceError(MorphoError, RuntimeError):
    """A device or instruction set this machine does not have, or memory that is used up.

    >>> mo.ones(3, device="tpu")
    Traceback (most recent call last):
    ...
    morpho.base.errors.DeviceError: [ones] device 'tpu' is not there. At ...
    """


class SharedError(MorphoError, RuntimeError):
    """A target that cannot be written because another tensor or an export shares its memory.

    >>> x = mo.ones(3)
    >>> view = x.numpy()
    >>> mo.compile(lambda a: a + 1)(mo.ones(3), out=x)
    Traceback (most recent call last):
    ...
    morpho.base.errors.SharedError: [<lambda>] out= shares its memory with another tensor, a pending ...
    """


class CompileError(MorphoError, RuntimeError):
    """A function that cannot become one native function; the message says which part and what to do instead.

    >>> mo.compile(lambda x: x if x.sum() > 0 else -x)(mo.ones(3))
    Traceback (most recent call last):
    ...
    morpho.base.errors.CompileError: [compile] the function being compiled asks for a value of its ...
    """


class MemoryLimit(MorphoError, MemoryError):
    """The pool's byte cap is reached, or no way to compute something keeps to the limit it was given.

    >>> with mo.settings(pool_bytes=1024):
    ...     mo.ones((1024, 1024)).numpy()
    Traceback (most recent call last):
    ...
    morpho.base.errors.MemoryLimit: [pool] 4.2 MB (4194304 bytes, 4194304 as a size class) asked for ...
    """


class TaskError(MorphoError, RuntimeError):
    """A task that did not run: something it needs failed or was cancelled, or it would wait for itself.

    `task` is the name of the task that failed first, where there is one; what that one raised is the cause.

    >>> broken = mo.tasks.submit(int, "x")
    >>> mo.tasks.submit(abs, broken).result()
    Traceback (most recent call last):
    ...
    morpho.base.errors.TaskError: [tasks] task 'abs' did not run: 'int', which it needs, failed with ...
    """

    task: str | None = None


class TaskTimeout(MorphoError, TimeoutError):
    """A task that was not done within the time its caller would wait.

    >>> import time
    >>> mo.tasks.submit(time.sleep, 0.2).result(timeout=0.01)
    Traceback (most recent call last):
    ...
    morpho.base.errors.TaskTimeout: [tasks] task 'sleep' is still running after 0.01 s. At ...
    """


class GroupError(MorphoError, RuntimeError):
    """Ranks that cannot work together: no MPI, another world than asked for, a transport that refuses.

    >>> issubclass(mo.errors.GroupError, RuntimeError)
    True
    """


class PeerLost(GroupError, ConnectionError):
    """A rank of the group died or was cut off while others waited for it. `shrink()` gives the group of the living.

    >>> issubclass(mo.errors.PeerLost, ConnectionError)
    True
    """


MOST_LINES = 1024  # that are remembered
_known_lines: dict[tuple[int, int], tuple[CodeType, str]] = {}  # by code and instruction


def user_line() -> str:
    """`file:line` of the innermost frame outside Morpho, or an empty string when there is none."""
    return line_of(user_place())


def user_place(depth: int = 1) -> Place | None:
    """Where the innermost frame outside Morpho is, as its code and the instruction; `line_of` makes a line of it when
    somebody wants to read it, which takes ten times as long. `depth`: so many frames are known to be Morpho's."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        ours = known_files.get(code.co_filename)
        if ours is None:
            ours = _is_ours(code.co_filename, frame)
        if not ours:
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def _is_ours(filename: str, frame: FrameType) -> bool:
    """Whether a file is Morpho's; remembered, except of what is compiled from text."""
    if filename == "<string>":  # the __init__ that `dataclass` writes belongs to the class's module
        return str(frame.f_globals.get("__name__", "")).startswith("morpho.")
    known_files[filename] = filename.startswith(_PACKAGE) or frame.f_globals.get("__name__") in _CARRIERS
    return known_files[filename]


def line_of(place: Place | None) -> str:
    """`file:line` of a place, or an empty string."""
    if place is None:
        return ""
    code, instruction = place
    key = id(code), instruction
    known = _known_lines.get(key)
    if known is not None and known[0] is code:  # a traced function asks for its caller's line at every operation
        return known[1]
    line = next((line for start, end, line in code.co_lines() if start <= instruction < end and line is not None),
                code.co_firstlineno)
    if len(_known_lines) >= MOST_LINES:
        _known_lines.clear()
    _known_lines[key] = code, f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{line}"


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


# -- tracebacks -------------------------------------------------------------------------------------------------------
_keeps_frames: list[Callable[[], bool]] = []  # whether tracebacks stay whole, by the settings


def fold(error: BaseException) -> BaseException:
    """Drop Morpho's own frames from the traceback of a user's error and of those it came from, in place. An error
    that is no `MorphoError` keeps them unless the user's own code raised it: it may be a fault of Morpho's, whose
    frames are the report. `MORPHO_LOG=debug` keeps all."""
    known: set[int] = set()
    link: BaseException | None = None if any(keep() for keep in _keeps_frames) else error
    while link is not None and id(link) not in known:
        known.add(id(link))
        _fold_one(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return error


def _fold_one(error: BaseException) -> None:
    entries: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    if not entries or not (isinstance(error, MorphoError) or _is_of_user(entries[-1].tb_frame)):
        return
    chain: TracebackType | None = None
    for entry in reversed([entry for entry in entries if not _is_hidden(entry.tb_frame)]):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    if chain is not None:
        error.__traceback__ = chain


def _is_hidden(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return (known_files[name] if name in known_files else _is_ours(name, frame)) or (
        str(frame.f_globals.get("__name__")).startswith("IPython."))


def _is_of_user(frame: FrameType) -> bool:
    """Whether a frame is of a program, rather than Morpho's, an installed package's or Python's own."""
    name = frame.f_code.co_filename
    installed = name.startswith((sys.prefix + os.sep, sys.base_prefix + os.sep, "<frozen "))
    return not installed and not _is_hidden(frame)


def fold_uncaught(keep: Callable[[], bool]) -> None:
    """Have errors that nobody catches shown by their users' lines, unless `keep()`: the hooks in place show them,
    folded. `pdb.pm()` still has every frame."""
    _keeps_frames.append(keep)
    show, show_of_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        show(kind, fold(error), error.__traceback__)

    def hook_of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            fold(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        show_of_thread(args)

    sys.excepthook, threading.excepthook = hook, hook_of_thread
