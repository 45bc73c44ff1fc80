"""Values between processes of one program: Python's own serialisation for what is small, arrays beside it.

The elements of arrays travel out of band: in a file of shared memory that the receiver maps, so that they are written
once and read where they lie. What comes is read by the process that this one started, or by ranks of its own group;
nothing is ever read from a file that somebody else made.
"""

from __future__ import annotations

import io
import itertools
import mmap
import os
import tempfile
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

LEAST_BYTES = 1 << 15  # smaller arrays go with the rest
_ALIGNED = 64
_numbers = itertools.count()


def shared_folder() -> Path:
    """Where shared memory has names."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else Path(tempfile.gettempdir())


@dataclass(frozen=True)
class Message:
    """A value on its way: its head, where the bytes of its arrays begin and end, and the file that holds them."""

    head: bytes
    spans: tuple[tuple[int, int], ...] = ()
    path: str = ""
    small: tuple[bytes, ...] = ()

    def drop(self) -> None:
        """Take the name of the memory away; who has mapped it keeps it."""
        if self.path:
            Path(self.path).unlink(missing_ok=True)


def pack(value: Any) -> Message:
    """A value as a message.

    >>> import numpy as np
    >>> message = pack({"x": np.arange(10000)})
    >>> found = unpack(message)
    >>> message.drop()
    >>> int(found["x"][-1]), len(message.head) < 1000
    (9999, True)
    """
    buffers: list[Any] = []
    head = io.BytesIO()
    ForkingPickler(head, 5, True, buffers.append).dump(value)
    raw = [buffer.raw() for buffer in buffers]
    if sum(part.nbytes for part in raw) < LEAST_BYTES:
        return Message(head.getvalue(), small=tuple(bytes(part) for part in raw))
    spans, place = [], 0
    for part in raw:
        spans.append((place, place + part.nbytes))
        place += -(-part.nbytes // _ALIGNED) * _ALIGNED
    path = shared_folder() / f"morpho-{os.getpid()}-{next(_numbers)}"
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b") as file:
        file.truncate(max(place, 1))
        memory = mmap.mmap(file.fileno(), max(place, 1))
    for part, (first, end) in zip(raw, spans, strict=True):
        memory[first:end] = part
    memory.close()
    return Message(head.getvalue(), tuple(spans), str(path))


def unpack(message: Message) -> Any:
    """The value of a message; its arrays lie in the memory that the sender wrote."""
    if not message.path:
        return ForkingPickler.loads(message.head, buffers=[bytearray(part) for part in message.small])
    with open(message.path, "r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0))
    return ForkingPickler.loads(message.head, buffers=[memory[first:end] for first, end in message.spans])
