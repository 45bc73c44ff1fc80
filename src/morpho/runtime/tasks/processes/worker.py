"""A worker process: takes calls from a pipe, one at a time, until it is closed."""

from __future__ import annotations

import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.runtime.tasks.futures import function_name
from morpho.runtime.tasks.processes.message import Message, pack, unpack


def run(connection: Connection) -> None:
    """The life of a worker. An interrupt is its parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            return
        if call is None:
            return
        connection.send(answer(call))


def answer(call: Any) -> tuple[bool, Any]:
    """Whether a call went well, and its result or what it raised, as a message."""
    try:
        chosen, message = call
        function, arguments = unpack(message)
        with settings.of(chosen):
            return True, _packed(function, function(*arguments))
    except BaseException as error:
        error.add_note("in a worker process:\n" + "".join(traceback.format_exception(error)).rstrip())
        return False, carried(error)


def _packed(function: Any, value: Any) -> Message:
    try:
        return pack(value)
    except Exception as error:
        raise fail(ArgumentError, "tasks", f"the result of {function_name(function)} cannot go to another process: "
                   f"{error}", "return what can be pickled: numbers, texts, arrays, lists of them", line="") from None


def carried(error: BaseException) -> Message:
    """An error as a message; one that cannot travel as its text."""
    message = Message(b"")
    try:
        message = pack(error)
        unpack(message)
        return message
    except Exception:
        message.drop()
        made = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            made.add_note(note)
        return pack(made)
