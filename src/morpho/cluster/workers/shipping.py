"""Weights on their way to hosts that lack them: each gets the pieces of its own layers from one that has the model.

All workers come here together, in every epoch in which somebody lacks the model; who dies meanwhile ends the epoch, and
the next one sends what is still missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morpho.base.errors import fail
from morpho.cluster.pipeline.parts import Part
from morpho.cluster.transport.frame import HEADER_BYTES, Header, Kind, TransportError, pack, unpack
from morpho.cluster.workers.meeting import say_all
from morpho.cluster.workers.pieces import PIECE_BYTES, Store, manifest, missing, piece

HASH_BYTES = 32
PIECE_TAG = 4
TELL_EVERY = 64  # pieces


class Shipping:
    """One epoch's exchange, on the workers' communicator."""

    def __init__(self, mpi: Any, comm: Any, epoch: int, node: str, report: Callable[[dict[str, Any]], None]) -> None:
        self.mpi, self.comm, self.epoch, self.node, self.report = mpi, comm, epoch, node, report
        self.rank = int(comm.Get_rank())

    def files(self, place: str, lacks: Sequence[bool]) -> list[dict[str, Any]]:
        """The files of the model, as the first one that has it says."""
        first = lacks.index(False)
        return say_all(self.mpi, self.comm, manifest(Path(place)) if self.rank == first else None)[first]  # type: ignore[no-any-return]

    def exchange(self, place: str, layers: Sequence[int], store: Store | None, files: list[dict[str, Any]]) -> None:
        """Send to those that lack, or take: `store` is where a host that lacks the model keeps it."""
        asked = say_all(self.mpi, self.comm, None if store is None else {"layers": [*layers], "have": store.said()})
        donors = [rank for rank, each in enumerate(asked) if each is None]
        takers = [rank for rank, each in enumerate(asked) if each is not None]
        for turn, taker in enumerate(takers):
            donor = donors[turn % len(donors)]
            if self.rank == donor:
                self._send(taker, asked[taker], Path(place), files)
            elif self.rank == taker:
                assert store is not None
                self._take(donor, store, files)

    def _send(self, taker: int, asked: dict[str, Any], place: Path, files: list[dict[str, Any]]) -> None:
        todo = missing(files, Part.ranges(str(place), asked["layers"]), asked["have"])
        numbers = {file["name"]: number for number, file in enumerate(files)}
        self._put(taker, Header(Kind.PIECE, self.epoch, self.rank, len(todo)), b"")
        for name, number in todo:
            data, digest = piece(place, name, number)
            self._put(taker, Header(Kind.PIECE, self.epoch, self.rank, number, numbers[name]), digest + data)

    def _put(self, taker: int, header: Header, payload: bytes) -> None:
        self.comm.Send([pack(header, payload), self.mpi.BYTE], taker, PIECE_TAG)

    def _take(self, donor: int, store: Store, files: list[dict[str, Any]]) -> None:
        buffer = np.empty(HEADER_BYTES + HASH_BYTES + PIECE_BYTES, np.uint8)
        count, kept = self._got(donor, buffer)[0].request, sum(map(len, store.have.values()))
        for number in range(count):
            header, payload = self._got(donor, buffer)
            if header.stage >= len(files) or header.request * PIECE_BYTES >= files[header.stage]["size"]:
                raise fail(TransportError, "transport", f"rank {donor} sent a piece of no file", line="")
            data = payload.tobytes()
            store.put(files[header.stage]["name"], header.request, data[HASH_BYTES:], data[:HASH_BYTES])
            if number % TELL_EVERY == TELL_EVERY - 1:
                self.report({"event": "shipping", "node": self.node, "pieces": number + 1, "of": count})
        self.report({"event": "shipped", "node": self.node, "pieces": count, "kept": kept, "bytes": store.written_bytes,
                     "place": store.place})

    def _got(self, donor: int, buffer: np.ndarray) -> tuple[Header, np.ndarray]:
        status = self.mpi.Status()
        self.comm.Recv([buffer, self.mpi.BYTE], donor, PIECE_TAG, status)
        return unpack(buffer[:status.Get_count(self.mpi.BYTE)], donor, self.epoch)
