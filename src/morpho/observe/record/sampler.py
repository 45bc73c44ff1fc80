"""A thread that looks now and then while a profile runs: empties the rings, notes memory, samples the caller's stack.

Rings that fill up are emptied more often. Looks at memory and stacks are paid for by waiting: those that took long are
followed by a longer pause, so that looking stays a small share.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import FrameType

from morpho.observe.trace.model import MemoryRow
from morpho.runtime.memory.pool import pool

INTERVAL_S = 0.02
LEAST_INTERVAL_S = 0.001
MOST_SHARE = 0.01  # of the time that looking may take
MOST_SAMPLES = 4096  # of memory: when there are more, every other one goes
DEEPEST = 48  # frames of a stack that are kept
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib", "platstdlib"))
MORPHO = __file__.rpartition(os.sep + "observe" + os.sep)[0] + os.sep
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def rss_bytes() -> int:
    """The resident set of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def library_of(filename: str) -> str | None:
    """Owner of a source file: "morpho", a library's name, or None for the user's own.

    >>> library_of(__file__), library_of(threading.__file__), library_of("/home/me/train.py")
    ('morpho', 'threading', None)
    """
    if filename.startswith(MORPHO):
        return "morpho"
    for folder in LIBRARIES:
        if filename.startswith(folder):
            return filename[len(folder):].partition(os.sep)[0].removesuffix(".py")
    return "" if filename.startswith("<frozen") else None


class Sampler:
    """Looks until it is stopped; the last look is the stopper's."""

    def __init__(self, drain: Callable[[], float], watched: int, started_s: float) -> None:
        self._drain, self._watched, self._started_s = drain, watched, started_s
        self.memory: list[MemoryRow] = []
        self.stacks: dict[str, int] = {}  # frames from the outermost one on -> how often
        self.lines: dict[str, int] = {}  # line of the user's and library it called, where Morpho had no part in it
        self._libraries: dict[str, str | None] = {}
        self._every = self._looks = 1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="morpho-profile")

    def start(self) -> None:
        self.look_at_memory()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._drain()
        self.look_at_memory()

    def _run(self) -> None:
        pause, next_look = INTERVAL_S, 0.0
        while not self._stop.wait(pause):
            full = self._drain()
            pause = max(LEAST_INTERVAL_S, pause / 2) if full > 0.2 else min(INTERVAL_S, 1.5 * pause)
            begun = time.perf_counter()
            if begun < next_look:
                continue
            before = time.thread_time()
            self._look_at_stack()
            self._looks += 1
            if not self._looks % self._every:
                self.look_at_memory()
            next_look = begun + max(INTERVAL_S, (time.thread_time() - before) / MOST_SHARE)

    def look_at_memory(self) -> None:
        self.memory.append(MemoryRow(time.perf_counter() - self._started_s, pool().asked_bytes(), rss_bytes()))
        if len(self.memory) > MOST_SAMPLES:
            self.memory, self._every = self.memory[::2], 2 * self._every

    def _look_at_stack(self) -> None:
        frame: FrameType | None = sys._current_frames().get(self._watched)
        names: list[str] = []
        own, called, ours = "", "", False
        while frame is not None and len(names) < DEEPEST:
            code = frame.f_code
            if code.co_filename == "<frozen runpy>":  # who runs the script: `python -m`, `morpho profile`
                break
            names.append(f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"
                         if sys.version_info >= (3, 11) else code.co_name)
            library = self._library(code.co_filename)
            ours = ours or library == "morpho"
            if library is None and not own:
                own = f"{code.co_filename}:{frame.f_lineno}"
            elif library and not own:
                called = library
            frame = frame.f_back
        if own and not ours:
            key = f"{own} {called}".rstrip()
            self.lines[key] = self.lines.get(key, 0) + 1
        if names:
            key = ";".join(reversed([name.replace(";", ",") for name in names]))
            self.stacks[key] = self.stacks.get(key, 0) + 1

    def _library(self, filename: str) -> str | None:
        if filename not in self._libraries:
            self._libraries[filename] = library_of(filename)
        return self._libraries[filename]
