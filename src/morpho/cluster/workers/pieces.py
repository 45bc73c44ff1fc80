"""A model on a host that has none: files of the right size in the user's cache, of which some pieces are there.

Files are cut into pieces of the same size. A journal has a line for each piece that has been written, with its hash:
what was interrupted goes on from there, and what the disk holds is compared with the journal before it is believed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morpho.base import settings
from morpho.base.errors import ArgumentError, fail
from morpho.cluster.transport.frame import TransportError

PIECE_BYTES = 1 << 18
HEAD_BYTES = 1 << 16  # what tells models apart is in there: see `meeting.digest_of`
WEIGHTS = (".safetensors", ".gguf")
JOURNAL = "pieces.journal"
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]*\.(json|safetensors|gguf)")  # a bare file name: no folder, no way up


def pieces_of(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """The numbers of the pieces that ranges of bytes touch.

    >>> sorted(pieces_of([(0, 10), (PIECE_BYTES - 1, PIECE_BYTES + 1)]))
    [0, 1]
    """
    return {number for start, stop in ranges for number in range(start // PIECE_BYTES, -(-stop // PIECE_BYTES))}


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as [first, past the last] of those that follow each other.

    >>> runs([5, 1, 2, 3])
    [[1, 4], [5, 6]]
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1][1] += 1
        else:
            found.append([number, number + 1])
    return found


def manifest(place: Path) -> list[dict[str, Any]]:
    """The files of a model: name, size, and how many bytes of each everybody needs: all but weights as a whole."""
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return [{"name": file.name, "size": file.stat().st_size, "head": _head(file)} for file in files
            if _NAME.fullmatch(file.name) and file.is_file()]


def _head(file: Path) -> int:
    size = file.stat().st_size
    if file.suffix != ".safetensors":
        return size
    with open(file, "rb") as opened:
        return min(size, max(HEAD_BYTES, 8 + int.from_bytes(opened.read(8), "little")))


@dataclass
class Store:
    """The model in the cache, with the pieces there are."""

    folder: Path
    files: Sequence[Mapping[str, Any]]
    have: dict[str, set[int]] = field(default_factory=dict)
    written: int = 0  # pieces and bytes since this process began
    written_bytes: int = 0

    @staticmethod
    def open(digest: str, name: str, files: Sequence[Mapping[str, Any]]) -> Store:
        """The model of this digest; made where it is not there, taken up again where it is."""
        if not settings.get().cache:
            raise fail(ArgumentError, "pipeline", "weights are shipped to a host's cache, and the cache is off there",
                       "set MORPHO_CACHE=1 there, or put the model in its place", line="")
        bad = next((file["name"] for file in files if not _NAME.fullmatch(file["name"])), None)
        if bad is not None:
            raise fail(ArgumentError, "pipeline", f"{bad!r} is no name of a model's file", line="")
        found = Store(settings.get().cache_path / "cluster" / "models" / digest[:32] / Path(name).name, files)
        found.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            found.have[file["name"]] = set()
            with open(found.folder / file["name"], "ab") as opened:
                opened.truncate(file["size"])
        found._believe()
        return found

    @property
    def place(self) -> str:
        """Path to load the model from: the folder, or the one GGUF file in it."""
        alone = len(self.files) == 1 and self.files[0]["name"].endswith(".gguf")
        return str(self.folder / self.files[0]["name"] if alone else self.folder)

    def _believe(self) -> None:
        """Read the journal; a piece that is not what it says is not there."""
        journal = self.folder / JOURNAL
        for line in journal.read_bytes().splitlines() if journal.exists() else ():
            words = line.split()
            name = words[2].decode(errors="replace") if len(words) == 3 else ""
            if name in self.have and words[0].isdigit():
                number = int(words[0])
                with open(self.folder / name, "rb") as file:
                    file.seek(number * PIECE_BYTES)
                    found = hashlib.sha256(file.read(PIECE_BYTES)).hexdigest()
                (self.have[name].add if found.encode() == words[1] else self.have[name].discard)(number)

    def put(self, name: str, number: int, data: bytes, digest: bytes) -> None:
        """Write a piece that has come, if it is what its sender said."""
        if hashlib.sha256(data).digest() != digest:
            raise fail(TransportError, "transport", f"piece {number} of {name} came with another hash", line="")
        with open(self.folder / name, "r+b") as file:
            file.seek(number * PIECE_BYTES)
            file.write(data)
        with open(self.folder / JOURNAL, "ab") as journal:
            journal.write(f"{number} {digest.hex()} {name}\n".encode())
        self.have[name].add(number)
        self.written, self.written_bytes = self.written + 1, self.written_bytes + len(data)

    @property
    def is_whole(self) -> bool:
        """Whether all pieces of all files are there."""
        return all(len(self.have[file["name"]]) == -(-file["size"] // PIECE_BYTES) for file in self.files)

    def said(self) -> dict[str, list[list[int]]]:
        """Pieces that are here, for whoever sends the rest."""
        return {name: runs(numbers) for name, numbers in self.have.items()}


def missing(files: Sequence[Mapping[str, Any]], ranges: Iterable[tuple[str, int, int]],
            have: Mapping[str, Sequence[Sequence[int]]]) -> list[tuple[str, int]]:
    """The pieces that a host lacks: the heads of all files, and what is in these ranges."""
    wanted: dict[str, set[int]] = {file["name"]: pieces_of([(0, file["head"])]) for file in files}
    for name, rows in itertools.groupby(sorted(ranges), lambda row: row[0]):
        wanted[name] |= pieces_of((start, stop) for _, start, stop in rows)
    for name, found in have.items():
        for start, stop in found:
            wanted.get(name, set()).difference_update(range(start, stop))
    return [(name, number) for name, numbers in sorted(wanted.items()) for number in sorted(numbers)]


def piece(place: Path, name: str, number: int) -> tuple[bytes, bytes]:
    """A piece of a model's file, and its hash."""
    with open(place / name if place.is_dir() else place, "rb") as file:
        data = os.pread(file.fileno(), PIECE_BYTES, number * PIECE_BYTES)
    return data, hashlib.sha256(data).digest()

