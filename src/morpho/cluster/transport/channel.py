"""Channels between workers over an MPI communicator: persistent non-blocking requests and double buffers.

Activations and tokens go through receives that are posted once and started again and again; control messages, whose
sizes nobody knows before, are probed for. Sending never blocks: what finds no free buffer waits in a queue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from morpho.base.errors import fail
from morpho.cluster.transport.frame import (
    HEADER_BYTES,
    Header,
    Kind,
    TransportError,
    pack,
    payload_bytes,
    seal,
    table_bytes,
    unpack,
)
from morpho.cluster.transport.rounding import decode, encode
from morpho.cluster.transport.shim import Shim

DATA_TAG, CONTROL_TAG, WATCH_TAG = 1, 2, 3
MOST_CONTROL_BYTES = 64 << 20
BUFFERS = 2  # of a link, on each side
LOOK_EVERY_S = 3e-4  # for control messages and deaths


@dataclass
class Counters:
    """Counts of a link's traffic."""

    messages: int = 0
    bytes: int = 0
    waited_s: float = 0.0  # messages waited for a free buffer


class Sender:
    """One direction of a link: a ring of buffers, each with its persistent request for every size it has sent."""

    def __init__(self, mpi: Any, comm: Any, target: int, most_bytes: int, dtype: str) -> None:
        self._comm, self._target, self.dtype = comm, target, dtype
        self._buffers = [np.empty(HEADER_BYTES + most_bytes, np.uint8) for _ in range(BUFFERS)]
        self._requests: list[dict[int, Any]] = [{} for _ in range(BUFFERS)]
        self._active: list[Any] = [None] * BUFFERS
        self._mpi, self._next, self.counters = mpi, 0, Counters()
        self.copies, self.blocking = 0, False  # of the naive path: see `pipeline.baseline`
        self._waiting: deque[tuple[Header, np.ndarray, float]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether a message would go at once."""
        return not self._waiting and self._is_free(self._next)

    def _is_free(self, slot: int) -> bool:
        active = self._active[slot]
        if active is None or active.Test():
            self._active[slot] = None
            return True
        return False

    def send(self, header: Header, x: np.ndarray) -> None:
        """Send activations, as soon as a buffer is free."""
        self.flush()
        if self.has_room:
            self._put(header, x)
        else:
            self._waiting.append((header, np.array(x), time.perf_counter()))

    def send_now(self, header: Header, x: np.ndarray) -> None:
        """Send, after waiting for a free buffer: the other side takes what was sent before without our help."""
        while not self.has_room:
            self.flush()
            time.sleep(0)
        self._put(header, x)

    def flush(self) -> None:
        """Let waiting messages go as far as buffers are free."""
        while self._waiting and self._is_free(self._next):
            header, x, since = self._waiting.popleft()
            self.counters.waited_s += time.perf_counter() - since
            self._put(header, x)

    def _put(self, header: Header, x: np.ndarray) -> None:
        slot = self._next
        buffer = self._buffers[slot]
        for _ in range(self.copies):
            x = np.array(x)
        dtype = self.dtype if x.dtype == np.float32 else "i64"
        size = payload_bytes(dtype, x.shape)
        if size + table_bytes(len(header.table)) > buffer.size - HEADER_BYTES:
            raise fail(TransportError, "transport", f"a message of {size} bytes to rank {self._target} is larger than "
                                                    f"the {buffer.size - HEADER_BYTES} agreed on", line="")
        if dtype == "i64":
            np.copyto(buffer[HEADER_BYTES:HEADER_BYTES + size].view(np.int64).reshape(x.shape), x)
        else:
            encode(x, dtype, buffer[HEADER_BYTES:])
        size = seal(buffer, Header(*header[:6], dtype, x.shape, header.final, table=header.table), size)
        request = self._requests[slot].get(size)
        if request is None:
            request = self._comm.Send_init([buffer[:size], self._mpi.BYTE], self._target, DATA_TAG)
            self._requests[slot][size] = request
        request.Start()
        self._active[slot] = request
        while self.blocking and not self._is_free(slot):
            time.sleep(0)
        self._next = (slot + 1) % BUFFERS
        self.counters.messages += 1
        self.counters.bytes += size

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent has gone."""
        self.flush()
        return not self._waiting and all(self._is_free(slot) for slot in range(BUFFERS))


class Receiver:
    """The other direction: two posted receives, looked at in the order in which they were posted."""

    def __init__(self, mpi: Any, comm: Any, source: int, most_bytes: int, epoch: int, shim: Shim | None) -> None:
        self._mpi, self._source, self._epoch, self._shim = mpi, source, epoch, shim
        self._most = most_bytes
        self._buffers = [np.empty(HEADER_BYTES + most_bytes, np.uint8) for _ in range(BUFFERS)]
        self._requests = [comm.Recv_init([buffer, mpi.BYTE], source, DATA_TAG) for buffer in self._buffers]
        for request in self._requests:
            request.Start()
        self._status, self._next, self.counters = mpi.Status(), 0, Counters()
        self._held: deque[tuple[float, Header, np.ndarray]] = deque()  # by the shim

    def poll(self) -> tuple[Header, np.ndarray] | None:
        """The next message that has come, with its activations as float32 (or tokens as int64), or None."""
        if self._held and self._held[0][0] <= time.perf_counter():
            _, header, x = self._held.popleft()
            return header, x
        request = self._requests[self._next]
        try:
            if not request.Test(self._status):
                return None
        except self._mpi.Exception as error:
            if error.Get_error_class() != self._mpi.ERR_TRUNCATE:
                raise
            raise fail(TransportError, "transport", f"a message from rank {self._source} is larger than the "
                                                    f"{self._most} bytes agreed on", line="") from None
        size = self._status.Get_count(self._mpi.BYTE)
        header, payload = unpack(self._buffers[self._next][:size], self._source, self._epoch, self._most)
        x = payload.copy() if header.dtype == "i64" else decode(payload, header.dtype, header.shape)
        request.Start()
        self._next = (self._next + 1) % BUFFERS
        self.counters.messages += 1
        self.counters.bytes += size
        if self._shim is None:
            return header, x
        self._held.append((self._shim.due(time.perf_counter() - header.age_s, size), header, x))
        return self.poll() if self._held[0][0] <= time.perf_counter() else None

    @property
    def due_s(self) -> float:
        """When a message that is held back may be looked at."""
        return self._held[0][0] if self._held else float("inf")


class Channels:
    """All that a worker sends and receives in one epoch. What goes wrong with a peer is raised by every call."""

    def __init__(self, mpi: Any, comm: Any, epoch: int) -> None:
        self.mpi, self.comm, self.epoch, self.rank = mpi, comm, epoch, comm.Get_rank()
        self.senders: dict[int, Sender] = {}
        self.receivers: dict[int, Receiver] = {}
        self._going: deque[tuple[Any, np.ndarray]] = deque()  # control messages on their way
        self._watch, self._looked_s = self._watched(), 0.0

    def _watched(self) -> Any:
        """A receive from the next rank that is never fulfilled: it fails when that rank dies, so that every death is
        seen by somebody, whether the dead had work or not."""
        size = self.comm.Get_size()
        if size == 1:
            return None
        self._nothing = np.zeros(1, np.uint8)
        return self.comm.Irecv([self._nothing, self.mpi.BYTE], (self.rank + 1) % size, WATCH_TAG)

    def open_sender(self, target: int, most_bytes: int, dtype: str) -> Sender:
        """A link to a rank."""
        return self.senders.setdefault(target, Sender(self.mpi, self.comm, target, most_bytes, dtype))

    def open_receiver(self, source: int, most_bytes: int, shim: Shim | None = None) -> Receiver:
        """A link from a rank."""
        if source not in self.receivers:
            self.receivers[source] = Receiver(self.mpi, self.comm, source, most_bytes, self.epoch, shim)
        return self.receivers[source]

    def control(self, target: int, kind: Kind, payload: bytes, request: int = 0) -> None:
        """Send a control message."""
        frame = pack(Header(kind, self.epoch, self.rank, request), payload)
        self._going.append((self.comm.Isend([frame, self.mpi.BYTE], target, CONTROL_TAG), frame))

    def poll(self, data: bool = True) -> Iterator[tuple[Header, np.ndarray]]:
        """Messages that have come, data first, if it is wanted. Control messages and deaths are looked for now and then
        only: each look is a call of MPI, which lets others work where the machine is full."""
        for sender in self.senders.values():
            sender.flush()
        for receiver in self.receivers.values() if data else ():
            found = receiver.poll()
            if found is not None:
                yield found
        now = time.perf_counter()
        if now - self._looked_s < LOOK_EVERY_S and self.receivers:
            return
        self._looked_s = now
        if self._watch is not None:
            self._watch.Test()
        while self._going and self._going[0][0].Test():
            self._going.popleft()
        yield from self._controls()

    def due_in_s(self) -> float:
        """How long until a message that is held back has come through."""
        return min((receiver.due_s for receiver in self.receivers.values()), default=float("inf")) - time.perf_counter()

    def _controls(self) -> Iterator[tuple[Header, np.ndarray]]:
        status = self.mpi.Status()
        while True:
            message = self.comm.Improbe(self.mpi.ANY_SOURCE, CONTROL_TAG, status)
            if message is None:
                return
            size, source = status.Get_count(self.mpi.BYTE), status.Get_source()
            if size > MOST_CONTROL_BYTES:
                raise fail(TransportError, "transport", f"a control message from rank {source} has {size} bytes, more "
                                                        f"than {MOST_CONTROL_BYTES}", line="")
            raw = np.empty(size, np.uint8)
            message.Recv([raw, self.mpi.BYTE])
            yield unpack(raw, source, self.epoch, MOST_CONTROL_BYTES)


class Patience:
    """How to wait for something to happen: look again at once for a while, then sleep, longer and longer, up to a
    millisecond. A sleep is at most a twentieth of the time waited for so far, so that what comes is late by a fortieth
    of it on average.

    A core that slept computes slowly for a while, twice as slowly where it is a virtual one, so that who has a core to
    itself (`spin_s`) looks on for so long before it sleeps.

    >>> patience = Patience(sleep=lambda seconds: None)
    >>> for _ in range(1000): patience.wait()
    >>> patience.last_s
    0.001
    """

    GROWTH = 1.05

    def __init__(self, spins: int = 64, most_s: float = 0.001, sleep: Callable[[float], None] = time.sleep,
                 spin_s: float = 0.0) -> None:
        self._spins, self._most_s, self._sleep, self._count, self.last_s = spins, most_s, sleep, 0, 0.0
        self._spin_s, self._since_s = spin_s, 0.0

    def reset(self) -> None:
        """Something has happened."""
        self._count, self.last_s = 0, 0.0

    def wait(self, most_s: float = float("inf"), spin: bool = False) -> None:
        """Nothing has; something will after `most_s`. `spin`: it is worth a core that does nothing else."""
        self._count += 1
        if self._count == 1:
            self._since_s = time.perf_counter()
        if self._count <= self._spins or (spin and time.perf_counter() - self._since_s < self._spin_s):
            return
        self.last_s = min(self._most_s, max(2e-5, self.last_s * self.GROWTH))
        if min(self.last_s, most_s) > 0:
            self._sleep(min(self.last_s, most_s))
