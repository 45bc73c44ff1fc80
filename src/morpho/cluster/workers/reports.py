"""How workers and the frontend hear of each other: requests through a file that grows, what happens through a pipe, a
line of JSON each. Only workers on the frontend's machine see them; the others speak to one that does."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

INBOX, EVENTS = "inbox.jsonl", "events"
BEAT_S = 0.5
LONGEST_LINE = 4000  # less than the pipe takes at once: what several workers write never mixes


class InboxWriter:
    """The frontend's end of the file of requests. When it has grown over `most_bytes` it is replaced by one with what
    is still of interest (`open_news`), so that a server that runs for months has a small one."""

    def __init__(self, folder: Path, open_news: Callable[[], Iterable[dict[str, Any]]], most_bytes: int = 1 << 20
                 ) -> None:
        self._path, self._open_news, self._most = folder / INBOX, open_news, most_bytes
        self._file: Any = open(self._path, "ab", buffering=0)
        self.size = 0

    def write(self, news: dict[str, Any]) -> None:
        """One line."""
        if self.size > self._most:
            self._replace()
        raw = json.dumps(news).encode() + b"\n"
        self._file.write(raw)
        self.size += len(raw)

    def _replace(self) -> None:
        """Whoever reads comes to the end of the old file before it opens the new one."""
        raw = b"".join(json.dumps(each).encode() + b"\n" for each in self._open_news())
        part = self._path.with_suffix(".part")
        file = open(part, "ab", buffering=0)
        file.write(raw)
        os.replace(part, self._path)
        self._file.close()
        self._file, self.size = file, len(raw)
        self._most = max(self._most, 2 * len(raw))  # what is open may be much

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


class Inbox:
    """The file of requests, read as it grows, and anew where it has been replaced."""

    def __init__(self, folder: Path) -> None:
        self._path, self._rest = folder / INBOX, b""
        self._file: Any = None
        self._lines: deque[bytes] = deque()

    def new(self) -> Iterator[dict[str, Any]]:
        """Whole lines written since the last call."""
        if self._file is None:
            self._file = open(self._path, "rb", buffering=0)
        replaced = os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino  # looked at before reading
        raw = self._file.read()
        if raw:
            *lines, self._rest = (self._rest + raw).split(b"\n")
            self._lines += lines
        elif replaced:
            self._file.close()
            self._file = None
        while self._lines:  # whoever stops in the middle finds the others at the next look
            yield json.loads(self._lines.popleft())


class Events:
    """The worker's end of the pipe."""

    def __init__(self, folder: Path) -> None:
        try:  # a frontend that is gone already must not let this wait for it
            self._pipe = os.open(folder / EVENTS, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise BrokenPipeError(f"there is no frontend: {error}") from None
        os.set_blocking(self._pipe, True)

    def beat(self, node: str) -> None:
        """Say, on a thread of its own, that the process is there, whatever else it does."""
        def say() -> None:
            while True:
                try:
                    self.write({"event": "beat", "node": node})
                except OSError:
                    return
                time.sleep(BEAT_S)

        threading.Thread(target=say, daemon=True).start()

    def write(self, *events: dict[str, Any]) -> None:
        """Some events, as few writes as they fit into; a frontend that is gone is a `BrokenPipeError`."""
        held = b""
        for event in events:
            raw = json.dumps(event).encode() + b"\n"
            if len(raw) > LONGEST_LINE:
                raw = json.dumps({"event": "note", "text": raw[:1000].decode(errors="replace")}).encode() + b"\n"
            if len(held) + len(raw) > LONGEST_LINE:
                os.write(self._pipe, held)
                held = b""
            held += raw
        os.write(self._pipe, held)


def is_running(process: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_stopped(process: int) -> bool:
    """Whether a process of this machine was stopped by a signal."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def end_process(process: int) -> None:
    """End a process of this machine, whatever it is doing."""
    try:
        os.kill(process, signal.SIGKILL)
    except OSError:
        pass
