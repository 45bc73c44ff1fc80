"""Packed weights that several compiled functions share.

A function packs the weights it captures once, and keeps them (`constants`). Another one that packs the same elements in
the same way, as the functions of an engine do, takes what is there: an entry names the kernel and its numbers, and the
elements by the identity of their tensor's layout, which changes when they do. Nothing is held by an entry: memory goes
with the last function that uses it, and who is about to overwrite elements forgets them first.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from morpho.backends.code.compiler.code import stored_kernel
from morpho.program.program import Program, Step
from morpho.runtime.memory.buffer import Buffer
from morpho.tensor.core import Tensor

Key = tuple[Any, ...]


@dataclass(frozen=True)
class _Entry:
    buffer: weakref.ref[Buffer]
    storages: tuple[Any, ...]
    layouts: tuple[Any, ...]  # held, so that no other gets their identities


class SharedPacks:
    """Packed copies by their source. `taken` counts packs that were not made again."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._lock = threading.Lock()
        self.taken = 0

    def find(self, program: Program, sources: Mapping[int, Tensor]) -> dict[int, Buffer]:
        """The slots of a program whose contents are there already; `sources` are captured tensors by slot."""
        found = {}
        with self._lock:
            for slot, key, _ in _packs(program, sources):
                entry = self._entries.get(key)
                buffer = None if entry is None else entry.buffer()
                if buffer is not None:
                    found[slot] = buffer
            self.taken += len(found)
        return found

    def keep(self, program: Program, sources: Mapping[int, Tensor], made: Mapping[int, Buffer | None]) -> None:
        """Remember what a program has packed, for as long as it has it."""
        with self._lock:
            for slot, key, read in _packs(program, sources):
                buffer = made.get(slot)
                old = self._entries.get(key)
                if buffer is not None and (old is None or old.buffer() is None):
                    self._entries[key] = _Entry(weakref.ref(buffer, partial(self._gone, key)),
                                                tuple(each._storage for each in read),
                                                tuple(each._layout for each in read))

    def _gone(self, key: Key, buffer: weakref.ref[Buffer]) -> None:
        """The last function that used it is gone. No lock: this may be called anywhere, also where it is held."""
        entry = self._entries.get(key)
        if entry is not None and entry.buffer is buffer:
            self._entries.pop(key, None)

    def forget(self, storage: Any) -> None:
        """These elements are about to be overwritten."""
        with self._lock:
            for key, entry in list(self._entries.items()):
                if any(held is storage for held in entry.storages):
                    self._entries.pop(key, None)

    def __len__(self) -> int:
        return sum(entry.buffer() is not None for entry in list(self._entries.values()))


def _packs(program: Program, sources: Mapping[int, Tensor]) -> Iterator[tuple[int, Key, list[Tensor]]]:
    """(slot, key, tensors) of what a program packs from captured tensors alone."""
    writers = Counter(place.slot for step in program.prepare for place in step.written)
    for step in program.prepare:
        if not isinstance(step, Step) or step.kernel.role != "pack" or len(step.written) != 1:
            continue
        slot = step.written[0].slot
        if writers[slot] != 1 or not program.kept.get(slot) or any(place.slot not in sources for place in step.reads):
            continue
        read = [sources[place.slot] for place in step.reads]
        places = tuple((id(tensor._layout), replace(place, slot=0))
                       for tensor, place in zip(read, step.reads, strict=True))
        yield slot, (stored_kernel(step.kernel).key, step.values, step.rows, step.columns, places,
                     replace(step.written[0], slot=0), program.slots[slot].elements), read


shared = SharedPacks()
