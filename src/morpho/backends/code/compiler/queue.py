"""Modules waiting for LLVM, and who compiles them: processes of their own while more come in, then this one too.

LLVM is behind one lock in a process, so a second core needs a second process. Each has a thread here that hands
it the longest module that waits and takes its code. What a process fails to give goes back to the others, said once.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from functools import cache
from typing import IO, TYPE_CHECKING

from morpho.backends.code.compiler import llvm
from morpho.backends.driver import threads
from morpho.base.machine import Isa

if TYPE_CHECKING:
    import subprocess

log = logging.getLogger("morpho")

LEAST_CHARACTERS = 250_000  # of LLVM text for each process: a third of a second of a slow core
MOST_PROCESSES = 4  # this one among them
MOST_SECONDS = 600  # of one module
LEAVING_SECONDS = 5


class _Running:
    """Processes that compile now, for all queues of this process."""

    def __init__(self) -> None:
        self.count, self.lock = 0, threading.Lock()

    def add(self, change: int) -> None:
        with self.lock:
            self.count += change


_running = _Running()
os.register_at_fork(after_in_child=_running.__init__)  # type: ignore[misc]


class CompileQueue:
    """Modules by name, compiled from the moment they are put in.

    >>> from morpho.backends.code.compiler.code import current_isa
    >>> with CompileQueue(current_isa()) as queue:
    ...     queue.put("f", "define double @f(double %x) { ret double %x }")
    ...     codes = queue.finish()
    >>> list(codes), len(codes["f"]) > 100
    (['f'], True)
    """

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.changed = threading.Condition()
        self.waiting: dict[str, str] = {}
        self.done: dict[str, bytes] = {}
        self.characters = 0  # of all modules so far
        self.closed = False
        self.taken: dict[str, str] = {}  # modules that a process has
        self.processes: list[subprocess.Popen[bytes]] = []
        self.helpers: list[threading.Thread] = []

    def __enter__(self) -> CompileQueue:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the processes, in the middle of a module if need be."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self._kill()
        for helper in self.helpers:
            helper.join(LEAVING_SECONDS)

    def _kill(self) -> None:
        for process in self.processes:
            process.kill()

    def put(self, name: str, text: str) -> None:
        """Have a module compiled, soon or by `finish`."""
        with self.changed:
            self.waiting[name] = text
            self.characters += len(text)
            self.changed.notify()
        if self.characters >= LEAST_CHARACTERS * (len(self.helpers) + 1):
            self.expect_more()

    def expect_more(self) -> None:
        """Start one more process, if the budget of threads has a core for it and no other queue has taken that."""
        if not sys.executable or _running.count + 1 >= min(threads.wanted_threads(), MOST_PROCESSES):
            return
        helper = threading.Thread(target=self._help, name="morpho-compile", daemon=True)
        _running.add(1)
        try:
            helper.start()
        except RuntimeError:  # no thread is to be had: this process compiles alone
            _running.add(-1)
            _say_failed()
            return
        self.helpers.append(helper)

    def finish(self) -> dict[str, bytes]:
        """The code of every module put in, compiling beside the processes until all is there."""
        while True:
            with self.changed:
                while not self.waiting and self.taken:
                    if not self.changed.wait(MOST_SECONDS):
                        self._kill()
                        self.waiting.update(self.taken)  # whoever had them may answer no more
                        self.taken.clear()
                if not self.waiting:
                    return self.done
                name, text = self._longest()
            self.done[name] = llvm.compile_text(text, self.isa)

    def _longest(self) -> tuple[str, str]:
        """Take the module that will take longest; the others fill the gaps at the end."""
        name = max(self.waiting, key=lambda key: len(self.waiting[key]))
        return name, self.waiting.pop(name)

    def _help(self) -> None:
        """Feed one process until there is nothing more."""
        try:
            process = self._start()
            try:
                while self._next(process):
                    pass
            finally:
                _end(process)
        except (OSError, RuntimeError):
            _say_failed()
        finally:
            _running.add(-1)

    def _next(self, process: subprocess.Popen[bytes]) -> bool:
        """Have one module compiled; whether there may be more."""
        with self.changed:
            while not self.waiting and not self.closed:
                self.changed.wait()
            if self.closed:
                return False
            name, text = self._longest()
            self.taken[name] = text
        code = None
        try:
            code = _ask(process, text)
        finally:
            with self.changed:
                if self.taken.pop(name, None) is not None:  # else it was given up
                    if code is None:
                        self.waiting[name] = text
                    else:
                        self.done[name] = code
                self.changed.notify_all()
        if code is None and not self.closed:
            _say_failed()
        return code is not None

    def _start(self) -> subprocess.Popen[bytes]:
        import json
        import subprocess
        from pathlib import Path

        from morpho.backends.code.compiler import worker

        process = subprocess.Popen([sys.executable, str(Path(worker.__file__))], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)  # Ctrl-C is for this process alone
        self.processes.append(process)
        if self.closed:
            process.kill()
        try:
            _stream(process.stdin).write(json.dumps(llvm.target_options(self.isa)).encode() + b"\n")
        except OSError:
            pass  # it has ended: the first module says so
        return process


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _ask(process: subprocess.Popen[bytes], text: str) -> bytes | None:
    """The code of a module from a process, or None where it failed."""
    module = text.encode()
    into, out = _stream(process.stdin), _stream(process.stdout)
    try:
        into.write(len(module).to_bytes(8, "little") + module)
        into.flush()
        length = int.from_bytes(out.read(8), "little")
        code = out.read(length)
    except (OSError, ValueError):
        return None
    return code if length and len(code) == length else None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        try:
            _stream(stream).close()
        except OSError:
            pass
    process.wait()


@cache
def _say_failed() -> None:
    log.warning("a process that compiles kernels failed; they are compiled in this one (said once)")
